#include "core/api/c_api_pairs_open.h"

#include <algorithm>

#include "core/api/c_api.h"
#include "core/api/c_api_methods.h"
#include "core/api/session.h"
#include "core/base/clock.h"
#include "core/base/codec_descriptor.h"
#include "core/gossip/gossip_port.h"
#include "core/gossip/hosts_port.h"
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
  if (use->transport().AnyThread()) return Status::Ok();
  return Status::Unsupported(
      "the method " + *full +
      " needs a network that Covey's own thread may use, and MPI was initialised for one thread "
      "alone: initialise it with MPI_THREAD_SERIALIZED or MULTIPLE, or leave it to Covey");
}

Status CheckIsCodable(const SpanList& spans, const std::string& method) {
  const auto* end = spans.dtypes + spans.count;
  if (std::find(spans.dtypes, end, COVEY_FLOAT32) != end) return Status::Ok();
  return NothingToEncode(method);
}

PairsPort::Bundle BundleOf(const Use& use, const PairsConfig& config, const Group& group,
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

Status CheckMemory(const Use& use, const std::string& what, size_t length_bytes) {
  const size_t limit_bytes = use->config().memory_limit;
  if (limit_bytes == 0 || length_bytes <= limit_bytes) return Status::Ok();
  return Status::Exhausted(what + " take " + std::to_string(length_bytes) +
                           " bytes of each rank, and memory_limit is " +
                           std::to_string(limit_bytes) + ": raise COVEY_MEMORY_LIMIT");
}

// All members share memory.
Status OpenOnHost(const Use& use, covey_runtime* runtime, const PairsPort::Bundle& bundle,
                  const Group* group, Proposal mine, OpenedPairs* opened) {
  const std::string what = "pairs '" + bundle.name + "'";
  auto port = std::make_unique<GossipPort>(bundle, group, &use->transport());
  mine.has_block = true;
  mine.enough = CheckMemory(use, what, port->BlockBytes());
  if (mine.enough.ok()) mine.offset = use->AllocBlock(port->BlockBytes());
  std::vector<uint64_t> offsets;
  RETURN_IF_ERROR(Agree(use, runtime, mine, &offsets));
  port->Open(offsets);
  opened->pairs = use->pairs().Keep(std::move(port), MonotonicNow());
  return Status::Ok();
}

// They lie on several hosts, or share none.
Status OpenOverHosts(const Use& use, covey_runtime* runtime, const PairsPort::Bundle& bundle,
                     const Group* group, Proposal mine, OpenedPairs* opened) {
  auto port = std::make_unique<HostsPort>(bundle, group, &use->transport(), use->Driver());
  std::unique_ptr<RoundsPort> mean =
      use->NewRounds(HostsPort::RoundsOf(bundle, group->size()), group);
  // Alike on all: any may come to lead the version of the mean.
  mine.enough = CheckMemory(use, "pairs '" + bundle.name + "'",
                            port->BlockBytes() + mean->MemberBytes().front());
  mine.has_block = port->HasBlock();
  if (!mine.has_block)
    mine.offset = 0;
  else if (mine.enough.ok())
    mine.offset = use->AllocBlock(port->BlockBytes());
  std::vector<uint64_t> offsets, channels, of_mean;
  RETURN_IF_ERROR(Agree(use, runtime, mine, &offsets));
  mine.has_block = false;
  mine.kind = "pairs.offers";
  mine.offset = use->NewChannel();
  RETURN_IF_ERROR(Agree(use, runtime, mine, &channels));
  mine.kind = "pairs.mean";
  // replicated-W22: all members give the half vote to the same one.
  if (use->config().witness_fd >= 0) mine.text += ", with a witness";
  mine.offset = use->NewChannel();
  RETURN_IF_ERROR(Agree(use, runtime, mine, &of_mean));
  mean->Open(of_mean);
  port->Open(offsets, channels[0], mean.get());
  use->WithChannels([&](ChannelMux* box) {
    mean->Join(box);
    port->Join(box);
  });
  opened->mean = use->rounds().Keep(std::move(mean), MonotonicNow());
  opened->pairs = use->pairs().Keep(std::move(port), MonotonicNow());
  return Status::Ok();
}

}  // namespace

Status OpenPairs(const Use& use, covey_runtime* runtime, const PairsConfig& config,
                 OpenedPairs* opened) {
  const Group* group = nullptr;
  RETURN_IF_ERROR(FindOwnGroup(use, config.group, &group));
  Proposal mine{.kind = "pairs", .name = config.name.c_str(), .group = config.group};
  Rules rules;
  RETURN_IF_ERROR(MethodOf(use, config.method, config.from, *group, &mine.text, &rules));
  if (rules.codec.Codes()) RETURN_IF_ERROR(CheckIsCodable(config.spans, mine.text));
  mine.text = "method " + mine.text + ", " + TextOf(config.spans);
  const PairsPort::Bundle bundle = BundleOf(use, config, *group, rules);
  const bool is_shared = use->transport().words() != nullptr;
  return (is_shared ? OpenOnHost : OpenOverHosts)(use, runtime, bundle, group, mine, opened);
}

}  // namespace covey
