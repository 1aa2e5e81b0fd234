// Ranks as threads: every rank a runtime of its own over real shared memory, with its engine
// thread.
#ifndef COVEY_TESTS_CONTRACT_THREADS_H_
#define COVEY_TESTS_CONTRACT_THREADS_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <barrier>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "core/api/covey_control.h"
#include "tests/contract/thread_network.h"

namespace covey {

// Runs body(rank, runtime) on `size` threads and waits for all. Each runtime is freed at the end of
// its body, unless the body did it and set the pointer to null.
//
// No thread looks by itself: a wake-up that is lost hangs the test until its time limit. A test in
// which ranks are lost, of which no bell tells, says kLooksForLosses.
constexpr const char* kLooksForLosses = "recheck=1s\n";
inline void RunRanks(const Place& place, const std::function<void(int, covey_runtime*&)>& body) {
  const int size = place.size;
  covey_error error = COVEY_INIT(covey_error);
  const int fd = covey_job_create(size, &error);
  ASSERT_GE(fd, 0) << error.message;
  ThreadNetwork network(size, place.per_host);
  ThreadNetwork::Current() = &network;
  std::barrier joined(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      covey_error why = COVEY_INIT(covey_error);
      const std::string text = "local_size=" + std::to_string(size) +
                               "\nrecheck=3600s\nstall_warning=3600s\n" + place.settings;
      const covey_config config = {.struct_size = sizeof(covey_config),
                                   .rank = rank,
                                   .size = size,
                                   .shm_fd = fd,
                                   .settings = text.c_str()};
      covey_runtime* runtime = nullptr;
      const covey_code opened = covey_runtime_new(&config, &runtime, &why);
      joined.arrive_and_wait();  // over a network, who leaves at once ends the joining of others
      ASSERT_EQ(opened, COVEY_OK) << why.message;
      body(rank, runtime);
      covey_runtime_free(runtime);
    });
  }
  for (std::thread& t : threads) t.join();
  ThreadNetwork::Current() = nullptr;
  close(fd);
}

inline void RunRanks(int size, const char* settings,
                     const std::function<void(int, covey_runtime*&)>& body) {
  RunRanks(Place{size, settings}, body);
}

// One float32 allreduce, in place.
struct FloatAllreduce {
  FloatAllreduce(const char* name, float* data, int64_t elems) : shape(elems) {
    tensor.dtype = COVEY_FLOAT32;
    tensor.ndim = 1;
    tensor.shape = &shape;
    tensor.data = data;
    request.kind = COVEY_ALLREDUCE;
    request.name = name;
    request.num_tensors = 1;
    request.inputs = &tensor;
  }
  FloatAllreduce(const FloatAllreduce&) = delete;

  int64_t shape;
  covey_tensor tensor = COVEY_INIT(covey_tensor);
  covey_request request = COVEY_INIT(covey_request);
};

}  // namespace covey
#endif  // COVEY_TESTS_CONTRACT_THREADS_H_
