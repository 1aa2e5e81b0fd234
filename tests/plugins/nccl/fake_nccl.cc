#include "tests/plugins/nccl/fake_nccl.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/base/kernels.h"
#include "tests/plugins/driver/fake_cuda.h"

namespace {

using covey::DType;
using covey::Op;

constexpr int kOk = 0, kInvalid = 4, kRemote = 6, kInProgress = 7;
constexpr int kLooks = 3;  // until a communicator is made, or work has reached its stream

// NCCL 2.28.9 does not write what follows the last whole piece of so many bytes in an average over
// one rank (seen on an H200, 2026-11-26).
constexpr size_t kWholeOfOne = 128;

enum class Work { kAllReduce, kBroadcast, kReduceScatter };

struct Call {
  Work work;
  const void* from;
  void* to;
  size_t count;
  DType dtype;
  int op;  // or the root
  void* stream;
};

// One collective, at which the members of a communicator meet.
struct Meeting {
  std::vector<std::vector<std::byte>> inputs;
  std::vector<bool> there, gone;
  size_t arrived = 0;
  Call first{};
};

struct Clique {
  size_t size = 0;
  size_t joined = 0;
  std::map<int, Meeting> meetings;
};

struct Comm {
  std::shared_ptr<Clique> clique;
  int rank = 0;
  int looks = kLooks;
  int calls = 0;
  bool never = false;
  bool aborted = false;
  int inside = 0;
  std::vector<Call> handed;  // not in the stream yet
};

// What has come to its turn on a stream.
struct Task {
  std::shared_ptr<Comm> comm;
  Call call;
  int number;
  bool arrived = false;
};

struct Library {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<Clique>> cliques;
  std::vector<std::shared_ptr<Comm>> comms;      // ever: streams may still hold work of theirs
  std::map<Task*, std::unique_ptr<Task>> tasks;  // that no stream has done yet
  int version = 22000;
  bool never = false, refuses = false, never_aborts = false;
  int failed_rank = -1;
  int ids = 0, asked = 0, left = 0, aborted = 0, launched = 0, mixed = 0;
  int without_context = 0;
};

Library& It() {
  static Library library;
  return library;
}

const FakeCuda& Driver() {
  static const FakeCuda* cuda = [] {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    return reinterpret_cast<const FakeCuda* (*)()>(dlsym(library, "fake_cuda"))();
  }();
  return *cuda;
}

thread_local std::vector<std::pair<Comm*, Call>> t_group;

Comm* Of(void* comm) { return static_cast<Comm*>(comm); }

void NeedsContext() { It().without_context += Driver().depth() == 0; }

size_t InCount(const Task& task) {
  return task.call.work == Work::kReduceScatter ? task.call.count * task.comm->clique->size
                                                : task.call.count;
}

void Finish(const Task& task, const Meeting& meeting) {
  const size_t width = covey::SizeOf(task.call.dtype);
  const size_t size = task.comm->clique->size;
  const size_t length = task.call.count * width;
  std::vector<std::byte> result(InCount(task) * width);
  if (task.call.work == Work::kBroadcast) {
    result = meeting.inputs[static_cast<size_t>(task.call.op)];
  } else {
    constexpr Op kOps[] = {Op::kSum, Op::kProduct, Op::kMax, Op::kMin, Op::kSum};
    std::vector<const std::byte*> sources;
    for (const auto& input : meeting.inputs) sources.push_back(input.data());
    std::byte* target = result.data();
    const double post = task.call.op == 4 ? 1.0 / static_cast<double>(size) : 1.0;
    covey::ScalarKernels().reduce({task.call.dtype, kOps[task.call.op], 1.0, post}, sources,
                                  {&target, 1}, InCount(task), covey::Stores::kCached);
  }
  const size_t begin =
      task.call.work == Work::kReduceScatter ? static_cast<size_t>(task.comm->rank) * length : 0;
  const bool averages_one = size == 1 && task.call.op == 4 && task.call.work != Work::kBroadcast;
  const size_t written = averages_one ? length / kWholeOfOne * kWholeOfOne : length;
  std::memcpy(Driver().host(task.call.to), result.data() + begin, written);
}

bool TryTask(void* context) {
  auto* task = static_cast<Task*>(context);
  const std::lock_guard lock(It().mutex);
  Clique& clique = *task->comm->clique;
  const auto me = static_cast<size_t>(task->comm->rank);
  bool done = task->comm->aborted;
  if (!done) {
    Meeting& meeting = clique.meetings[task->number];
    if (!task->arrived) {
      task->arrived = true;
      ++task->comm->inside;
      meeting.inputs.resize(clique.size);
      if (meeting.arrived++ == 0) meeting.first = task->call;
      const Call& first = meeting.first;
      It().mixed += first.work != task->call.work || first.count != task->call.count ||
                    first.op != task->call.op || first.dtype != task->call.dtype;
      const auto* from = reinterpret_cast<const std::byte*>(Driver().host(task->call.from));
      meeting.inputs[me].assign(from, from + InCount(*task) * covey::SizeOf(task->call.dtype));
    }
    if (meeting.arrived == clique.size) {
      Finish(*task, meeting);
      done = true;
    }
  }
  if (!done) return false;
  task->comm->inside -= task->arrived;
  It().tasks.erase(task);
  return true;
}

// Mutex held, and not the driver's.
void HandOver(Comm* comm, std::vector<std::pair<void*, Task*>>* tasks) {
  for (const std::shared_ptr<Comm>& known : It().comms) {
    if (known.get() != comm) continue;
    for (const Call& call : comm->handed) {
      auto task = std::make_unique<Task>(Task{known, call, comm->calls++});
      tasks->push_back({call.stream, task.get()});
      It().tasks.emplace(task.get(), std::move(task));
    }
  }
  comm->handed.clear();
}

int Queue(void* comm, const Call& call) {
  const std::lock_guard lock(It().mutex);
  ++It().asked;
  NeedsContext();
  t_group.push_back({Of(comm), call});
  return kOk;
}

DType TypeOf(int type) {
  constexpr DType kTypes[] = {DType::kI8,  DType::kU8,  DType::kI32, DType::kI32, DType::kI64,
                              DType::kI64, DType::kF16, DType::kF32, DType::kF64, DType::kBF16};
  return kTypes[type];
}

int Gone(void* comm, bool aborted) {
  const std::lock_guard lock(It().mutex);
  ++It().asked;
  NeedsContext();
  Of(comm)->aborted = aborted;
  Of(comm)->handed.clear();
  It().aborted += aborted;
  --It().left;
  return kOk;
}

// ---- What a test does ----

template <typename Fn>
auto Locked(Fn fn) {
  const std::lock_guard lock(It().mutex);
  return fn(It());
}

void Reset() {
  Locked([](Library& l) {
    l.version = 22000;
    l.never = l.refuses = l.never_aborts = false;
    l.failed_rank = -1;
  });
}
void BeOf(int version) {
  Locked([version](Library& l) { l.version = version; });
}
void NeverReady() {
  Locked([](Library& l) { l.never = true; });
}
void Refuse() {
  Locked([](Library& l) { l.refuses = true; });
}
void NeverAbort() {
  Locked([](Library& l) { l.never_aborts = true; });
}
void FailRank(int rank) {
  Locked([rank](Library& l) { l.failed_rank = rank; });
}
int Asked() {
  return Locked([](Library& l) { return l.asked; });
}
int Made() {
  return Locked([](Library& l) { return static_cast<int>(l.comms.size()); });
}
int Left() {
  return Locked([](Library& l) { return l.left; });
}
int Aborted() {
  return Locked([](Library& l) { return l.aborted; });
}
int Launched() {
  return Locked([](Library& l) { return l.launched; });
}
int Inside() {
  return Locked([](Library& l) {
    int sum = 0;
    for (const auto& comm : l.comms) sum += comm->aborted ? 0 : comm->inside;
    return sum;
  });
}
int Mixed() {
  return Locked([](Library& l) { return l.mixed; });
}
int WithoutContext() {
  return Locked([](Library& l) { return l.without_context; });
}

constexpr FakeNccl kFake = {Reset,    BeOf,   NeverReady, Refuse,        NeverAbort,
                            FailRank, Asked,  Made,       Left,          Aborted,
                            Launched, Inside, Mixed,      WithoutContext};

}  // namespace

