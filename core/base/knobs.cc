#include "core/base/knobs.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <system_error>
#include <type_traits>

#include "core/base/check.h"
#include "core/base/nearest.h"

namespace covey {
namespace {

using Type = Knob::Type;

constexpr int64_t kKiB = 1024;
constexpr int64_t kMiB = 1024 * kKiB;
constexpr int64_t kGiB = 1024 * kMiB;
constexpr int64_t kMaxRanks = 1024;  // as kMaxRanksPerHost of the shared-memory transport

struct Unit {
  std::string_view name;
  int64_t factor;
};
// Largest first: a value is printed in the first that divides it.
constexpr std::array<Unit, 4> kTimeUnits = {
    {{"s", kSecond}, {"ms", kMillisecond}, {"us", kMicrosecond}, {"ns", 1}}};
constexpr std::array<Unit, 4> kSizeUnits = {
    {{"GiB", kGiB}, {"MiB", kMiB}, {"KiB", kKiB}, {"B", 1}}};

constexpr Knob kKnobs[] = {
    {.name = "rank",
     .type = Type::kCount,
     .field = &Config::rank,
     .maximum = kMaxRanks - 1,
     .help = "rank of this process in the job"},
    {.name = "size",
     .type = Type::kCount,
     .field = &Config::size,
     .minimum = 1,
     .maximum = kMaxRanks,
     .help = "number of ranks in the job"},
    {.name = "local_rank",
     .type = Type::kCount,
     .field = &Config::local_rank,
     .maximum = kMaxRanks - 1,
     .help = "rank among the processes of this host; that in the job when not set"},
    {.name = "local_size",
     .type = Type::kCount,
     .field = &Config::local_size,
     .minimum = 1,
     .maximum = kMaxRanks,
     .help = "number of ranks on this host; that in the job when not set"},
    {.name = "shm_fd",
     .type = Type::kCount,
     .field = &Config::shm_fd,
     .minimum = -1,
     .maximum = INT32_MAX,
     .help = "descriptor of the job's shared memory, inherited from the launcher; -1 for none"},
    {.name = "launcher_pid",
     .type = Type::kCount,
     .field = &Config::launcher_pid,
     .maximum = INT32_MAX,
     .help = "process id of the launcher; 0 for none"},
    {.name = "job",
     .unit = "text",
     .type = Type::kText,
     .field = &Config::job,
     .help = "identifier of the job, for people"},
    {.name = "transport",
     .unit = "auto|shm|mpi|ucx",
     .type = Type::kChoice,
     .field = &Config::transport,
     .help = "how the ranks reach each other; auto is shm, the memory of this host; mpi and ucx "
             "are plug-ins"},
    {.name = "plugin_path",
     .unit = "folders",
     .type = Type::kText,
     .field = &Config::plugin_path,
     .help = "where plug-ins (libcovey_NAME.so) are looked for, separated by ':', before the "
             "folder of libcovey.so"},
    {.name = "rendezvous",
     .unit = "text",
     .type = Type::kText,
     .field = &Config::rendezvous,
     .help = "HOST:PORT where rank 0 serves and the others join, for ranks that torchrun or srun "
             "has started; or file:PATH, where rank 0 writes the address; needs secret_file"},
    {.name = "secret_file",
     .unit = "file",
     .type = Type::kText,
     .field = &Config::secret_file,
     .help =
         "file with the job's secret, which no other user can read (coveyrun --serve makes it)"},
    {.name = "start_timeout",
     .unit = "s",
     .type = Type::kTime,
     .field = &Config::start_timeout,
     .minimum = kMillisecond,
     .maximum = 86400 * kSecond,
     .help = "how long init waits for the other ranks"},
    {.name = "lease",
     .unit = "s",
     .type = Type::kTime,
     .field = &Config::lease,
     .minimum = 10 * kMillisecond,
     .maximum = 86400 * kSecond,
     .help = "how long the rendezvous may hear nothing of a launcher before it counts as dead (a "
             "broken connection is seen at once); that of the launcher which serves counts"},
    {.name = "stall_warning",
     .unit = "s",
     .type = Type::kTime,
     .field = &Config::stall_warning,
     .minimum = kMillisecond,
     .maximum = 86400 * kSecond,
     .help = "how long an operation may wait for a rank before that is reported"},
    {.name = "segment_bytes",
     .unit = "B",
     .type = Type::kSize,
     .field = &Config::segment_bytes,
     .minimum = 4 * kKiB,
     .maximum = 16 * kMiB,
     .multiple = 64,
     .agreed = true,
     .help = "piece in which large messages are staged through shared memory"},
    {.name = "flat_bytes",
     .unit = "B",
     .type = Type::kSize,
     .field = &Config::flat_bytes,
     .maximum = 16 * kMiB,
     .agreed = true,
     .help = "largest message reduced in one round by every rank on its own"},
    {.name = "read_bytes",
     .unit = "B",
     .type = Type::kSize,
     .field = &Config::read_bytes,
     .maximum = int64_t{1} << 40,
     .agreed = true,
     .help = "larger ordinary tensors are read from their owners instead of staged; the "
             "default, never, is the faster where a system call per piece is dear"},
    {.name = "algorithm",
     .unit = "auto|flat|direct|read|staged|ring|pairwise|doubling|tree",
     .type = Type::kChoice,
     .field = &Config::algorithm,
     .agreed = true,
     .help = "algorithm of every operation that has one of this name, wherever it fits"},
    {.name = "cuda_path",
     .unit = "auto|nccl|ipc|staged",
     .type = Type::kChoice,
     .field = &Config::cuda_path,
     .agreed = true,
     .help =
         "how tensors on CUDA travel: nccl between the GPUs, ipc between those of a host, whose "
         "kernels reduce each other's memory, staged through memory of the host; auto is nccl "
         "where all ranks have it and it can do the operation, else ipc where all ranks of a "
         "group can open each other's memory, else staged; with nccl an operation that it "
         "could do fails where some rank has it not, and others are staged"},
    {.name = "nccl_bytes",
     .unit = "B",
     .type = Type::kSize,
     .field = &Config::nccl_bytes,
     .maximum = kGiB,
     .agreed = true,
     .help = "smaller messages on CUDA do not go by nccl"},
    {.name = "nccl_abort",
     .unit = "s",
     .type = Type::kTime,
     .field = &Config::nccl_abort,
     .maximum = 86400 * kSecond,
     .help = "how long an operation that has failed waits for NCCL to return from ncclCommAbort"},
    {.name = "spin",
     .unit = "us",
     .type = Type::kTime,
     .field = &Config::spin,
     .maximum = kSecond,
     .help = "how long a waiting thread spins before it yields"},
    {.name = "yield_count",
     .type = Type::kCount,
     .field = &Config::yield_count,
     .maximum = 1000000,
     .help = "how often a waiting thread yields before it sleeps"},
    {.name = "arena_bytes",
     .unit = "B",
     .type = Type::kSize,
     .field = &Config::arena_bytes,
     .minimum = kMiB,
     .maximum = 1024 * kGiB,
     .multiple = 4096,
     .help = "address space of each rank's shared memory; pages cost memory when first used"},
    {.name = "memory_limit",
     .unit = "B",
     .type = Type::kSize,
     .field = &Config::memory_limit,
     .maximum = 1024 * kGiB,
     .agreed = true,
     .help = "shared memory that a method which keeps results may take of one rank; one that needs "
             "more is refused before the first step; 0 = no limit"},
    {.name = "cache_capacity",
     .type = Type::kCount,
     .field = &Config::cache_capacity,
     .minimum = 1,
     .maximum = 1 << 20,
     .help = "agreed signatures kept per stream"},
    {.name = "fusion_threshold",
     .unit = "B",
     .type = Type::kSize,
     .field = &Config::fusion_threshold,
     .maximum = 16 * kGiB,
     .help = "size of a bundle of tensors that travel together; 0 = each tensor by itself"},
    {.name = "fusion_window",
     .unit = "ms",
     .type = Type::kTime,
     .field = &Config::fusion_window,
     .maximum = kSecond,
     .help = "tensors first submitted within this time of each other may travel together"},
    {.name = "method",
     .unit = "text",
     .type = Type::kText,
     .field = &Config::method,
     .agreed = true,
     .help = "how the ranks train together, such as local:local_steps=8; `covey methods` tells"},
    {.name = "method_by",
     .unit = "variable|flag|force",
     .type = Type::kChoice,
     .field = &Config::method_by,
     .help = "who has chosen the method: the variable, coveyrun's --method, or --force-method, "
             "over which a script does not win"},
    {.name = "check_nan",
     .type = Type::kCount,
     .field = &Config::check_nan,
     .maximum = 1,
     .help = "1: looks for NaN and infinite numbers in what is about to be reduced, and refuses it "
             "with rank, name, count and step before it is mixed with that of others; costs a pass "
             "over the data, about 0.1 ms per million float32"},
    {.name = "inject",
     .unit = "text",
     .type = Type::kText,
     .field = &Config::inject,
     .help = "delays at the end of the optimizer's steps, such as delay:320ms@2, to see what late "
             "ranks cost; empty for none"},
    {.name = "summary",
     .unit = "auto|always",
     .type = Type::kChoice,
     .field = &Config::summary,
     .help = "when the launcher tells at the end what the ranks did; auto is with a method that "
             "does not wait for all ranks, and with inject"},
    {.name = "summary_fd",
     .type = Type::kCount,
     .field = &Config::summary_fd,
     .minimum = -1,
     .maximum = INT32_MAX,
     .help = "descriptor of the file where each rank says at its end what it did; -1 for none"},
    {.name = "timeline",
     .unit = "folder",
     .type = Type::kText,
     .field = &Config::timeline,
     .help = "where every rank writes its trace rank.N.json; empty for none"},
    {.name = "timeline_max_bytes",
     .unit = "B",
     .type = Type::kSize,
     .field = &Config::timeline_max_bytes,
     .minimum = 4 * kKiB,
     .maximum = 16 * kGiB,
     .help = "size at which a trace ends"},
    {.name = "log_level",
     .unit = "off|error|warn|info|debug",
     .type = Type::kChoice,
     .field = &Config::log_level,
     .help = "what is written to stderr"},
};

template <size_t kCount>
std::string WithUnit(int64_t value, const std::array<Unit, kCount>& units) {
  if (value == 0) return "0";
  for (const Unit& unit : units)
    if (value % unit.factor == 0)
      return std::to_string(value / unit.factor) + std::string(unit.name);
  return std::to_string(value);
}

template <size_t kCount>
std::optional<int64_t> FactorOf(std::string_view name, const std::array<Unit, kCount>& units) {
  for (const Unit& unit : units)
    if (unit.name == name) return unit.factor;
  return std::nullopt;
}

static_assert(static_cast<int>(LogLevel::kOff) == 0 && static_cast<int>(LogLevel::kDebug) == 4,
              "the choices of log_level stand in the order of the enum");

}  // namespace

std::span<const Knob> AllKnobs() { return kKnobs; }

const Knob* FindKnob(std::string_view name) {
  const auto* found = std::find_if(std::begin(kKnobs), std::end(kKnobs),
                                   [name](const Knob& knob) { return knob.name == name; });
  return found == std::end(kKnobs) ? nullptr : found;
}

const Knob& NearestKnob(std::string_view mistyped) {
  const auto nearer = [mistyped](const Knob& a, const Knob& b) {
    return EditDistance(mistyped, a.name) < EditDistance(mistyped, b.name);
  };
  return *std::min_element(std::begin(kKnobs), std::end(kKnobs), nearer);
}

std::string NumberText(const Knob& knob, int64_t number) {
  if (knob.type == Type::kTime) return WithUnit(number, kTimeUnits);
  if (knob.type == Type::kSize) return WithUnit(number, kSizeUnits);
  return std::to_string(number);
}

std::vector<std::string_view> ChoicesOf(const Knob& knob) {
  std::vector<std::string_view> choices;
  std::string_view rest = knob.unit;
  while (true) {
    const size_t end = rest.find('|');
    choices.push_back(rest.substr(0, end));
    if (end == std::string_view::npos) return choices;
    rest.remove_prefix(end + 1);
  }
}

std::string AllowedText(const Knob& knob) {
  if (knob.type == Type::kChoice) {
    std::string text = "one of";
    for (std::string_view choice : ChoicesOf(knob))
      text += (text == "one of" ? " " : ", ") + std::string(choice);
    return text;
  }
  std::string text = "a number";
  if (knob.type == Type::kTime) text = "a time";
  if (knob.type == Type::kSize) text = "a size";
  text += " from " + NumberText(knob, knob.minimum) + " to " + NumberText(knob, knob.maximum);
  if (knob.multiple != 1) text += " that is a multiple of " + std::to_string(knob.multiple);
  return text;
}

int64_t GetNumber(const Knob& knob, const Config& config) {
  return std::visit(
      [&config](auto member) -> int64_t {
        using T = std::decay_t<decltype(config.*member)>;
        if constexpr (std::is_same_v<T, std::string>) {
          CHECK(false, "a knob with text has no number");
        } else {
          return static_cast<int64_t>(config.*member);
        }
      },
      knob.field);
}

std::string PlainText(const Knob& knob, const Config& config) {
  if (const auto* text = std::get_if<std::string Config::*>(&knob.field)) return config.**text;
  const int64_t number = GetNumber(knob, config);
  if (knob.type == Type::kChoice) return std::string(ChoicesOf(knob)[static_cast<size_t>(number)]);
  return std::to_string(number);
}

std::string ValueText(const Knob& knob, const Config& config) {
  return knob.IsNumber() ? NumberText(knob, GetNumber(knob, config)) : PlainText(knob, config);
}

void SetNumber(const Knob& knob, int64_t number, Config* config) {
  std::visit(
      [config, number](auto member) {
        using T = std::decay_t<decltype(config->*member)>;
        if constexpr (std::is_same_v<T, std::string>) {
          CHECK(false, "a knob with text has no number");
        } else {
          config->*member = static_cast<T>(number);
        }
      },
      knob.field);
}

std::optional<int64_t> ParseNumber(const Knob& knob, std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !std::isfinite(number)) return std::nullopt;
  std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  std::optional<int64_t> factor;
  if (knob.type == Type::kCount) {
    if (unit.empty()) factor = 1;
  } else {
    if (unit.empty()) unit = knob.unit;
    factor = knob.type == Type::kTime ? FactorOf(unit, kTimeUnits) : FactorOf(unit, kSizeUnits);
  }
  if (!factor.has_value()) return std::nullopt;
  const double value = number * static_cast<double>(*factor);
  constexpr double kExact = 9007199254740992;  // 2^53, above every maximum
  if (std::fabs(value) > kExact) return number < 0 ? INT64_MIN : INT64_MAX;
  const auto rounded = static_cast<int64_t>(std::llround(value));
  const bool whole = std::fabs(value - static_cast<double>(rounded)) < 1e-6;
  return whole ? std::optional(rounded) : std::nullopt;
}

}  // namespace covey
