#include "core/base/types.h"

namespace covey {

const char* NameOf(DType t) {
  constexpr const char* kNames[kNumDTypes] = {"float32", "float64", "float16", "bfloat16", "uint8",
                                              "int8",    "int32",   "int64",   "bool",     "int16",
                                              "uint16",  "uint32",  "uint64"};
  return kNames[static_cast<int>(t)];
}

const char* NameOf(Op op) {
  constexpr const char* kNames[kNumOps] = {"sum", "average", "min", "max", "product"};
  return kNames[static_cast<int>(op)];
}

}  // namespace covey
