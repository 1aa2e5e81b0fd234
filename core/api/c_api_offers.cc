#include "core/api/c_api_offers.h"

#include <cstring>

#include "core/api/session.h"

namespace covey {
namespace {

constexpr size_t kShardBytes = 256 * 1024;  // of a sum: so a few slots fit a core's cache, too

// A member's proposal as it travels.
struct BlockOffer {
  uint64_t offset = Transport::kNoOffset;
  std::string text;
};

// Those of every member, by index, under `name`. Blocks.
Status Gather(covey_runtime* runtime, covey_group group, const std::string& name,
              const BlockOffer& mine, std::vector<BlockOffer>* offers) {
  std::string bytes(sizeof(mine.offset), '\0');
  std::memcpy(bytes.data(), &mine.offset, sizeof(mine.offset));
  bytes += mine.text;
  const auto length = static_cast<int64_t>(bytes.size());
  covey_tensor tensor = COVEY_INIT(covey_tensor);
  tensor.dtype = COVEY_UINT8;
  tensor.ndim = 1;
  tensor.shape = &length;
  tensor.data = bytes.data();
  covey_request request = COVEY_INIT(covey_request);
  request.kind = COVEY_ALLGATHER;
  request.group = group;
  request.name = name.c_str();
  request.num_tensors = 1;
  request.inputs = &tensor;
  request.waits = 1;
  covey_handle handle = 0;
  covey_error error = COVEY_INIT(covey_error);
  std::vector<int64_t> rows(offers->size());
  covey_tensor all = COVEY_INIT(covey_tensor);
  covey_code code = covey_submit(runtime, &request, &handle, &error);
  if (code == COVEY_OK) code = covey_wait(runtime, handle, -1, &error);
  if (code == COVEY_OK) code = covey_result(runtime, handle, 0, &all, rows.data(), &error);
  const char* at = static_cast<const char*>(all.data);
  for (size_t i = 0; code == COVEY_OK && i < offers->size(); ++i) {
    BlockOffer* offer = &(*offers)[i];
    std::memcpy(&offer->offset, at, sizeof(offer->offset));
    offer->text.assign(at + sizeof(offer->offset), at + rows[i]);
    at += rows[i];
  }
  if (handle != 0) covey_release(runtime, handle);
  if (code == COVEY_OK) return Status::Ok();
  return {static_cast<StatusCode>(code), error.message, Rank{error.peer_rank}};
}

// Alike on all members: whether they agree. `what`: "rounds 'NAME'".
Status Judge(const Group& group, const std::string& what, const std::vector<BlockOffer>& offers,
             const Status& enough) {
  const auto rank = [&](size_t i) { return "rank " + std::to_string(ToInt(group.members[i])); };
  for (size_t i = 1; i < offers.size(); ++i)
    if (offers[i].text != offers[0].text)
      return Status::Mismatch(what + " differ: " + rank(0) + " has " + offers[0].text + "; " +
                              rank(i) + " has " + offers[i].text);
  RETURN_IF_ERROR(enough);
  for (size_t i = 0; i < offers.size(); ++i)
    if (offers[i].offset == Transport::kNoOffset)
      return Status::Exhausted(what + ": the arena of " + rank(i) +
                                   " has no room for them; raise COVEY_ARENA_BYTES or lower log=",
                               group.members[i]);
  return Status::Ok();
}

}  // namespace

Status CheckSpans(const char* what, const SpanList& spans) {
  const auto wrong = [&](const std::string& how) {
    return Status::InvalidArgument(std::string(what) + ": " + how);
  };
  if (spans.count < 1 || spans.dtypes == nullptr || spans.counts == nullptr)
    return wrong("there is no span");
  for (int32_t i = 0; i < spans.count; ++i) {
    const auto dtype = static_cast<int>(spans.dtypes[i]);
    if (dtype < 0 || dtype >= kNumDTypes || dtype == static_cast<int>(DType::kBool))
      return wrong("span " + std::to_string(i) + " has no dtype that can be summed");
    if (spans.counts[i] < 0)
      return wrong("span " + std::to_string(i) + " has " + std::to_string(spans.counts[i]) +
                   " elements");
  }
  const int64_t* end = spans.counts + spans.count;
  if (std::all_of(spans.counts, end, [](int64_t count) { return count == 0; }))
    return wrong("no span has an element");
  return Status::Ok();
}

std::string TextOf(const SpanList& spans) {
  std::string text = "spans";
  for (int32_t i = 0; i < spans.count; ++i)
    text += std::string(i > 0 ? ", " : " ") + NameOf(static_cast<DType>(spans.dtypes[i])) + "[" +
            std::to_string(spans.counts[i]) + "]";
  return text;
}

RoundLayout LayoutOf(const SpanList& spans) {
  std::vector<RoundSpan> all;
  for (int32_t i = 0; i < spans.count; ++i)
    all.push_back({static_cast<DType>(spans.dtypes[i]), static_cast<size_t>(spans.counts[i])});
  return {all, kShardBytes};
}

Status FindOwnGroup(const Use& use, covey_group number, const Group** group) {
  *group = use->FindGroup(number);
  if (*group != nullptr && ToInt((*group)->my_index) >= 0) return Status::Ok();
  return Status::InvalidArgument("there is no such group, or this rank is not in it");
}

Status Agree(const Use& use, covey_runtime* runtime, const Proposal& mine,
             std::vector<uint64_t>* offsets) {
  const Group* group = nullptr;
  RETURN_IF_ERROR(FindOwnGroup(use, mine.group, &group));
  std::vector<BlockOffer> offers(group->members.size());
  const std::string key = std::string("covey.") + mine.kind + "." + mine.name;
  // A failure here may be a success on other members, which then use this rank's block: it is kept.
  RETURN_IF_ERROR(Gather(runtime, mine.group, key, {mine.offset, mine.text}, &offers));
  const std::string what = std::string(mine.kind) + " '" + mine.name + "'";
  if (const Status judged = Judge(*group, what, offers, mine.enough); !judged.ok()) {
    if (mine.has_block && mine.offset != Transport::kNoOffset) use->FreeBlock(mine.offset);
    return judged;
  }
  for (const BlockOffer& offer : offers) offsets->push_back(offer.offset);
  return Status::Ok();
}

}  // namespace covey
