// Which processes of a job have ended, seen through pidfds: a process that was killed cannot say
// so.
//
// Not watched, and so never reported: this process itself (ranks of one process, as in tests, share
// a fate), processes of another PID namespace (their number means nothing here), and all of them
// where the kernel offers no pidfd. Holder of the progress lock, or the thread that joins.
#ifndef COVEY_OPS_TRANSPORTS_SHM_WATCH_H_
#define COVEY_OPS_TRANSPORTS_SHM_WATCH_H_

#include <cstdint>
#include <vector>

namespace covey {

// A process as its rank's page shows it.
struct ProcessId {
  int32_t pid = 0;
  uint64_t name_space = 0;  // of PIDs: the inode of /proc/self/ns/pid; 0 = unknown
};
ProcessId OwnProcess();

class ProcessWatch {
 public:
  explicit ProcessWatch(int32_t size);
  ~ProcessWatch();
  ProcessWatch(const ProcessWatch&) = delete;
  ProcessWatch& operator=(const ProcessWatch&) = delete;

  // From now on `rank` is watched. Again for the same process: nothing.
  void Watch(int32_t rank, ProcessId process);
  void Forget(int32_t rank);

  // The watched ranks whose process has ended, ascending; each time until forgotten.
  std::vector<int32_t> Gone();
  // The same of one; one that was forgotten has not.
  bool IsGone(int32_t rank) const;

 private:
  struct Watched {
    int32_t pid = 0;  // 0 = no process
    int fd = -1;
    bool gone = false;  // had ended before it was watched
  };
  const ProcessId own_;
  std::vector<Watched> watched_;  // by rank
};

}  // namespace covey
#endif  // COVEY_OPS_TRANSPORTS_SHM_WATCH_H_
