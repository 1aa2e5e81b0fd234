#include "core/base/config.h"

#include "core/base/json.h"
#include "core/base/knobs.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <vector>

namespace covey {
namespace {

constexpr std::string_view kPrefix = "COVEY_";

bool SetChoice(const Knob& knob, std::string_view text, Config* config) {
  const std::vector<std::string_view> choices = ChoicesOf(knob);
  const auto found = std::find(choices.begin(), choices.end(), text);
  if (found == choices.end()) return false;
  if (const auto* field = std::get_if<std::string Config::*>(&knob.field)) {
    config->** field = text;
  } else {
    SetNumber(knob, found - choices.begin(), config);
  }
  return true;
}

// `shown` is the name as the user wrote it.
Status Set(const Knob& knob, std::string_view shown, std::string_view text, Config* config) {
  bool valid = true;
  if (knob.type == Knob::Type::kText) {
    config->*std::get<std::string Config::*>(knob.field) = text;
  } else if (knob.type == Knob::Type::kChoice) {
    valid = SetChoice(knob, text, config);
  } else {
    const std::optional<int64_t> number = ParseNumber(knob, text);
    valid = number.has_value() && *number >= knob.minimum && *number <= knob.maximum &&
            *number % knob.multiple == 0;
    if (valid) SetNumber(knob, *number, config);
  }
  if (valid) return Status::Ok();
  return Status::InvalidArgument(std::string(shown) + " is \"" + std::string(text) +
                                 "\", which is not " + AllowedText(knob));
}

std::string Upper(std::string_view name) {
  std::string upper(name);
  for (char& c : upper) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return upper;
}

std::string Lower(std::string_view name) {
  std::string lower(name);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return lower;
}

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

Status Unknown(std::string_view shown, std::string_view nearest) {
  return Status::InvalidArgument(
      std::string(shown) + " is not a setting of Covey; the nearest is " + std::string(nearest));
}

Status ReadVariables(const char* const* environment, Config* config) {
  if (environment == nullptr) return Status::Ok();
  for (; *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    const size_t end = entry.find('=');
    if (!entry.starts_with(kPrefix) || end == std::string_view::npos) continue;
    const std::string_view variable = entry.substr(0, end);
    const std::string name = Lower(variable.substr(kPrefix.size()));
    const std::string exact = std::string(kPrefix) + Upper(name);
    const Knob* knob = FindKnob(name);
    if (knob == nullptr || variable != exact) {
      return Unknown(variable, std::string(kPrefix) + Upper(NearestKnob(name).name));
    }
    const std::string_view value = entry.substr(end + 1);
    // An empty name of a method is none: so shells take a variable back for one command.
    if (value.empty() && name == "method") continue;
    RETURN_IF_ERROR(Set(*knob, variable, value, config));
  }
  return Status::Ok();
}

Status ReadSettings(std::string_view settings, Config* config) {
  while (!settings.empty()) {
    const size_t line_end = std::min(settings.find('\n'), settings.size());
    const std::string_view line = Trim(settings.substr(0, line_end));
    settings.remove_prefix(std::min(line_end + 1, settings.size()));
    if (line.empty()) continue;
    const size_t end = line.find('=');
    if (end == std::string_view::npos) {
      return Status::InvalidArgument("the setting \"" + std::string(line) +
                                     "\" is not of the form name=value");
    }
    const std::string_view name = Trim(line.substr(0, end));
    const Knob* knob = FindKnob(name);
    if (knob == nullptr) return Unknown(name, NearestKnob(Lower(name)).name);
    RETURN_IF_ERROR(Set(*knob, name, Trim(line.substr(end + 1)), config));
  }
  return Status::Ok();
}

// Variables by which other launchers tell a process how many there are.
struct Launcher {
  std::string_view variable;  // holds the number of ranks
  const char* name;
  bool counts_restarts = false;  // it does not: WORLD_SIZE has the number
};
constexpr Launcher kLaunchers[] = {
    {"OMPI_COMM_WORLD_SIZE", "mpirun"},  // Open MPI
    {"PMI_SIZE", "mpirun"},              // MPICH, Intel MPI
    {"SLURM_STEP_NUM_TASKS", "srun"},
    {"TORCHELASTIC_RESTART_COUNT", "torchrun", true},
};

// Whether the user has told glibc's allocator something: Covey does not tell it otherwise.
bool SetsAllocator(const char* const* environment) {
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    for (const std::string_view own : {"MALLOC_TRIM_THRESHOLD_=", "MALLOC_MMAP_THRESHOLD_=",
                                       "MALLOC_TOP_PAD_=", "MALLOC_MMAP_MAX_=", "GLIBC_TUNABLES="})
      if (entry.starts_with(own)) return true;
  }
  return false;
}

// The launcher that started this process as one of several; empty: none of those known.
std::string StartedBy(const char* const* environment) {
  std::string by;
  bool several = false;  // according to WORLD_SIZE
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    const size_t end = std::min(entry.find('='), entry.size() - 1);
    const std::string_view name = entry.substr(0, end);
    const std::string_view value = entry.substr(end + 1);
    several |= name == "WORLD_SIZE" && value != "1";
    for (const Launcher& launcher : kLaunchers)
      if (name == launcher.variable && (value != "1" || launcher.counts_restarts))
        by = launcher.name;
  }
  return by == "torchrun" && !several ? "" : by;
}

