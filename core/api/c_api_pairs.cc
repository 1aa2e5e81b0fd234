// The C API over core/gossip/gossip_port.h: checks, translates, and agrees on what is opened.
#include "core/api/c_api_pairs.h"

#include <algorithm>

#include "core/api/c_api.h"
#include "core/api/c_api_methods.h"
#include "core/api/c_api_offers.h"
#include "core/api/covey_pairs.h"
#include "core/api/runtime_handle.h"
#include "core/api/session.h"
#include "core/base/clock.h"
#include "core/base/codec_descriptor.h"
#include "core/method/method.h"

namespace covey {
namespace {

Status NoneOf(const Use& use) {
  if (use.get() == nullptr) return use.status();
  return Status::InvalidArgument("there are no such pairs, or they were closed");
}

// Null: NoneOf says why.
GossipPort* FindPairs(const Use& use, covey_pairs number) {
  return use.get() == nullptr ? nullptr : use->pairs().Find(number);
}

size_t SpansOf(const GossipPort& port) { return port.layout().offsets_bytes().size(); }

Status CheckModel(size_t count, const void* const* spans) {
  const bool complete =
      spans != nullptr && std::none_of(spans, spans + count, [](const void* at) { return !at; });
  if (complete) return Status::Ok();
  return Status::InvalidArgument("pairs: spans is NULL, or one of them is");
}

// The part of a method that pairs need.
struct Rules {
  MethodPairs pairs;
  PairCodec codec;
};

Status MethodOf(const Use& use, const covey_method* method, int64_t from, const Group& group,
                std::string* full, Rules* rules) {
  const MethodChoice& choice = ChoiceOf(use, method);
  MethodPairs* pairs = &rules->pairs;
  const MethodPlan plan = choice.Plan({.size = group.size(), .rank = group.my_index}, from);
  *full = choice.Text();
  *pairs = plan.pairs;
  if (plan.admission != Admission::kPairs)
    return Status::InvalidArgument("the method " + *full + " does not average models in pairs");
  if (const Status known = CheckPairs({.kind = pairs->topology, .size = group.size()}); !known.ok())
    return Status::InvalidArgument("the method " + *full + ": " + known.message());
  if (const std::string& codec = choice.At(from).codec; !codec.empty()) {
    CodecText read;
    RETURN_IF_ERROR(ReadCodecText(codec, CodecUse::kPairs, &read));
    rules->codec = {.codec = FindReferenceCodec(read.name), .values = read.values};
    if (rules->codec.codec == nullptr) RETURN_IF_ERROR(ParseCodec(read.text, &rules->codec.alone));
  }
  if (use->transport().words() != nullptr) return Status::Ok();
  return Status::Unsupported(
      "the method " + *full +
      " needs ranks that share memory: all on one host, started by coveyrun (shm). Over a network "
      "there are the methods eager, dpsgd, local and allreduce");
}

Status CheckIsCodable(const covey_pairs_config& config, const std::string& method) {
  const auto* end = config.dtypes + config.num_spans;
  if (std::find(config.dtypes, end, COVEY_FLOAT32) != end) return Status::Ok();
  return NothingToEncode(method);
}

GossipPort::Bundle BundleOf(const Use& use, const covey_pairs_config& config, const Group& group,
                            const Rules& rules) {
  const MethodPairs& pairs = rules.pairs;
  return {.name = config.name,
          .layout = LayoutOf({config.num_spans, config.dtypes, config.counts}),
          .self = ToInt(group.my_index),
          .rule = {.topology = {.kind = pairs.topology, .size = group.size(), .seed = pairs.seed},
                   .all_begin = pairs.all_begin,
                   .local_steps = pairs.local_steps,
                   .is_random = pairs.is_random,
                   .non_blocking = pairs.non_blocking},
          .codec = rules.codec,
          .max_wait = pairs.max_wait.time,
          .longest_sleep = use->waiting().longest_sleep,
          .kernels = &BestKernels()};
}

Status Open(const Use& use, covey_runtime* runtime, const covey_pairs_config* config,
            const void* const* spans, covey_pairs* number) {
  const bool is_known = config != nullptr && config->struct_size == sizeof(*config);
  if (is_known && config->num_spans > 0)
    RETURN_IF_ERROR(CheckModel(static_cast<size_t>(config->num_spans), spans));
  RETURN_IF_ERROR(OpenPairs(use, runtime, config, 0, number));
  GossipPort* port = use->pairs().Find(*number);
  port->Begin({spans, SpansOf(*port)});
  return Status::Ok();
}

Status StepOf(GossipPort* port, void* const* spans, covey_pairs_met* met) {
  if (met != nullptr && met->struct_size != sizeof(*met))
    return Status::InvalidArgument("struct_size is not that of covey_pairs_met");
  RETURN_IF_ERROR(CheckModel(SpansOf(*port), spans));
  const GossipPort::Met known = port->Step({spans, SpansOf(*port)});
  if (met == nullptr) return Status::Ok();
  const auto& members = port->group().members;
  met->partner = known.partner < 0 ? -1 : ToInt(members[static_cast<size_t>(known.partner)]);
  met->merged = known.merged ? 1 : 0;
  return Status::Ok();
}

Status LookAt(GossipPort* port, int32_t rank, void* const* spans, int32_t* whole) {
  RETURN_IF_ERROR(CheckModel(SpansOf(*port), spans));
  const auto& members = port->group().members;
  const auto found = std::find(members.begin(), members.end(), Rank{rank});
  if (found == members.end())
    return Status::InvalidArgument("pairs: rank " + std::to_string(rank) +
                                   " is not a member of their group");
  const bool is_whole =
      port->Peek(static_cast<int32_t>(found - members.begin()), {spans, SpansOf(*port)});
  if (whole != nullptr) *whole = is_whole ? 1 : 0;
  return Status::Ok();
}

// Finish, or Settle.
struct Epoch {
  void* const* spans;
  int64_t timeout_ns;
  Status (GossipPort::*end)(std::span<void* const> model, Time deadline);
};

Status EndEpoch(const Use& use, covey_pairs number, const Epoch& of) {
  GossipPort* port = FindPairs(use, number);
  if (port == nullptr) return NoneOf(use);
  RETURN_IF_ERROR(CheckModel(SpansOf(*port), of.spans));
  const Time deadline = of.timeout_ns < 0 ? kNever : MonotonicNow() + of.timeout_ns;
  return (port->*of.end)({of.spans, SpansOf(*port)}, deadline);
}

}  // namespace

Status OpenPairs(const Use& use, covey_runtime* runtime, const covey_pairs_config* config,
                 int64_t from, covey_pairs* number) {
  if (config == nullptr || number == nullptr || config->struct_size != sizeof(*config))
    return Status::InvalidArgument(
        "config or pairs is NULL, or struct_size is not that of covey_pairs_config");
  if (use.get() == nullptr) return use.status();
  if (config->name == nullptr || config->name[0] == '\0')
    return Status::InvalidArgument("pairs: they need a name");
  RETURN_IF_ERROR(CheckSpans("pairs", {config->num_spans, config->dtypes, config->counts}));
  const Group* group = nullptr;
  RETURN_IF_ERROR(FindOwnGroup(use, config->group, &group));
  Proposal mine{.kind = "pairs", .name = config->name, .group = config->group, .has_block = true};
  Rules rules;
  RETURN_IF_ERROR(MethodOf(use, config->method, from, *group, &mine.text, &rules));
  if (rules.codec.Codes()) RETURN_IF_ERROR(CheckIsCodable(*config, mine.text));
  mine.text =
      "method " + mine.text + ", " + TextOf({config->num_spans, config->dtypes, config->counts});
  auto port =
      std::make_unique<GossipPort>(BundleOf(use, *config, *group, rules), group, &use->transport());
  const std::string what = std::string("pairs '") + config->name + "'";
  const size_t limit_bytes = use->config().memory_limit;
  mine.enough = limit_bytes == 0 || port->BlockBytes() <= limit_bytes
                    ? Status::Ok()
                    : Status::Exhausted(what + " take " + std::to_string(port->BlockBytes()) +
                                        " bytes of each rank, and memory_limit is " +
                                        std::to_string(limit_bytes) + ": raise COVEY_MEMORY_LIMIT");
  if (mine.enough.ok()) mine.offset = use->AllocBlock(port->BlockBytes());
  std::vector<uint64_t> offsets;
  RETURN_IF_ERROR(Agree(use, runtime, mine, &offsets));
  port->Open(offsets);
  *number = use->pairs().Keep(std::move(port), MonotonicNow());
  return Status::Ok();
}

}  // namespace covey

