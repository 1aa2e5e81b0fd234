// A driver of CUDA without a card: the functions of ops/devices/cuda/driver.h over memory of the
// host under addresses that no host can follow, and these, with which a test plays the user.
//
// A stream does one thing each time anybody asks for an event, so everything is late, and what is
// not ordered happens in the wrong order. Copies to and from the host need a current context.
#ifndef COVEY_TESTS_PLUGINS_DRIVER_FAKE_CUDA_H_
#define COVEY_TESTS_PLUGINS_DRIVER_FAKE_CUDA_H_

#include <cstddef>
#include <cstdint>

struct FakeCudaHandle {
  char bytes[64];
};

struct FakeCuda {
  void* (*alloc)(size_t length_bytes);  // on the device
  void (*free)(void* memory);
  void* (*stream)();
  void* (*event)();
  void (*record)(void* event, void* stream);
  // The stream computes: once it has come so far, `memory` holds these bytes.
  void (*compute)(void* memory, const void* bytes, size_t length_bytes, void* stream);
  // The stream reads: waits for it.
  void (*read)(void* memory, void* bytes, size_t length_bytes, void* stream);
  int (*depth)();           // contexts pushed and not popped by this thread
  int (*waits)();           // calls of this thread that waited for the device
  int (*unpinned)();        // copies from or to memory of the host that was not registered
  int (*left)();            // streams, events, modules there are, memory registered, or in common
  void (*fail)(int calls);  // the calls-th copy from now on fails; -1: none
  int (*launches)();        // of kernels
  // 1: there is no memory left for processes in common; theirs cannot be opened.
  void (*refuse)(int memory, int opening);
  int (*opened)();  // what is open of other ranks' memory
  // For a library over this driver. The stream does this once it has come so far, until it says
  // true; it may call nothing of the driver's.
  void (*enqueue)(void* stream, bool (*try_it)(void* context), void* context);
  char* (*host)(const void* memory);  // where memory of the device is kept
  void (*use_card)(int card);         // that this thread's device is
  // Calls that a card's driver may answer late: they wait, allocate, register, open or load.
  int (*synchronous)();
};

extern "C" const FakeCuda* fake_cuda();

#endif  // COVEY_TESTS_PLUGINS_DRIVER_FAKE_CUDA_H_
