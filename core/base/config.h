// How this rank was told to run: the knobs, their rules, and the only reader of the environment.
//
// A knob is set by the variable COVEY_<NAME> or by a line "name=value" of a settings text, which
// wins. A wrong value is refused with a sentence that names it; nothing is ignored: a
// variable that begins with COVEY_ and names no knob is an error, since it is nearly always a
// misspelt one. The table of knobs (unit, default, range, help) is in knob_table.cc;
// covey_knobs prints it. Plain values, no thread of its own.
#ifndef COVEY_CORE_BASE_CONFIG_H_
#define COVEY_CORE_BASE_CONFIG_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/log.h"
#include "core/base/status.h"
#include "core/base/types.h"

namespace covey {

// One member per knob, named like it; a Config just made has the defaults. Of one that
// FromEnvironment filled, every value is in the range of its knob, rank < size and local_rank <
// local_size.
struct Config {
  // Where this process stands: set by coveyrun.
  Rank rank{0};
  int32_t size = 1;
  int32_t local_rank = 0;    // as rank when not set
  int32_t local_size = 1;    // as size when not set
  int32_t shm_fd = -1;       // the job's shared memory on this host; -1 = none
  int32_t book_fd = -1;      // the book of the job's ranks on all hosts; -1 = none
  int32_t listen_fd = -1;    // listens at this rank's address of the book; -1 = none
  int32_t witness_fd = -1;   // the way to the witness records; -1 = none
  int32_t elastic_fd = -1;   // the way to the launcher of an elastic job; -1 = none
  int32_t launcher_pid = 0;  // 0 = none
  std::string job;
  std::string transport = "auto";    // or shm, or the name of a plug-in
  std::string host_memory = "auto";  // or never
  std::string trust_network;         // "CIDR,CIDR" or "yes": networks without strangers, for ucx
  std::string started_by;            // "mpirun", "srun", "torchrun"; empty: coveyrun, or nothing
  std::string plugin_path;           // "folder:folder", looked into before libcovey.so's own

  std::string rendezvous;   // HOST:PORT or file:PATH; for jobs of several launchers
  std::string secret_file;  // likewise
  std::string preload;      // "module,module"; the launcher's

  Time start_timeout = 30 * kSecond;
  Time lease = 10 * kSecond;
  Time stall_warning = 10 * kSecond;

  size_t segment_bytes = size_t{64} << 10;
  size_t network_segment_bytes = size_t{1} << 20;
  std::string tcp_streams = "auto";  // or 1 to 4
  size_t flat_bytes = size_t{32} << 10;
  size_t read_bytes = size_t{1} << 40;
  std::string algorithm = "auto";  // or the name of one (core/plan/algorithm.h)
  std::string cuda_path = "auto";  // or nccl, ipc, staged
  size_t nccl_bytes = size_t{4} << 10;
  size_t ipc_bytes = size_t{1} << 20;
  Time nccl_abort = 30 * kSecond;
  Time spin = 20 * kMicrosecond;
  int32_t yield_count = 16;
  Time recheck = kSecond;
  size_t arena_bytes = size_t{16} << 30;
  size_t memory_limit = 0;              // 0: none
  size_t keep_freed = size_t{1} << 30;  // 0: as the allocator has it
  int32_t cache_capacity = 4096;
  // 161 gradients of ResNet-50 one by one, np=2 on a 2-core Sapphire Rapids virtual machine
  // (2026-11-21), medians: 17-27 ms unbundled, 21-24 ms at 4 MiB, 25-26 ms at 64 MiB.
  size_t fusion_threshold = size_t{4} << 20;
  Time fusion_window = kMillisecond;
  std::string method = "allreduce";    // a text for ParseMethod of core/method/method.h
  std::string method_by = "variable";  // or flag, force: for the notice on an ignored choice
  int32_t check_nan = 0;               // 1: refuse NaN and infinite numbers before they are mixed
  std::string inject;                  // delays: frameworks/covey/inject.py reads it
  std::string summary = "auto";        // or always
  int32_t summary_fd = -1;             // -1 = none

  std::string timeline;  // folder; empty = off
  size_t timeline_max_bytes = size_t{64} << 20;
  LogLevel log_level = LogLevel::kWarn;

  // Fills *config from `environment` ("NAME=value" strings, ended by a null pointer; may be null)
  // and then from `settings` ("name=value" lines). On an error (kInvalidArgument) *config is
  // unchanged.
  static Status FromEnvironment(const char* const* environment, std::string_view settings,
                                Config* config);

  // The resolved `transport`: auto stays where there is a book (core/transport/open_hosts.h); it is
  // mpi for ranks that mpirun or srun has started, else shm.
  std::string TransportName() const;

  // The number of `tcp_streams`; 0: auto.
  int32_t TcpStreams() const { return tcp_streams == "auto" ? 0 : std::stoi(tcp_streams); }

  // The knobs that must be equal on all ranks, "segment_bytes=65536;flat_bytes=32768;...", in base
  // units: compared as text by the coordinator, which names the first that differs.
  std::string AgreedText() const;
  // Whether any tensor may be read from its owner's private memory.
  bool ReadsPeers() const { return algorithm == "read" || read_bytes < Config{}.read_bytes; }

  // In words, what of this differs from `before`: "size 4 instead of 2, spin 0 instead of 20us".
  // Empty when nothing does.
  std::string Difference(const Config& before) const;

  // All knobs with the values of this: a JSON array of {name, unit, default, minimum, maximum,
  // agreed, help, value}. Values of counts are numbers, others text as the user writes it; text and
  // choices have no minimum and maximum (null).
  std::string KnobsJson() const;
};

// KnobsJson of the environment of this process; with the defaults when that has errors.
std::string KnobsJson();

}  // namespace covey
#endif  // COVEY_CORE_BASE_CONFIG_H_
