// The window of a trainer whose members do not all share memory: a look is a question, and its
// answer comes by a message, from members of the same host too. No look waits for it.
//
//   member   event                               after
//   -        Look                                asked: kAsk
//   asked    Look                                asked
//   asked    kAnswer                             come
//   come     Look with the same question, soon   -: the look has it
//   come     any other Look                      asked: kAsk
//   any      kClosed                             closed
//   any      the member is lost                  lost
//
// The thread that drives the process's runtime answers, and the trainer's thread whenever its
// window is even: a question for a model waits while that is being changed, or is not there yet. A
// question says which exchanges of models its rank has begun (train-T24).
//
// Any thread, but for ChannelPort's functions: the holder of the progress lock.
#ifndef COVEY_CORE_ENGINE_FAR_WINDOW_H_
#define COVEY_CORE_ENGINE_FAR_WINDOW_H_

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "core/base/clock.h"
#include "core/engine/far_look.h"
#include "core/engine/trainer_window.h"
#include "core/replicated/channel_mux.h"
#include "core/transport/private_atomics.h"

namespace covey {

// The words of this rank's window, which no other member reads.
class FarWindowMemory {
 protected:
  PrivateAtomics words_;
  uint64_t block_[TrainerWindow::kOwnBytes / sizeof(uint64_t)] = {};
};

class FarWindow final : private FarWindowMemory, public TrainerWindow, public ChannelPort {
 public:
  struct Options {
    const Group* group = nullptr;      // outlives the window
    uint64_t channel = 0;              // of this rank
    std::function<void()> kick;        // the runtime is to come soon
    Clock* clock = nullptr;            // outlives the window
    const std::byte* model = nullptr;  // null: there is none to be seen
    bool is_copy = false;              // it is trained elsewhere
    size_t length_bytes = 0;           // of each member's model
    int64_t version = 0;
  };
  // An answer that has come is shown to a look so long after the one before.
  static constexpr Time kKept = 2 * kSecond;

  explicit FarWindow(Options options);

  bool IsFar() const override { return true; }
  uint64_t place() const override { return options_.channel; }
  // The channel is that of the first member.
  void Meet(std::vector<uint64_t> channels) override { channel_ = channels.front(); }
  void Join(ChannelMux* box) override { box->Open(channel_, options_.group, this); }
  void Part(ChannelMux* box) override { box->Close(channel_); }
  void AddRounds(int64_t part, Published published) override;
  void DropRounds(int64_t part) override;

  WindowState Look(int32_t member, std::span<std::byte> model, int64_t* version) override;
  // The model that it has published last in those rounds.
  WindowState LookAtPublished(int32_t member, int64_t part, std::span<std::byte> model,
                              FarAnswer* seen);
  void Want(int32_t) override {}
  bool IsBehind(int32_t) override { return false; }
  void Leave() override;
  bool HaveAllLeft() override;

  size_t LongestMessageBytes() override { return FarLook::kHeadBytes + options_.length_bytes; }
  void OnMessage(int32_t from, Slice message, Time now) override;
  void OnLoss(int32_t member) override;
  Pass Advance(Time now, bool is_sent) override;

 private:
  struct Member {
    bool is_closed = false, is_lost = false;
    bool is_asked = false, has_come = false;
    FarQuestion question;  // that it was asked last
    FarAnswer answer;
    Bytes model;  // of the answer
    Time looked_at = 0;
    std::optional<FarQuestion> asks;  // not answered yet
  };

  std::unique_lock<std::mutex> Hold() override { return std::unique_lock(mutex_); }
  void OnEven() override;
  Member& At(int32_t member) { return members_[static_cast<size_t>(member)]; }
  void Ask(int32_t member, const FarQuestion& question, std::span<std::byte> model,
           FarAnswer* seen);
  bool AnswerAll();
  bool Answer(int32_t member);
  bool See(const FarQuestion& question, std::span<std::byte> model, FarAnswer* seen);
  bool SeePublished(const FarQuestion& question, std::span<std::byte> model, FarAnswer* seen);
  void Send(int32_t to, const FarLook& look, CountedBytes model = {});
  void Stir() { options_.kick(); }

  const Options options_;
  uint64_t channel_ = 0;

  std::mutex mutex_;
  // Protected by mutex_.
  std::vector<Member> members_;
  std::map<int64_t, Published> published_;
  std::vector<EncodedMessage> messages_;
  bool has_left_ = false;
};

}  // namespace covey
#endif  // COVEY_CORE_ENGINE_FAR_WINDOW_H_