Status CheckPlace(const char* rank_name, int32_t rank, const char* size_name, int32_t size) {
  if (rank < size) return Status::Ok();
  return Status::InvalidArgument(std::string(rank_name) + " is " + std::to_string(rank) +
                                 ", which needs a " + size_name + " above it and not " +
                                 std::to_string(size));
}

// Two times of a job on several hosts, of which one has to be the longer.
struct Order {
  std::string_view shorter, longer, why;
};

constexpr Order kOrders[] = {
    {"recheck", "lease", "a thread that sleeps has to look for lost ranks within a lease"},
    {"lease", "start_timeout", "init() has to find a rank that is out of reach before it gives up"},
};

std::string VariableOf(std::string_view knob) {
  std::string name = "COVEY_";
  for (const char letter : knob) name += static_cast<char>(std::toupper(letter));
  return name;
}

Status CheckTimes(const Config& config) {
  if (config.book_fd < 0) return Status::Ok();
  for (const Order& order : kOrders) {
    const Knob& shorter = *FindKnob(order.shorter);
    const Knob& longer = *FindKnob(order.longer);
    if (GetNumber(shorter, config) < GetNumber(longer, config)) continue;
    return Status::InvalidArgument(
        VariableOf(order.longer) + " is " + ValueText(longer, config) + " and " +
        VariableOf(order.shorter) + " " + ValueText(shorter, config) + ": between hosts " +
        std::string(order.why) + "; raise the first, or lower the second");
  }
  return Status::Ok();
}

void AppendMember(const char* name, std::string_view raw, std::string* json) {
  *json += json->ends_with('{') ? "\"" : ",\"";
  *json += std::string(name) + "\":" + std::string(raw);
}

std::string JsonString(std::string_view text) {
  std::string json;
  AppendJsonString(text, &json);
  return json;
}

// A number as JSON: bare when it counts, as text with its unit otherwise.
std::string JsonNumber(const Knob& knob, int64_t number) {
  const std::string text = NumberText(knob, number);
  return knob.type == Knob::Type::kCount ? text : JsonString(text);
}

std::string JsonValue(const Knob& knob, const Config& config) {
  return knob.IsNumber() ? JsonNumber(knob, GetNumber(knob, config))
                         : JsonString(ValueText(knob, config));
}

}  // namespace

Status Config::FromEnvironment(const char* const* environment, std::string_view settings,
                               Config* config) {
  constexpr int32_t kUnset = -1;
  Config read;
  read.local_rank = kUnset;
  read.local_size = kUnset;
  if (SetsAllocator(environment)) read.keep_freed = 0;
  RETURN_IF_ERROR(ReadVariables(environment, &read));
  RETURN_IF_ERROR(ReadSettings(settings, &read));
  if (read.shm_fd < 0 && read.size == 1) read.started_by = StartedBy(environment);
  if (read.local_rank == kUnset) read.local_rank = ToInt(read.rank);
  if (read.local_size == kUnset) read.local_size = std::max(read.size, read.local_rank + 1);
  RETURN_IF_ERROR(CheckPlace("rank", ToInt(read.rank), "size", read.size));
  RETURN_IF_ERROR(CheckPlace("local_rank", read.local_rank, "local_size", read.local_size));
  RETURN_IF_ERROR(CheckTimes(read));
  *config = std::move(read);
  return Status::Ok();
}

std::string Config::TransportName() const {
  if (transport != "auto" || book_fd >= 0) return transport;
  return started_by == "mpirun" || started_by == "srun" ? "mpi" : "shm";
}

std::string Config::AgreedText() const {
  std::string text;
  for (const Knob& knob : AllKnobs()) {
    if (!knob.agreed) continue;
    text += (text.empty() ? "" : ";") + std::string(knob.name) + "=" + PlainText(knob, *this);
  }
  return text;
}

std::string Config::Difference(const Config& before) const {
  std::string text;
  for (const Knob& knob : AllKnobs()) {
    if (PlainText(knob, *this) == PlainText(knob, before)) continue;
    text += (text.empty() ? "" : ", ") + std::string(knob.name) + " " + ValueText(knob, *this) +
            " instead of " + ValueText(knob, before);
  }
  return text;
}

std::string Config::KnobsJson() const {
  const Config defaults;
  std::string json = "[";
  for (const Knob& knob : AllKnobs()) {
    json += json.ends_with('[') ? "{" : ",\n{";
    AppendMember("name", JsonString(knob.name), &json);
    AppendMember("unit", JsonString(knob.unit), &json);
    AppendMember("default", JsonValue(knob, defaults), &json);
    AppendMember("minimum", knob.IsNumber() ? JsonNumber(knob, knob.minimum) : "null", &json);
    AppendMember("maximum", knob.IsNumber() ? JsonNumber(knob, knob.maximum) : "null", &json);
    AppendMember("agreed", knob.agreed ? "true" : "false", &json);
    AppendMember("help", JsonString(knob.help), &json);
    AppendMember("value", JsonValue(knob, *this), &json);
    json += '}';
  }
  return json + "]";
}

std::string KnobsJson() {
  Config config;
  if (!Config::FromEnvironment(environ, "", &config).ok()) config = Config();
  return config.KnobsJson();
}

}  // namespace covey
