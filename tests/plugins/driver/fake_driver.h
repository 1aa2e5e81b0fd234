// The state of the driver without a card, which its files share.
#ifndef COVEY_TESTS_PLUGINS_DRIVER_FAKE_DRIVER_H_
#define COVEY_TESTS_PLUGINS_DRIVER_FAKE_DRIVER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

namespace fake {

constexpr int kOk = 0;
constexpr int kInvalid = 1;
constexpr int kNoMemory = 2;
constexpr int kNoContext = 201;
constexpr int kBadImage = 218;
constexpr int kNotFound = 500;
constexpr int kNotReady = 600;
constexpr int kLost = 719;
constexpr uintptr_t kOnDevice = uintptr_t{0x4b} << 56;

struct Event {
  int recorded = 0;
  int completed = 0;
};
struct Task {
  std::function<bool()> try_it;  // false: not yet
};
struct Stream {
  std::deque<Task> tasks;
};

// Memory that other processes may open.
struct Shared {
  int fd;
  size_t length;
};
struct Driver {
  ~Driver() {
    for (Stream* stream : streams) delete stream;
    for (Event* event : events) delete event;
  }

  std::mutex mutex;
  std::set<Stream*> streams;
  std::set<Event*> events;
  std::vector<std::unique_ptr<Event>> destroyed;  // streams may still wait for them
  std::map<uintptr_t, size_t> registered;
  Stream legacy;
  int unpinned = 0;
  int modules = 0;
  std::map<uintptr_t, Shared> shared;  // by address of the host
  std::map<uintptr_t, size_t> opened;
  int launches = 0;
  std::atomic<int> synchronous = 0;
  bool no_memory = false;
  bool no_opening = false;
  int copies_left = -1;
  bool lost = false;
};

Driver& It();
// Of this thread: contexts pushed and not popped.
int Depth();
Stream* Of(void* stream);  // null: the legacy one

inline uint64_t OnHost(uint64_t on_device) { return on_device ^ kOnDevice; }

}  // namespace fake

#define SHOWN __attribute__((visibility("default")))

#endif  // COVEY_TESTS_PLUGINS_DRIVER_FAKE_DRIVER_H_
