// Those that connect to this rank's port and have not proved yet that they are of the job.
//
//   accepted -> silent -> (a whole greeting with the key's name) -> waiting -> shaking -> known
//            -> closed without a word: another greeting, kPatience over, crowded out
//
// A greeting with the name comes from a rank, or from someone who has listened to one; only it
// reaches OpenSSL. So a stranger costs a descriptor and kGreeting bytes, for a moment.
//
// Invariants:
//  1. At most kPlaces are here, each for kPatience at most.
//  2. Connections are accepted at kArrivals' pace, and begin to shake hands at kShakes', which
//     bounds the engine's time for a flood of strangers, and of repeated greetings.
//  3. When all places are taken, a newcomer gets that of one that has shown less: a silent one,
//     else a waiting one, else a shaking one; of these the oldest of the address with most places.
//
// One thread. Nothing blocks.
#ifndef COVEY_OPS_TRANSPORTS_TCP_DOOR_H_
#define COVEY_OPS_TRANSPORTS_TCP_DOOR_H_

#include <array>
#include <memory>
#include <string>

#include "ops/transports/tcp/handshake.h"
#include "ops/transports/tcp/poller.h"

namespace covey::tcp {

// One each `interval`, and `burst` at once after a pause.
class Pace {
 public:
  Pace(Time interval, int burst) : interval_(interval), span_(interval * burst) {}
  bool Take(Time now);
  Time next() const { return next_; }

 private:
  Time interval_, span_;
  Time next_ = 0;
};

class Door {
 public:
  static constexpr size_t kPlaces = 64;
  static constexpr size_t kGreeting = 1024;
  static constexpr Time kPatience = 2 * kSecond;
  static constexpr Time kBreath = 50 * kMillisecond;  // when there are no descriptors

  // Owns `listener`. Adds keys from `first_key` on to the poller. Both outlive it.
  Door(int listener, const Terms& terms, Poller* poller, uint64_t first_key);
  ~Door();
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  static constexpr uint64_t kKeys = kPlaces + 1;
  // Something has come for this key. Not null: a peer that is known, which the caller may Agree
  // with; the poller does not watch it.
  std::unique_ptr<Handshake> Serve(uint64_t key, Time now);
  // Ends those whose patience is over, and goes on with what had to wait.
  void Tick(Time now);
  // When Tick has something to do; kNever: not by time.
  Time Next() const;
  // All that were expected have come: later connections wait, unheard, for the next link or until
  // the door is open again, as it is at first.
  void Shut();
  void Open();
  size_t size() const;

 private:
  enum class Stage { kSilent, kWaiting, kShaking };
  struct Guest {
    Socket socket;  // until it shakes hands
    std::string address;
    Time since = 0;
    Stage stage = Stage::kSilent;
    std::array<std::byte, kGreeting> greeting;
    size_t heard = 0;
    std::unique_ptr<Handshake> handshake;
  };
  void Accept(Time now);
  void Seat(int fd, const std::string& address, Time now);
  size_t Victim() const;
  void Dismiss(size_t place);
  bool Hear(Guest* guest);
  void Pause(Time until);

  const Terms& terms_;
  Poller* const poller_;
  const uint64_t first_key_;
  int listener_;
  bool is_open_ = false;
  bool listens_ = false;  // the poller watches the listener
  Time again_ = kNever;   // when it does again
  Pace arrivals_, shakes_;
  std::array<std::unique_ptr<Guest>, kPlaces> guests_;
};

}  // namespace covey::tcp
#endif  // COVEY_OPS_TRANSPORTS_TCP_DOOR_H_
