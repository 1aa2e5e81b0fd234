// One exchange under way on this rank: an occurrence of a stream between its begin and its end.
//
// Plain state of the Executor. Its life:
//   kAwaitReady  a device still computes an input, or what of it goes with the begin is on its way
//                to the host                               -> it is here: publish the begin header,
//                tick 1
//   kAwaitBegins some member has not begun                 -> all begun: void, or choose a schedule
//   kRunning     the cursor moves through the schedule     -> its end: done
//   kCommunicator  the devices do it among themselves (core/device/communicator_registry.h): the
//                phases below
//   kLeaving     aborted here, but peers or the device may still use this rank's memory
//                                                          -> none does: ended
//   kEnded       done, void or aborted; handed out through Executor::ended()
#ifndef COVEY_CORE_RUN_EXCHANGE_H_
#define COVEY_CORE_RUN_EXCHANGE_H_

#include <memory>
#include <vector>

#include "core/base/channel.h"
#include "core/base/kernels.h"
#include "core/base/neighbor_weights.h"
#include "core/base/spans.h"
#include "core/base/status.h"
#include "core/base/tensor.h"
#include "core/plan/schedule.h"
#include "core/run/codec.h"

namespace covey {

class DataPath;
class DeviceTransfers;
struct Transfer;

enum class ExchangeState : uint8_t {
  kAwaitReady,
  kAwaitBegins,
  kRunning,
  kCommunicator,
  kLeaving,
  kEnded
};
// Of kCommunicator, one tick each at their begin but for kLaunching: some turn is not known -> it
// is not this one's -> launched, but not in the device's hands -> the device has not done it ->
// done.
enum class CommunicatorPhase : uint8_t { kProposed, kSettled, kLaunching, kLaunched };
enum class Outcome : uint8_t { kDone, kVoid, kAborted };

struct Exchange {
  // The task, given at Begin.
  Request* request = nullptr;
  Channel* channel = nullptr;
  uint64_t occurrence = 0;
  uint32_t entry = 0;     // 0 = void
  uint32_t begun_as = 0;  // entry it was told to begin as; without a buffer void since then
  void* owner = nullptr;  // the object that began it, returned at its end

  ExchangeState state = ExchangeState::kAwaitReady;
  Outcome outcome = Outcome::kDone;
  Status why;  // kAborted

  // Resolved memory.
  std::vector<std::byte*> blocks;  // by group index
  Spans input;
  Spans output;
  Reduction reduction;
  const ChosenCodec* codec = nullptr;  // null: none
  // Null: the schedule works on user memory itself.
  DataPath* path = nullptr;
  // Of device tensors, null for others: input and output lie in a buffer of the host.
  DeviceTransfers* transfers = nullptr;
  Transfer* transfer = nullptr;
  // Input and output lie in a buffer on the device, or would if there were one (device_staging.cc).
  bool by_ipc = false;
  uint64_t reduced_mark = 0;  // of what the device reduces for it; 0: nothing
  // Of device tensors: what the begin header says, and whether it was begun for a communicator.
  uint64_t communicator_word = 0;
  bool for_communicator = false;

  // Progress.
  const Schedule* schedule = nullptr;
  std::unique_ptr<Schedule> own_schedule;  // of what is gathered: not worth caching
  size_t cursor = 0;
  size_t next_peer = 0;  // the members before it satisfy the wait at the cursor
  Time begun_at = 0;     // published
  Time all_begun_at = 0;
  Time warned_at = 0;  // last stall report
  size_t moved_bytes = 0;
  bool shares_memory = true;  // the members' regions are one memory; else each mirrors the others'
  CommunicatorPhase phase = CommunicatorPhase::kProposed;
  uint64_t launch_mark = 0;
  Time failed_at = 0;      // the communicator did; 0: it has not
  bool streaming = false;  // as the channel was at its begin
  bool repeats = false;    // it has ended, and may be carried out again (repeat.cc)
  Time busy_since = 0;     // where the first member learns how long an exchange takes:
  Time busy = 0;           // its own begin, and from the last begin on

  Cell* CellOf(size_t index) const { return reinterpret_cast<Cell*>(blocks[index]); }
  std::byte* Slot(size_t index, uint32_t slot) const {
    return blocks[index] + SlotsOffset(size()) +
           (channel->slots + slot) % channel->depth * channel->slot_bytes;
  }
  // Rows that member `index` sends to each member (alltoall), or its peers.
  uint64_t* TableOf(size_t index) const {
    return reinterpret_cast<uint64_t*>(blocks[index] + TableOffset(Turn(), size()));
  }
  PeerTable PeersOf(size_t index) const { return {TableOf(index), TableWords(size())}; }
  // Which of the two begins, placements and tables of a block is this exchange's.
  size_t Turn() const { return channel->exchanges % 2; }
  size_t Me() const { return static_cast<size_t>(ToInt(request->group->my_index)); }
  size_t size() const { return blocks.size(); }
};

}  // namespace covey
#endif  // COVEY_CORE_RUN_EXCHANGE_H_
