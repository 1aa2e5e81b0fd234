#include "core/api/c_api_pairs_open.h"

#include <algorithm>

#include "core/api/c_api.h"
#include "core/api/c_api_methods.h"
#include "core/api/session.h"
#include "core/base/clock.h"
#include "core/base/codec_descriptor.h"
#include "core/method/method.h"

namespace covey {
namespace {

// The part of a method that pairs need.
struct Rules {
  MethodPairs pairs;
  PairCodec codec;
};

Status MethodOf(const Use& use, const covey_method* method, int64_t from, const Group& group,
                std::string* full, Rules* rules) {
  const MethodChoice& choice = ChoiceOf(use, method);
  MethodPairs* pairs = &rules->pairs;
  const MethodPlan plan = choice.Plan(ViewOf(group), from);
  *full = choice.Text();
  *pairs = plan.pairs;
  if (plan.admission != Admission::kPairs)
    return Status::InvalidArgument("the method " + *full + " does not average models in pairs");
  if (const Status known = CheckPairs(TopologyOf(*pairs, ViewOf(group))); !known.ok())
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

Status CheckIsCodable(const SpanList& spans, const std::string& method) {
  const auto* end = spans.dtypes + spans.count;
  if (std::find(spans.dtypes, end, COVEY_FLOAT32) != end) return Status::Ok();
  return NothingToEncode(method);
}

GossipPort::Bundle BundleOf(const Use& use, const PairsConfig& config, const Group& group,
                            const Rules& rules) {
  const MethodPairs& pairs = rules.pairs;
  return {.name = config.name,
          .layout = LayoutOf(config.spans),
          .self = ToInt(group.my_index),
          .rule = {.topology = TopologyOf(pairs, ViewOf(group)),
                   .all_begin = pairs.all_begin,
                   .local_steps = pairs.local_steps,
                   .is_random = pairs.is_random,
                   .non_blocking = pairs.non_blocking},
          .codec = rules.codec,
          .max_wait = pairs.max_wait.time,
          .longest_sleep = use->waiting().longest_sleep,
          .kernels = &BestKernels()};
}

}  // namespace

Status OpenPairs(const Use& use, covey_runtime* runtime, const PairsConfig& config,
                 uint64_t* number) {
  const Group* group = nullptr;
  RETURN_IF_ERROR(FindOwnGroup(use, config.group, &group));
  Proposal mine{
      .kind = "pairs", .name = config.name.c_str(), .group = config.group, .has_block = true};
  Rules rules;
  RETURN_IF_ERROR(MethodOf(use, config.method, config.from, *group, &mine.text, &rules));
  if (rules.codec.Codes()) RETURN_IF_ERROR(CheckIsCodable(config.spans, mine.text));
  mine.text = "method " + mine.text + ", " + TextOf(config.spans);
  auto port =
      std::make_unique<GossipPort>(BundleOf(use, config, *group, rules), group, &use->transport());
  const std::string what = "pairs '" + config.name + "'";
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