#define SHOWN __attribute__((visibility("default")))

extern "C" {

SHOWN const FakeNccl* fake_nccl() { return &kFake; }

struct Id {
  char bytes[128];
};
struct Config {
  size_t size;
  unsigned magic, version;
  int blocking;
};

SHOWN int ncclGetVersion(int* version) {
  const std::lock_guard lock(It().mutex);
  ++It().asked;
  *version = It().version;
  return kOk;
}
SHOWN const char* ncclGetErrorString(int result) {
  return result == kRemote ? "remote process exited or there was a network error" : "some error";
}
SHOWN const char* ncclGetLastError(void*) { return "the cable has come off"; }
SHOWN int ncclGetUniqueId(Id* id) {
  const std::lock_guard lock(It().mutex);
  ++It().asked;
  std::memset(id->bytes, 0x5a, sizeof(id->bytes));
  const int number = ++It().ids;
  std::memcpy(id->bytes + 100, &number, sizeof(number));
  return kOk;
}
SHOWN int ncclCommInitRankConfig(void** comm, int size, Id id, int rank, Config* config) {
  const std::lock_guard lock(It().mutex);
  ++It().asked;
  NeedsContext();
  if (config->magic != 0xcafebeef || config->blocking != 0 || It().refuses) return kInvalid;
  std::shared_ptr<Clique>& clique = It().cliques[std::string(id.bytes, sizeof(id.bytes))];
  if (clique == nullptr) clique = std::make_shared<Clique>();
  clique->size = static_cast<size_t>(size);
  ++clique->joined;
  auto made = std::make_shared<Comm>();
  made->clique = clique;
  made->rank = rank;
  made->never = It().never;
  It().comms.push_back(made);
  ++It().left;
  *comm = made.get();
  return kInProgress;
}
SHOWN int ncclCommGetAsyncError(void* asked, int* result) {
  std::vector<std::pair<void*, Task*>> tasks;
  {
    const std::lock_guard lock(It().mutex);
    Comm* comm = Of(asked);
    const bool waits = comm->never || comm->clique->joined < comm->clique->size;
    *result = comm->rank == It().failed_rank                ? kRemote
              : waits || (comm->looks > 0 && comm->looks--) ? kInProgress
                                                            : kOk;
    if (*result == kOk) HandOver(comm, &tasks);
  }
  for (const auto& [stream, task] : tasks) Driver().enqueue(stream, TryTask, task);
  return kOk;
}
SHOWN int ncclCommFinalize(void*) { return kInProgress; }
SHOWN int ncclCommDestroy(void* comm) { return Gone(comm, false); }
#ifndef WITHOUT_ABORT
SHOWN int ncclCommAbort(void* comm) {
  while (Locked([](Library& l) { return l.never_aborts; })) pause();
  return Gone(comm, true);
}
#endif
SHOWN int ncclGroupStart() { return kOk; }
SHOWN int ncclGroupEnd() {
  const std::lock_guard lock(It().mutex);
  for (auto& [comm, call] : t_group) {
    comm->handed.push_back(call);
    comm->looks = kLooks;
    ++It().launched;
  }
  t_group.clear();
  return kInProgress;
}
SHOWN int ncclAllReduce(const void* from, void* to, size_t count, int type, int op, void* comm,
                        void* stream) {
  return Queue(comm, {Work::kAllReduce, from, to, count, TypeOf(type), op, stream});
}
SHOWN int ncclBroadcast(const void* from, void* to, size_t count, int type, int root, void* comm,
                        void* stream) {
  return Queue(comm, {Work::kBroadcast, from, to, count, TypeOf(type), root, stream});
}
SHOWN int ncclReduceScatter(const void* from, void* to, size_t count, int type, int op, void* comm,
                            void* stream) {
  return Queue(comm, {Work::kReduceScatter, from, to, count, TypeOf(type), op, stream});
}

}  // extern "C"
