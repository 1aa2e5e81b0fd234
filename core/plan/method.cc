#include "core/plan/method.h"

#include <algorithm>
#include <optional>

#include "core/base/json.h"
#include "core/base/nearest.h"
#include "core/plan/notation.h"

namespace covey {
namespace {

// Filled before main() by the registrations of ops/methods, read-only from then on.
std::vector<const Method*>& Catalogue() {
  static std::vector<const Method*> catalogue;  // process-wide: registrations only
  return catalogue;
}

std::string Quoted(std::string_view text) { return "\"" + std::string(text) + "\""; }

// REQUIRES: names is not empty.
std::string_view Nearest(std::string_view word, const std::vector<std::string_view>& names) {
  return *std::min_element(names.begin(), names.end(), [word](auto a, auto b) {
    return EditDistance(word, a) < EditDistance(word, b);
  });
}

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

Status UnknownMethod(std::string_view name) {
  std::vector<std::string_view> names;
  std::vector<std::string> shown;
  for (const Method* method : Catalogue()) {
    names.emplace_back(method->name);
    shown.emplace_back(method->name);
  }
  std::string text = "there is no method " + Quoted(name) + "; there are: " + Joined(shown);
  if (!names.empty()) text += "; the nearest is " + Quoted(Nearest(name, names));
  return Status::InvalidArgument(std::move(text));
}

Status UnknownParameter(const Method& method, std::string_view name) {
  std::string text = "the method " + Quoted(method.name);
  if (method.parameters.empty())
    return Status::InvalidArgument(text + " has no parameters, so there is no " + Quoted(name));
  std::vector<std::string_view> names;
  std::vector<std::string> shown;
  for (const MethodParameter& parameter : method.parameters) {
    const std::string letter = parameter.letter;
    names.emplace_back(parameter.name);
    shown.push_back(parameter.name + (letter.empty() ? "" : " (" + letter + ")"));
  }
  return Status::InvalidArgument(text + " has no parameter " + Quoted(name) + "; it has " +
                                 Joined(shown) + "; the nearest is " +
                                 Quoted(Nearest(name, names)));
}

Status ReadValue(const MethodParameter& parameter, std::string_view text, int64_t* value) {
  const std::optional<int64_t> read = ReadAs(parameter.notation, text);
  if (read.has_value() && *read >= parameter.minimum && *read <= parameter.maximum) {
    *value = *read;
    return Status::Ok();
  }
  std::string range = std::string("a number of ") + parameter.unit;
  if (parameter.notation == Notation::kTime) range = "a time such as 20ms";
  if (parameter.notation == Notation::kAdmission)
    return Status::InvalidArgument(std::string(parameter.name) + " is " + Quoted(text) +
                                   ", which is not solo, all, a number of ranks from 1, or a part "
                                   "of them such as 0.5");
  std::string least = WriteAs(parameter.notation, parameter.minimum);
  if (parameter.notation == Notation::kGroupSize) {
    range = "auto or " + range;
    least = "1";
  }
  return Status::InvalidArgument(std::string(parameter.name) + " is " + Quoted(text) +
                                 ", which is not " + range + " from " + least + " to " +
                                 WriteAs(parameter.notation, parameter.maximum));
}

// The parameter with this name or letter; size() when there is none.
size_t IndexOf(std::span<const MethodParameter> parameters, std::string_view name) {
  const auto found =
      std::find_if(parameters.begin(), parameters.end(), [name](const MethodParameter& p) {
        return name == p.name || (!name.empty() && name == p.letter);
      });
  return static_cast<size_t>(found - parameters.begin());
}

// One "name=value" of `text`.
Status ReadSetting(std::string_view word, std::string_view text, const Method& method,
                   std::vector<std::optional<int64_t>>* values) {
  const size_t equals = word.find('=');
  if (equals == std::string_view::npos)
    return Status::InvalidArgument(Quoted(word) + " in the method " + Quoted(text) +
                                   " is not of the form name=value");
  const std::string_view name = word.substr(0, equals);
  const size_t index = IndexOf(method.parameters, name);
  if (index == method.parameters.size()) return UnknownParameter(method, name);
  if ((*values)[index].has_value())
    return Status::InvalidArgument(std::string(method.parameters[index].name) +
                                   " is given twice in the method " + Quoted(text));
  int64_t number = 0;
  RETURN_IF_ERROR(ReadValue(method.parameters[index], word.substr(equals + 1), &number));
  (*values)[index] = number;
  return Status::Ok();
}

std::string JsonValue(const MethodParameter& parameter, int64_t value) {
  if (parameter.notation == Notation::kNumber) return std::to_string(value);
  std::string json;
  AppendJsonString(WriteAs(parameter.notation, value), &json);
  return json;
}

std::string JsonOf(const MethodParameter& parameter) {
  std::string json = "{\"name\":";
  AppendJsonString(parameter.name, &json);
  json += ",\"letter\":";
  AppendJsonString(parameter.letter, &json);
  json += ",\"unit\":";
  AppendJsonString(parameter.unit, &json);
  json += ",\"default\":" + JsonValue(parameter, parameter.standard);
  json += ",\"minimum\":" + JsonValue(parameter, parameter.minimum);
  json += ",\"maximum\":" + JsonValue(parameter, parameter.maximum) + ",\"help\":";
  AppendJsonString(parameter.help, &json);
  return json + "}";
}

std::string JsonOf(const Method& method) {
  std::string json = "{\"name\":";
  AppendJsonString(method.name, &json);
  json += ",\"help\":";
  AppendJsonString(method.help, &json);
  json += ",\"bytes\":";
  AppendJsonString(method.bytes, &json);
  json += ",\"citation\":";
  AppendJsonString(method.citation, &json);
  json += ",\"parameters\":[";
  for (const MethodParameter& parameter : method.parameters)
    json += (json.ends_with('[') ? "" : ",") + JsonOf(parameter);
  return json + "]}";
}

}  // namespace

MethodRegistration::MethodRegistration(const Method& method) {
  auto& all = Catalogue();
  const auto less = [](const Method* a, const Method* b) {
    return std::string_view(a->name) < std::string_view(b->name);
  };
  all.insert(std::upper_bound(all.begin(), all.end(), &method, less), &method);
}

std::span<const Method* const> Methods() { return Catalogue(); }

const Method* FindMethod(std::string_view name) {
  for (const Method* method : Catalogue())
    if (method->name == name) return method;
  return nullptr;
}

std::string MethodChoice::Text() const {
  std::string text = method->name;
  for (size_t i = 0; i < settings.size(); ++i)
    text += (i == 0 ? ":" : ",") + std::string(method->parameters[i].name) + "=" +
            WriteAs(method->parameters[i].notation, settings[i]);
  return text;
}

Status ParseMethod(std::string_view text, MethodChoice* choice) {
  const size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  const Method* method = FindMethod(name);
  if (method == nullptr) return UnknownMethod(name);
  std::vector<std::optional<int64_t>> values(method->parameters.size());
  for (size_t begin = colon; begin != std::string_view::npos;) {
    const size_t end = text.find(',', begin + 1);
    RETURN_IF_ERROR(ReadSetting(text.substr(begin + 1, end - begin - 1), text, *method, &values));
    begin = end;
  }
  std::vector<int64_t> settings;
  for (size_t i = 0; i < values.size(); ++i)
    settings.push_back(values[i].value_or(method->parameters[i].standard));
  *choice = {.method = method, .settings = std::move(settings)};
  return Status::Ok();
}

std::string MethodsJson() {
  std::string json = "[";
  for (const Method* method : Catalogue())
    json += (json.ends_with('[') ? "" : ",\n") + JsonOf(*method);
  return json + "]";
}

}  // namespace covey
