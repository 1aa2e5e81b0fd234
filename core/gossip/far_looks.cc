#include "core/gossip/far_looks.h"

#include <utility>

namespace covey {

bool FarLooks::Look(int32_t member, Time now, Model* model, bool* asks) {
  Member& seen = At(member);
  // gossip-P16: an answer that has come after its look was given up may be of long ago.
  const bool is_fresh = now - std::exchange(seen.looked_at, now) <= kKept;
  const bool is_there = std::exchange(seen.has_come, false) && is_fresh;
  if (is_there) *model = std::move(seen.model);
  // gossip-P16: one question at a time: a rank that is stopped costs this one a message.
  *asks = !is_there && !std::exchange(seen.is_asked, true);
  return is_there;
}

bool FarLooks::OnModel(int32_t from, const FarMessage& answer) {
  Member& seen = At(from);
  const size_t length_bytes = answer.body.size();
  if (!seen.is_asked || (length_bytes > 0 && length_bytes != length_bytes_)) return false;
  seen.is_asked = false;
  seen.has_come = length_bytes > 0;
  seen.model = {answer.epoch, answer.number, {answer.body.begin(), answer.body.end()}};
  return true;
}

}  // namespace covey