using covey::GossipPort;
using covey::OrDefault;
using covey::Report;
using covey::Use;

extern "C" {

covey_code covey_pairs_open(covey_runtime* runtime, const covey_pairs_config* config,
                            const void* const* spans, covey_pairs* pairs, covey_error* error) {
  const Use use(OrDefault(runtime));
  return Report(covey::Open(use, runtime, config, spans, pairs), error);
}

covey_code covey_pairs_step(covey_runtime* runtime, covey_pairs pairs, void* const* spans,
                            covey_pairs_met* met, covey_error* error) {
  const Use use(OrDefault(runtime));
  GossipPort* port = covey::FindPairs(use, pairs);
  if (port == nullptr) return Report(covey::NoneOf(use), error);
  return Report(covey::StepOf(port, spans, met), error);
}

covey_code covey_pairs_look(covey_runtime* runtime, covey_pairs pairs, int32_t rank,
                            void* const* spans, int32_t* whole, covey_error* error) {
  const Use use(OrDefault(runtime));
  GossipPort* port = covey::FindPairs(use, pairs);
  if (port == nullptr) return Report(covey::NoneOf(use), error);
  return Report(covey::LookAt(port, rank, spans, whole), error);
}

covey_code covey_pairs_finish(covey_runtime* runtime, covey_pairs pairs, void* const* spans,
                              int64_t timeout_ns, covey_error* error) {
  const Use use(OrDefault(runtime));
  return Report(covey::EndEpoch(use, pairs, {spans, timeout_ns, &GossipPort::Finish}), error);
}

covey_code covey_pairs_settle(covey_runtime* runtime, covey_pairs pairs, void* const* spans,
                              int64_t timeout_ns, covey_error* error) {
  const Use use(OrDefault(runtime));
  return Report(covey::EndEpoch(use, pairs, {spans, timeout_ns, &GossipPort::Settle}), error);
}

void covey_pairs_close(covey_runtime* runtime, covey_pairs pairs) {
  const Use use(OrDefault(runtime));
  if (use.get() != nullptr) use->pairs().Close(pairs);
}

}  // extern "C"
