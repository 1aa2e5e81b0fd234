#include "tests/plugins/driver/fake_cuda.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/plugins/driver/fake_driver.h"

namespace fake {
namespace {

thread_local int t_depth = 0;
thread_local int t_waits = 0;
thread_local int t_card = 0;

}  // namespace

Driver& It() {
  static Driver driver;
  return driver;
}

int Depth() { return t_depth; }

Stream* Of(void* stream) { return stream == nullptr ? &It().legacy : static_cast<Stream*>(stream); }

namespace {

char* Host(const void* on_device) {
  return reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(on_device) ^ kOnDevice);
}

// Each stream does one thing, if it can. Mutex held.
void Advance() {
  const auto step = [](Stream* stream) {
    if (!stream->tasks.empty() && stream->tasks.front().try_it()) stream->tasks.pop_front();
  };
  step(&It().legacy);
  for (Stream* stream : It().streams) step(stream);
}

void RunUntilEmpty(Stream* stream) {
  for (int turn = 0; !stream->tasks.empty(); ++turn) {
    if (turn > 10'000'000) {
      std::fprintf(stderr, "fake_cuda: a stream waits for an event that never completes\n");
      std::abort();
    }
    Advance();
  }
}

void RecordIn(Stream* stream, Event* event) {
  const int number = ++event->recorded;
  stream->tasks.push_back({[event, number] {
    event->completed = number;
    return true;
  }});
}

bool IsRegistered(const void* memory, size_t length) {
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  auto found = It().registered.upper_bound(begin);
  if (found == It().registered.begin()) return false;
  --found;
  return begin + length <= found->first + found->second;
}

int Copy(void* to, const void* from, size_t length, const void* on_host, void* stream) {
  const std::lock_guard lock(It().mutex);
  if (t_depth == 0) return kNoContext;
  if (It().copies_left == 0) It().lost = true;
  if (It().copies_left > 0) --It().copies_left;
  if (It().lost) return kLost;
  It().unpinned += IsRegistered(on_host, length) ? 0 : 1;
  Of(stream)->tasks.push_back({[to, from, length] {
    std::memcpy(to, from, length);
    return true;
  }});
  return kOk;
}

// ---- What a test does ----

void* Alloc(size_t length) { return Host(std::calloc(1, length + 1)); }
void Free(void* memory) { std::free(Host(memory)); }

void* NewStream() {
  const std::lock_guard lock(It().mutex);
  return *It().streams.insert(new Stream).first;
}

void* NewEvent() {
  const std::lock_guard lock(It().mutex);
  return *It().events.insert(new Event).first;
}

void Record(void* event, void* stream) {
  const std::lock_guard lock(It().mutex);
  RecordIn(Of(stream), static_cast<Event*>(event));
}

void Compute(void* memory, const void* bytes, size_t length, void* stream) {
  const std::lock_guard lock(It().mutex);
  auto copy = std::make_shared<std::vector<char>>(static_cast<const char*>(bytes),
                                                  static_cast<const char*>(bytes) + length);
  // It takes a while.
  for (int i = 0; i < 20; ++i) Of(stream)->tasks.push_back({[] { return true; }});
  Of(stream)->tasks.push_back({[memory, copy] {
    if (!copy->empty()) std::memcpy(Host(memory), copy->data(), copy->size());
    return true;
  }});
}

void Read(void* memory, void* bytes, size_t length, void* stream) {
  const std::lock_guard lock(It().mutex);
  RunUntilEmpty(Of(stream));
  if (length > 0) std::memcpy(bytes, Host(memory), length);
}

int Waits() { return t_waits; }
int Unpinned() {
  const std::lock_guard lock(It().mutex);
  return It().unpinned;
}
int Left() {
  const std::lock_guard lock(It().mutex);
  return static_cast<int>(It().streams.size() + It().events.size() + It().registered.size()) +
         It().modules + static_cast<int>(It().shared.size() + It().opened.size());
}
void Fail(int calls) {
  const std::lock_guard lock(It().mutex);
  It().copies_left = calls;
  It().lost = false;
}

int Launches() {
  const std::lock_guard lock(It().mutex);
  return It().launches;
}
void Refuse(int memory, int opening) {
  const std::lock_guard lock(It().mutex);
  It().no_memory = memory != 0;
  It().no_opening = opening != 0;
}
int Opened() {
  const std::lock_guard lock(It().mutex);
  return static_cast<int>(It().opened.size());
}

int Synchronous() { return It().synchronous; }
void Enqueue(void* stream, bool (*try_it)(void* context), void* context) {
  const std::lock_guard lock(It().mutex);
  Of(stream)->tasks.push_back({[try_it, context] { return try_it(context); }});
}
void UseCard(int card) { t_card = card; }

constexpr FakeCuda kFake = {Alloc,  Free,    NewStream, NewEvent, Record,     Compute,  Read,
                            Depth,  Waits,   Unpinned,  Left,     Fail,       Launches, Refuse,
                            Opened, Enqueue, Host,      UseCard,  Synchronous};

}  // namespace

