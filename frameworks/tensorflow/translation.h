// Codes and dtypes of the C API as TensorFlow has them. Compiled on the user's machine, as all of
// this folder. Pure functions: any thread.
#ifndef COVEY_FRAMEWORKS_TENSORFLOW_TRANSLATION_H_
#define COVEY_FRAMEWORKS_TENSORFLOW_TRANSLATION_H_

#include <string>

#include "absl/strings/cord.h"
#include "core/api/covey.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/platform/status.h"

namespace covey_tensorflow {

namespace tf = tensorflow;

// How long an operation waits on the thread that runs it, before another thread or the core's
// callback sees to its end. Measured: that hand-over takes 50 to 100 us, an exchange of small
// tensors 1 to 10.
inline constexpr int64_t kHandOverNs = 50 * 1000;

// Under this key a status has the covey_code, the rank that caused it and the core's message, as
// "4 2 rank 2 has ended": TensorFlow adds to a message, and one code of its own stands for several.
inline constexpr char kPayload[] = "covey";

// The status of a call of the core's, with its message.
inline absl::Status StatusOf(covey_code code, const covey_error& error) {
  static constexpr absl::StatusCode kCodes[] = {
      /* OK */ absl::StatusCode::kOk,
      /* INVALID_ARGUMENT */ absl::StatusCode::kInvalidArgument,
      /* NOT_INITIALIZED */ absl::StatusCode::kFailedPrecondition,
      /* MISMATCH, as Horovod */ absl::StatusCode::kFailedPrecondition,
      /* ABORTED */ absl::StatusCode::kAborted,
      /* TIMEOUT */ absl::StatusCode::kDeadlineExceeded,
      /* UNSUPPORTED */ absl::StatusCode::kUnimplemented,
      /* EXHAUSTED */ absl::StatusCode::kResourceExhausted,
      /* FORKED */ absl::StatusCode::kFailedPrecondition,
      /* INTERNAL */ absl::StatusCode::kInternal,
      /* NOT_FINITE: kOutOfRange would end a Keras epoch */ absl::StatusCode::kInvalidArgument,
  };
  if (code == COVEY_OK) return absl::OkStatus();
  const bool known = code > 0 && code <= COVEY_NOT_FINITE;
  absl::Status status(known ? kCodes[code] : absl::StatusCode::kInternal, error.message);
  std::string cause = std::to_string(code) + " " + std::to_string(error.peer_rank) + " ";
  cause += error.message;
  status.SetPayload(kPayload, absl::Cord(cause));  // TensorFlow exports no Cord of a std::string&&.
  return status;
}

// BOOL for what the core does not have.
inline covey_dtype DtypeOf(tf::DataType dtype) {
  switch (dtype) {
    case tf::DT_FLOAT:
      return COVEY_FLOAT32;
    case tf::DT_DOUBLE:
      return COVEY_FLOAT64;
    case tf::DT_HALF:
      return COVEY_FLOAT16;
    case tf::DT_BFLOAT16:
      return COVEY_BFLOAT16;
    case tf::DT_UINT8:
      return COVEY_UINT8;
    case tf::DT_INT8:
      return COVEY_INT8;
    case tf::DT_INT32:
      return COVEY_INT32;
    case tf::DT_INT64:
      return COVEY_INT64;
    case tf::DT_INT16:
      return COVEY_INT16;
    case tf::DT_UINT16:
      return COVEY_UINT16;
    case tf::DT_UINT32:
      return COVEY_UINT32;
    case tf::DT_UINT64:
      return COVEY_UINT64;
    default:
      return COVEY_BOOL;  // The registrations admit nothing else.
  }
}

}  // namespace covey_tensorflow

#endif  // COVEY_FRAMEWORKS_TENSORFLOW_TRANSLATION_H_
