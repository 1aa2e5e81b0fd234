// Opening rounds: the request is checked, and agreed between the members.
#include <algorithm>
#include <numeric>

#include "core/api/admission_rule.h"
#include "core/api/c_api_methods.h"
#include "core/api/c_api_offers.h"
#include "core/api/c_api_rounds.h"
#include "core/api/session.h"
#include "core/method/method.h"

namespace covey {
namespace {

constexpr int32_t kMostHypers = 4096;
// Results that are kept by default.
constexpr size_t kAutoLogBytes = size_t{64} << 20;
constexpr size_t kLeastAutoLog = 4, kMostAutoLog = 16;

Status CheckConfig(const covey_rounds_config& config) {
  const auto wrong = [](const std::string& what) {
    return Status::InvalidArgument("rounds: " + what);
  };
  if (config.name == nullptr || config.name[0] == '\0') return wrong("they need a name");
  if (config.op != COVEY_SUM && config.op != COVEY_AVERAGE)
    return wrong("op is COVEY_SUM or COVEY_AVERAGE");
  RETURN_IF_ERROR(CheckSpans("rounds", {config.num_spans, config.dtypes, config.counts}));
  if (config.begin < 0) return wrong("begin is negative");
  if (config.num_hypers < 0 || config.num_hypers > kMostHypers)
    return wrong("num_hypers is " + std::to_string(config.num_hypers) + ", which is not 0 to " +
                 std::to_string(kMostHypers));
  return Status::Ok();
}

Status MethodOf(const Use& use, const covey_rounds_config& config, const Group& group,
                std::string* full, MethodPlan* found) {
  const MethodChoice& choice = ChoiceOf(use, config.method);
  const MethodPlan plan = *found = choice.Plan(ViewOf(group), config.begin);
  *full = choice.Text();
  if (config.begin > 0) *full += " from version " + std::to_string(config.begin) + " on";
  if (plan.admission != Admission::kRounds)
    return Status::InvalidArgument("the method " + *full + " has no rounds: it exchanges with all");
  if (const Status fits = CheckSize(plan.rounds, group.size()); !fits.ok())
    return Status::InvalidArgument("the method " + *full + " " + fits.message());
  return Status::Ok();
}

// One line that says everything that must agree.
std::string Describe(const covey_rounds_config& config, const std::string& method) {
  return "method " + method + ", op " + NameOf(static_cast<Op>(config.op)) + ", " +
         std::to_string(config.num_hypers) + " hyper-parameters, " +
         TextOf({config.num_spans, config.dtypes, config.counts});
}

// Whether ranks that share no memory can do it.
Status CheckNetwork(const Use& use, const std::string& method) {
  if (!use->transport().AnyThread())
    return Status::Unsupported(
        "the method " + method +
        " needs a network that Covey's own thread may use, and MPI was initialised for one thread "
        "alone: initialise it with MPI_THREAD_SERIALIZED or MULTIPLE, or leave it to Covey");
  return Status::Ok();
}

// partial-W15: alike on all members: they agree on the shape, or are refused for that.
Status CheckMemory(const RoundsPort& port, size_t limit_bytes, const std::string& name) {
  const std::vector<size_t> lengths = port.MemberBytes();
  const auto most = std::max_element(lengths.begin(), lengths.end());
  if (limit_bytes == 0 || *most <= limit_bytes) return Status::Ok();
  const size_t all_bytes = std::accumulate(lengths.begin(), lengths.end(), size_t{0});
  const Rank rank = port.group().members[static_cast<size_t>(most - lengths.begin())];
  return Status::Exhausted("rounds '" + name + "' take " + std::to_string(*most) +
                           " bytes of rank " + std::to_string(ToInt(rank)) + " (" +
                           std::to_string(all_bytes) + " of all together), and memory_limit is " +
                           std::to_string(limit_bytes) +
                           ": lower log=, or raise COVEY_MEMORY_LIMIT");
}

int32_t LogOf(const MethodRounds& rounds, const RoundLayout& layout) {
  if (rounds.log != kAuto) return static_cast<int32_t>(rounds.log);
  const size_t fit = kAutoLogBytes / std::max<size_t>(layout.length_bytes(), 1);
  return static_cast<int32_t>(std::clamp(fit, kLeastAutoLog, kMostAutoLog));
}

RoundsPort::Bundle BundleOf(const Use& use, const covey_rounds_config& config, const Group& group,
                            const MethodPlan& plan) {
  const MethodRounds& rounds = plan.rounds;
  const RoundLayout layout = LayoutOf({config.num_spans, config.dtypes, config.counts});
  const AdmissionRule admission = RuleOf(rounds);
  return {.name = config.name,
          .shape = {.size = group.size(),
                    .log = LogOf(rounds, layout),
                    .hypers = config.num_hypers,
                    .models = {.group_size = static_cast<int32_t>(rounds.group_size),
                               .sync_every = static_cast<uint64_t>(rounds.sync_every),
                               .ending = static_cast<uint64_t>(rounds.ending),
                               .hosts = group.hosts,
                               .cross_every = rounds.cross_every,
                               .has_deltas = plan.payload == Payload::kDelta}},
          .layout = layout,
          .options = {.self = ToInt(group.my_index),
                      .admission = admission,
                      .max_wait = rounds.max_wait.time,  // 0: auto
                      .skips_ahead = rounds.skips_ahead,
                      .average = config.op == COVEY_AVERAGE,
                      .kernels = &BestKernels()},
          .waiting = use->waiting()};
}

}  // namespace

Status OpenRounds(const Use& use, covey_runtime* runtime, const covey_rounds_config* config,
                  covey_rounds* number) {
  if (config == nullptr || number == nullptr || config->struct_size != sizeof(*config))
    return Status::InvalidArgument(
        "config or rounds is NULL, or struct_size is not that of covey_rounds_config");
  if (use.get() == nullptr) return use.status();
  RETURN_IF_ERROR(CheckConfig(*config));
  const Group* group = nullptr;
  RETURN_IF_ERROR(FindOwnGroup(use, config->group, &group));
  Proposal mine{.kind = "rounds", .name = config->name, .group = config->group};
  MethodPlan plan;
  RETURN_IF_ERROR(MethodOf(use, *config, *group, &mine.text, &plan));
  const bool is_shared = use->transport().words() != nullptr;
  if (!is_shared) RETURN_IF_ERROR(CheckNetwork(use, mine.text));
  if (plan.rounds.group_size > 0 && config->op != COVEY_AVERAGE)
    return Status::InvalidArgument("rounds: the method " + mine.text +
                                   " averages models: op is COVEY_AVERAGE");
  mine.text = Describe(*config, mine.text);
  // replicated-W22: all members give the half vote to the same one.
  if (!is_shared && use->config().witness_fd >= 0) mine.text += ", with a witness";
  std::unique_ptr<RoundsPort> port = use->NewRounds(BundleOf(use, *config, *group, plan), group);
  mine.has_block = is_shared;
  mine.enough = CheckMemory(*port, use->config().memory_limit, config->name);
  if (mine.enough.ok())
    mine.offset = is_shared ? use->AllocBlock(port->BlockBytes()) : use->NewChannel();
  std::vector<uint64_t> offsets;
  RETURN_IF_ERROR(Agree(use, runtime, mine, &offsets));
  port->Open(offsets);
  use->WithChannels([&](ChannelMux* box) { port->Join(box); });
  *number = use->rounds().Keep(std::move(port), MonotonicNow());
  return Status::Ok();
}

}  // namespace covey

using covey::OrDefault;
using covey::Report;
using covey::Use;

extern "C" {

covey_code covey_rounds_open(covey_runtime* runtime, const covey_rounds_config* config,
                             covey_rounds* rounds, covey_error* error) {
  const Use use(OrDefault(runtime));
  return Report(covey::OpenRounds(use, runtime, config, rounds), error);
}

}  // extern "C"
