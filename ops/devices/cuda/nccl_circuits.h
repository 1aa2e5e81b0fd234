/* Circuits of CUDA devices (core/device/covey_circuits.h): communicators of NCCL. */
#ifndef COVEY_OPS_DEVICES_CUDA_NCCL_CIRCUITS_H_
#define COVEY_OPS_DEVICES_CUDA_NCCL_CIRCUITS_H_

#include "core/device/covey_circuits.h"
#include "ops/devices/cuda/driver.h"

/* Of the device with this context, which is current; both outlive them. NULL: no memory. Nothing is
 * looked for yet. */
const covey_circuits* NcclOpenCircuits(const CudaDriver* driver, CudaContext context, int device);
/* Waits until no communicator is left: finished ones go in order, the rest is aborted. 0: NCCL has
 * not returned from that, for 30 s or since a circuit was given up; it may use the driver and the
 * context for as long as the process lives. */
int NcclCloseCircuits(const covey_circuits* circuits);

#endif /* COVEY_OPS_DEVICES_CUDA_NCCL_CIRCUITS_H_ */