extern "C" {

SHOWN const FakeCuda* fake_cuda() { return &kFake; }

SHOWN int cuInit(unsigned) { return kOk; }
SHOWN int cuDeviceGetCount(int* count) {
  *count = 1;
  return kOk;
}
SHOWN int cuDeviceGet(int* device, int index) {
  *device = 100 + index;
  return kOk;
}
SHOWN int cuDeviceGetUuid(char* uuid, int device) {
  std::memset(uuid, 0, 16);
  std::memcpy(uuid, &t_card, sizeof(t_card));
  return device == 100 ? kOk : kInvalid;
}
SHOWN int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = &It();
  return device == 100 ? kOk : kInvalid;
}
SHOWN int cuDevicePrimaryCtxRelease_v2(int) { return kOk; }
SHOWN int cuCtxPushCurrent_v2(void* context) {
  if (context != &It()) return kInvalid;
  ++t_depth;
  return kOk;
}
SHOWN int cuCtxPopCurrent_v2(void** context) {
  *context = &It();
  return --t_depth >= 0 ? kOk : kNoContext;
}
SHOWN int cuStreamCreate(void** stream, unsigned) {
  if (t_depth == 0) return kNoContext;
  *stream = NewStream();
  return kOk;
}
SHOWN int cuStreamDestroy_v2(void* stream) {
  const std::lock_guard lock(It().mutex);
  It().streams.erase(static_cast<Stream*>(stream));
  delete static_cast<Stream*>(stream);
  return kOk;
}
SHOWN int cuStreamSynchronize(void* stream) {
  ++t_waits;
  ++It().synchronous;
  const std::lock_guard lock(It().mutex);
  RunUntilEmpty(Of(stream));
  return kOk;
}
SHOWN int cuStreamWaitEvent(void* stream, void* waited, unsigned) {
  const std::lock_guard lock(It().mutex);
  auto* event = static_cast<Event*>(waited);
  const int number = event->recorded;
  Of(stream)->tasks.push_back({[event, number] { return event->completed >= number; }});
  return kOk;
}
SHOWN int cuEventCreate(void** event, unsigned) {
  if (t_depth == 0) return kNoContext;
  *event = NewEvent();
  return kOk;
}
SHOWN int cuEventDestroy_v2(void* event) {
  const std::lock_guard lock(It().mutex);
  It().events.erase(static_cast<Event*>(event));
  It().destroyed.emplace_back(static_cast<Event*>(event));
  return kOk;
}
SHOWN int cuEventRecord(void* event, void* stream) {
  if (t_depth == 0) return kNoContext;
  Record(event, stream);
  return kOk;
}
SHOWN int cuEventQuery(void* queried) {
  const std::lock_guard lock(It().mutex);
  Advance();
  if (It().lost) return kLost;
  const auto* event = static_cast<Event*>(queried);
  return event->completed >= event->recorded ? kOk : kNotReady;
}
SHOWN int cuMemcpyDtoHAsync_v2(void* to, unsigned long long from, size_t length, void* stream) {
  return Copy(to, Host(reinterpret_cast<void*>(from)), length, to, stream);
}
SHOWN int cuMemcpyHtoDAsync_v2(unsigned long long to, const void* from, size_t length,
                               void* stream) {
  return Copy(Host(reinterpret_cast<void*>(to)), from, length, from, stream);
}
SHOWN int cuMemHostRegister_v2(void* memory, size_t length, unsigned) {
  ++It().synchronous;
  const std::lock_guard lock(It().mutex);
  if (t_depth == 0) return kNoContext;
  It().registered[reinterpret_cast<uintptr_t>(memory)] = length;
  return kOk;
}
SHOWN int cuMemHostUnregister(void* memory) {
  ++It().synchronous;
  const std::lock_guard lock(It().mutex);
  return It().registered.erase(reinterpret_cast<uintptr_t>(memory)) == 1 ? kOk : kInvalid;
}
SHOWN int cuGetErrorString(int error, const char** text) {
  *text = error == kLost ? "unspecified launch failure" : "some error of the fake driver";
  return kOk;
}

}  // extern "C"

}  // namespace fake
