// Which of those that connect to the rendezvous are heard, in which order, and how long.
//
//   Arrive -> waiting -> (a whole greeting) -> take: TLS -> Welcome: it holds the job's secret
//          -> closed by itself, kPatience over, not TLS, or crowded out: end
//
// A greeting (TLS's ClientHello) that holds the job's name (identity.h) comes from a client that
// has the secret, or has listened to one. Others are let into TLS seldom: they would be refused
// there, and learn why. So a flood of strangers costs a descriptor each, for a moment.
//
// Invariants:
//  1. At most kPlaces have not proved that they hold the secret; at most kNamed.most and
//     kStrangers.most of these are in TLS, each of which began kNamed.interval or
//     kStrangers.interval after another of its kind. A client that has proved it takes no place
//     here, and is never ended.
//  2. None stays for longer than kPatience.
//  3. A client that comes when all places are taken crowds out: a stranger that waits, else one
//     whose greeting is not whole, else a stranger in TLS, else one with the name that waits; of
//     these the oldest of the address that has most places. One in TLS with the name is not crowded
//     out.
//
// Pure: no socket, no clock, no lock. Connections are known by their descriptors.
#ifndef COVEY_OPS_CONTROL_ADMISSION_H_
#define COVEY_OPS_CONTROL_ADMISSION_H_

#include <array>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace covey {

// The bytes heard of a connection.
enum class Greeting { kPart, kRubbish, kStranger, kNamed };

// `bytes`: the first that it sent, kMostGreetingBytes at most; kPart: more is needed to tell.
inline constexpr size_t kMostGreetingBytes = 4096;
Greeting GreetingOf(std::string_view bytes, std::string_view name);

class Admission {
 public:
  struct Gate {
    size_t most;    // in TLS at once
    Time interval;  // from one to the next
  };
  static constexpr size_t kPlaces = 256;
  static constexpr Gate kNamed{64, kSecond / 300}, kStrangers{16, kSecond / 20};
  static constexpr Time kPatience = 2 * kSecond;
  // A greeting of which a part is there is looked at again after so long.
  static constexpr Time kLook = 20 * kMillisecond;

  struct Orders {
    std::vector<int> take;  // hand to TLS; they keep their places until Welcome
    std::vector<int> end;   // close; they have no place any more
  };
  struct Watched {
    int fd;
    bool is_silent;  // nothing has come of it yet: news are bytes, too
    bool is_heard;   // its greeting is whole
  };

  // `peer`: address and port ("1.2.3.4:5", "::1:5"). `is_crowded`: descriptors are short.
  void Arrive(int fd, const std::string& peer, Time now, bool is_crowded, Orders* orders);
  void Hear(int fd, Greeting greeting, Orders* orders);
  // The other side has closed it.
  void Gone(int fd, Orders* orders) { End(Find(fd), orders); }
  // There is no descriptor for the next one.
  void MakeRoom(Orders* orders) { End(Victim(), orders); }
  // Ends those whose patience is over, and says whose turn it is.
  void Decide(Time now, Orders* orders);
  void EndAll(Orders* orders);
  // The client at this address and port has proved to hold the secret; its descriptor, or -1.
  int Welcome(const std::string& peer);

  std::vector<Watched> watched() const;  // the oldest first
  size_t size() const { return guests_.size(); }
  // When Decide has something to do, if nothing happens before.
  Time Next(Time now) const;

 private:
  // In the order in which they are crowded out.
  enum class Stage { kStranger, kUnheard, kStrangerInTls, kNamed, kNamedInTls };
  struct Guest {
    int fd = -1;
    std::string peer;
    size_t* of_address = nullptr;  // places of its address
    Time since = 0;
    Stage stage = Stage::kUnheard;
    bool is_silent = true;
  };
  using Guests = std::deque<Guest>;  // the oldest first
  struct Queue {
    Stage waiting, in_tls;
    Gate gate;
    Time next = 0;  // when the next may begin
  };

  Guests::iterator Find(int fd);
  Guests::iterator Victim();
  void End(Guests::iterator guest, Orders* orders);
  void Erase(Guests::iterator guest);
  size_t Count(Stage stage) const;

  Guests guests_;
  std::map<std::string, size_t> of_address_;
  std::array<Queue, 2> queues_{{{Stage::kNamed, Stage::kNamedInTls, kNamed},
                                {Stage::kStranger, Stage::kStrangerInTls, kStrangers}}};
};

// The address and port in gRPC's name of a peer ("ipv4:1.2.3.4:5", "ipv6:%5B::1%5D:5",
// "ipv6:[::1]:5"): "1.2.3.4:5", "::1:5".
std::string PlaceOfPeer(const std::string& name);

}  // namespace covey
#endif  // COVEY_OPS_CONTROL_ADMISSION_H_
