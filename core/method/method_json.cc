#include <initializer_list>
#include <utility>

#include "core/base/json.h"
#include "core/method/method_common.h"
#include "core/method/value_syntax.h"

namespace covey {
namespace {

std::string JsonValue(const MethodParameter& parameter, int64_t value) {
  if (parameter.syntax == ValueSyntax::kNumber) return std::to_string(value);
  std::string json;
  AppendJsonString(WriteAs(parameter.syntax, value), &json);
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

std::string CodecJson(CodecUse use) {
  std::string json = std::string("{\"name\":\"") + kCodecSetting +
                     "\",\"letter\":\"\",\"unit\":\"\",\"default\":\"off\",\"minimum\":\"off\"," +
                     "\"maximum\":\"off\",\"help\":";
  AppendJsonString(CodecHelp(use), &json);
  return json + "}";
}

std::string JsonOf(const Method& method) {
  std::string json;
  for (const auto& [key, text] : std::initializer_list<std::pair<const char*, const char*>>{
           {"name", method.name},
           {"help", method.help},
           {"bytes", method.bytes},
           {"citation", method.citation},
           {"exchanged", method.exchanged},
           {"partners", method.partners},
           {"saved", method.saved},
           {"late", method.late},
           {"learning_rate", method.learning_rate},
           {"memory", method.memory},
           {"lr_scale", method.scaling == Scaling::kRanks ? "ranks" : "one"}}) {
    json += std::string(json.empty() ? "{\"" : ",\"") + key + "\":";
    AppendJsonString(text, &json);
  }
  json += ",\"parameters\":[";
  for (const MethodParameter& parameter : method.parameters) json += JsonOf(parameter) + ",";
  if (method.codecs != CodecUse::kNone) json += CodecJson(method.codecs) + ",";
  return json + JsonOf(kCommon[kWarmup]) + "," + JsonOf(kCommon[kClip]) + "]}";
}

}  // namespace

std::string MethodsJson() {
  std::string json = "[";
  for (const Method* method : Methods())
    json += (json.ends_with('[') ? "" : ",\n") + JsonOf(*method);
  return json + "]";
}

}  // namespace covey
