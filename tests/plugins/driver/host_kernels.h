// The kernels of ops/devices/cuda run by the host, thread after thread: the same loops over the
// same elements, under the names by which the card's module has them.
#ifndef COVEY_TESTS_PLUGINS_DRIVER_HOST_KERNELS_H_
#define COVEY_TESTS_PLUGINS_DRIVER_HOST_KERNELS_H_

#include <cstdint>
#include <string_view>

#include "ops/devices/cuda/kernel_args.h"

namespace covey {

// One of the two is null, as its name says. Addresses in the arguments are of the host.
struct HostKernel {
  void (*reduce)(const CudaReduceArgs& args, uint64_t thread, uint64_t threads) = nullptr;
  // One row.
  void (*row)(const CudaRowsArgs& args, uint32_t row, uint64_t thread, uint64_t threads) = nullptr;
};

// Null: there is none of this name.
const HostKernel* FindHostKernel(std::string_view name);

}  // namespace covey
#endif  // COVEY_TESTS_PLUGINS_DRIVER_HOST_KERNELS_H_
