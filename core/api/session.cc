#include "core/api/session.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <utility>

#include "core/api/covey.h"
#include "core/api/witness_door.h"
#include "core/base/keep_freed.h"
#include "core/device/plugin_device.h"
#include "core/engine/engine.h"
#include "core/engine/trainer_window.h"
#include "core/partial/shared_port.h"
#include "core/plan/algorithm.h"
#include "core/replicated/replica_port.h"
#include "core/transport/open_transport.h"

namespace covey {
namespace {

// How long a rank that leaves sees to it, at most, that what its rounds know does not go with it:
// as long as peers that run may take. Silent ones get less (core/replicated/replica.h).
constexpr Time kLinger = 60 * kSecond;
// How long the last frames of closed channels wait for room in the network.
constexpr Time kClosing = kSecond;
// A part of the knob recheck: a look for changes that ring no event count, by ranks that wait in
// rounds and pairs.
constexpr Time kBellLooks = 50;
// Numbers of channels: above these bits the rank that has made them.
constexpr int kChannelBits = 40;

// Names that are not used for so many operations are given back, some at once (agree/retire.h):
// more than a model has parameters that are reduced one by one, or their second step announces them
// anew.
constexpr uint64_t kPatience = 256;
constexpr size_t kNewNames = 32;

std::string Text(Rank r) { return std::to_string(ToInt(r)); }

// Results larger than this are stored around the cache; unknown to some virtual machines.
uint64_t LastLevelCacheBytes() {
  const long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return bytes > 0 ? static_cast<uint64_t>(bytes) : uint64_t{32} << 20;
}

// More than a core's own cache holds; unknown to some virtual machines.
uint64_t LandingBytes() {
  const long bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return (bytes > 0 ? static_cast<uint64_t>(bytes) : uint64_t{1} << 20) * 3 / 2;
}

// Whether messages go by IPC is another question, see below.
DevicePath PathOf(const Config& config) {
  if (config.cuda_path == "auto") return DevicePath::kAuto;
  return config.cuda_path == "nccl" ? DevicePath::kCommunicator : DevicePath::kStaged;
}

// Messages of so many bytes go by IPC where no communicator carries them.
uint64_t IpcBytesOf(const Config& config) {
  const bool may = config.cuda_path == "auto" || config.cuda_path == "ipc";
  return may ? config.ipc_bytes : UINT64_MAX;
}

// With the job's witness, if it has one.
Status StartEngine(const Config& config, Engine* engine, std::unique_ptr<WitnessDoor>* witness) {
  const auto stir = [engine] { engine->Kick(); };
  if (config.witness_fd >= 0) RETURN_IF_ERROR(WitnessDoor::Open(config.witness_fd, stir, witness));
  engine->Start();
  return Status::Ok();
}

}  // namespace

Session::Session(const Config& config) : config_(config) {}

Stall& Session::stall() { return runtime_->stall(); }

Status Session::Open(const Config& config, std::unique_ptr<Session>* session) {
  RETURN_IF_ERROR(CheckAlgorithmName(config.algorithm));
  std::unique_ptr<Session> s(new Session(config));
  RETURN_IF_ERROR(ParseMethod(config.method, &s->method_));
  s->log_ = std::make_unique<Log>(config.log_level, config.rank);
  KeepFreedMemory(config.keep_freed);
  RETURN_IF_ERROR(OpenTransport(config.TransportName(), config.plugin_path,
                                {.rank = config.rank,
                                 .size = config.size,
                                 .shm_fd = config.shm_fd,
                                 .book_fd = config.book_fd,
                                 .listen_fd = config.listen_fd,
                                 .lease = config.lease,
                                 .trust_network = config.trust_network,
                                 .tcp_streams = config.TcpStreams(),
                                 .launcher_pid = config.launcher_pid,
                                 .arena_bytes = config.arena_bytes,
                                 .shares_host = config.host_memory == "auto",
                                 .reads_peers = config.ReadsPeers(),
                                 .start_timeout = config.start_timeout,
                                 .start_warning = config.stall_warning,
                                 .log = s->log_.get()},
                                &s->transport_));
  s->AdoptPlace();
  s->runtime_ = std::make_unique<Runtime>(
      Runtime::Options{
          .segment_bytes =
              s->transport_->SharesWithAll() ? config.segment_bytes : config.network_segment_bytes,
          .cache_capacity = static_cast<size_t>(config.cache_capacity),
          .stall_warning = config.stall_warning,
          .recheck = config.recheck,
          .fusion = {.threshold_bytes = config.fusion_threshold, .window = config.fusion_window},
          .retire = {.patience = kPatience, .batch = kNewNames},
          .agreed_text = config.AgreedText(),
          .selector = {.flat_bytes = config.flat_bytes,
                       .read_bytes = config.read_bytes,
                       .algorithm = config.algorithm},
          .cache_bytes = LastLevelCacheBytes(),
          .landing_bytes = LandingBytes(),
          .device_arena_bytes = config.arena_bytes / 2,
          .device_ipc_bytes = IpcBytesOf(config),
          .device_path = PathOf(config),
          .communicator_bytes = config.nccl_bytes,
          .communicator_patience = config.nccl_abort,
          .kernels = &BestKernels(),
          .clock = &s->clock_,
          .log = s->log_.get()},
      s->transport_.get(), &s->queue_);
  s->MakeWorld();
  const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  s->engine_ =
      std::make_unique<Engine>(Engine::Options{.spin = config.spin,
                                               .yields = config.yield_count,
                                               .recheck = config.recheck,
                                               .oversubscribed = s->config_.local_size > cores,
                                               .threaded = s->transport_->AnyThread()},
                               s->runtime_.get(), s->transport_.get(), &s->queue_);
  if (!config.timeline.empty()) {
    mkdir(config.timeline.c_str(), 0777);  // if it fails, opening the file says why
    const Status traced = s->StartTimeline(config.timeline + "/rank." + Text(s->rank()) + ".json");
    if (!traced.ok()) s->log_->Write(LogLevel::kWarn, "no timeline: " + traced.message());
  }
  RETURN_IF_ERROR(StartEngine(config, s->engine_.get(), &s->witness_));
  *session = std::move(s);
  return Status::Ok();
}

// A network knows the place of this rank; its launcher has told Covey nothing.
void Session::AdoptPlace() {
  const bool is_told = config_.size == transport_->size();
  config_.rank = transport_->rank();
  config_.size = transport_->size();
  if (transport_->local_rank() < 0 && is_told) return;
  const bool on_one_host = transport_->local_rank() < 0;  // the network's ranks share its memory
  config_.local_rank = on_one_host ? ToInt(config_.rank) : transport_->local_rank();
  config_.local_size = on_one_host ? config_.size : transport_->local_size();
  log_ = std::make_unique<Log>(config_.log_level, config_.rank);
}

void Session::SettleRounds() {
  const Time deadline = MonotonicNow() + kLinger;
  for (RoundsPort* rounds : rounds_.Freeze()) rounds->Settle(deadline);
  // replicated-L2: the others hear of closed channels, and do not wait for this rank in vain.
  const std::atomic<bool> never{false};
  const auto is_closing = [this] {
    bool closing = false;
    engine_->WithProgressLock([&] { closing = runtime_->channels().HasClosing(); });
    return closing;
  };
  for (const Time latest = MonotonicNow() + kClosing; is_closing() && MonotonicNow() < latest;)
    engine_->DriveUntil(never, MonotonicNow() + kMillisecond);
}

void Session::Interrupt() {
  SettleRounds();
  engine_->Stop();
  runtime_->stall().Close();
  rounds_.Interrupt();
  pairs_.Interrupt();
}

Session::~Session() {
  if (engine_ != nullptr) {
    Interrupt();
    runtime_->AbortAll(Status::Aborted("rank " + Text(rank()) + " has shut down", rank()));
    queue_.RunCallbacks();
  }
  witness_.reset();
  engine_.reset();
  runtime_.reset();
}

Status Session::UseDevice(int32_t type, int32_t index, Device** device) {
  if (type != COVEY_CUDA)
    return Status::Unsupported("this build reaches no device of type " + std::to_string(type) +
                               "; move the tensor to the CPU");
  const std::lock_guard lock(device_mutex_);
  if (device_ == nullptr) {
    RETURN_IF_ERROR(PluginDevice::Open("cuda", config_.plugin_path, index, &device_));
    device_index_ = index;
    engine_->WithProgressLock([this] { runtime_->AddDevice(DeviceType::kCuda, device_.get()); });
  }
  if (index != device_index_)
    return Status::Unsupported("rank " + Text(rank()) + " uses CUDA device " +
                               std::to_string(device_index_) + ", and the tensor lies on device " +
                               std::to_string(index) + "; a rank uses one");
  *device = device_.get();
  return Status::Ok();
}

uint64_t Session::AllocBlock(size_t length_bytes) {
  SweepRounds();
  uint64_t offset = Transport::kNoOffset;
  engine_->WithProgressLock([&] { offset = transport_->AllocShared(length_bytes); });
  return offset;
}

void Session::FreeBlock(uint64_t offset) {
  engine_->WithProgressLock([&] { transport_->FreeShared(offset); });
}

std::unique_ptr<RoundsPort> Session::NewRounds(RoundsPort::Bundle bundle, const Group* group) {
  if (transport_->words() != nullptr)
    return std::make_unique<SharedPort>(std::move(bundle), group, transport_.get());
  std::vector<int32_t> hosts;
  for (const Rank member : group->members) hosts.push_back(ToInt(transport_->HostOf(member)));
  ChannelDriver driver = Driver();
  if (witness_ != nullptr) witness_->Serve(&driver);
  return std::make_unique<ReplicaPort>(std::move(bundle), group, std::move(hosts),
                                       std::move(driver));
}

ChannelDriver Session::Driver() {
  return {.drive = [this](const std::atomic<bool>& ended,
                          Time deadline) { return engine_->DriveUntil(ended, deadline); },
          .kick = [this] { engine_->Kick(); },
          .clock = &clock_,
          .log = log_.get(),
          .warning = config_.stall_warning,
          .lease = config_.lease};
}

void Session::WithChannels(const std::function<void(ChannelMux*)>& call) {
  engine_->WithProgressLock([&] { call(&runtime_->channels()); });
}

uint64_t Session::NewChannel() {
  SweepRounds();
  const std::lock_guard lock(mutex_);
  return static_cast<uint64_t>(ToInt(rank())) << kChannelBits | ++channels_;
}

WaitPolicy Session::waiting() const {
  const bool oversubscribed = config_.local_size > sysconf(_SC_NPROCESSORS_ONLN);
  return {.spin = oversubscribed ? 0 : config_.spin,
          .yields = config_.yield_count,
          .longest_sleep = config_.recheck / kBellLooks};
}

void Session::CloseRounds(uint64_t number) {
  rounds_.Close(number);
  SweepRounds();
}

void Session::CloseTrainer(uint64_t number) {
  if (TrainerDriver* trainer = trainers_.Find(number)) {
    std::unique_ptr<TrainerWindow> window = trainer->LeaveAll();
    const std::lock_guard lock(mutex_);
    if (window != nullptr) windows_.push_back(std::move(window));
  }
  trainers_.Close(number);
  trainers_.TakeUnused();  // whose memory goes with them
  SweepRounds();
}

// Blocks that no member can touch any more go back.
void Session::SweepRounds() {
  for (const std::unique_ptr<RoundsPort>& rounds : rounds_.TakeUnused()) {
    WithChannels([&](ChannelMux* box) { rounds->Part(box); });
    for (uint64_t offset : rounds->Blocks()) FreeBlock(offset);
  }
  for (const std::unique_ptr<PairsPort>& pairs : pairs_.TakeUnused()) {
    WithChannels([&](ChannelMux* box) { pairs->Part(box); });
    if (pairs->offset() != Transport::kNoOffset) FreeBlock(pairs->offset());
  }
  std::vector<std::unique_ptr<TrainerWindow>> unused;
  {
    const std::lock_guard lock(mutex_);
    const auto left = std::stable_partition(
        windows_.begin(), windows_.end(),
        [](const std::unique_ptr<TrainerWindow>& window) { return !window->HaveAllLeft(); });
    std::move(left, windows_.end(), std::back_inserter(unused));
    windows_.erase(left, windows_.end());
  }
  for (const std::unique_ptr<TrainerWindow>& window : unused) {
    WithChannels([&](ChannelMux* box) { window->Part(box); });
    if (!window->IsFar()) FreeBlock(window->place());
  }
}

Status Session::StartTimeline(const std::string& path) {
  std::unique_ptr<Timeline> timeline;
  RETURN_IF_ERROR(Timeline::Open(path, config_.rank, config_.timeline_max_bytes, &timeline));
  timeline->OnFailure([log = log_.get()](const Status& why) {
    log->Write(LogLevel::kWarn, "the timeline ends here: " + why.message());
  });
  SwapTimeline(std::move(timeline));
  return Status::Ok();
}

void Session::StopTimeline() { SwapTimeline(nullptr); }

void Session::SwapTimeline(std::unique_ptr<Timeline> timeline) {
  engine_->WithProgressLock([&] {
    const std::lock_guard lock(mutex_);
    timeline_.swap(timeline);
    runtime_->SetTimeline(timeline_.get());
  });
}

void Session::TraceSpan(const char* name, Time begin, Time end) {
  const std::lock_guard lock(mutex_);
  if (timeline_ != nullptr) timeline_->Span("python", name, begin, end);
}

std::vector<int32_t> Session::Awaited(const Operation& operation) {
  std::vector<int32_t> ranks;
  WithRuntime([&](Runtime* runtime) { ranks = runtime->Awaited(operation); });
  engine_->Kick();  // the question may have to be sent
  return ranks;
}

void Session::WithRuntime(const std::function<void(Runtime*)>& call) {
  engine_->WithProgressLock([&] { call(runtime_.get()); });
}

}  // namespace covey
