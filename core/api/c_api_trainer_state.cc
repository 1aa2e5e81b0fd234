// State beside the model: the arrays of the adapter's optimizer, and those of the method. See
// core/api/covey_trainer.h.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/api/c_api.h"
#include "core/api/c_api_trainer.h"
#include "core/api/covey_trainer.h"
#include "core/api/runtime_handle.h"
#include "core/api/session.h"
#include "core/engine/trainer_state.h"

namespace covey {
namespace {

constexpr size_t kMaxNameBytes = 1024;

// Why an array is refused, whatever else is listed; empty: it is not.
std::string FaultOf(const covey_state_array& array) {
  if (array.struct_size != sizeof(array)) return "has not the struct_size of covey_state_array";
  if (array.name != nullptr && array.name[0] == '\0') return "has a name that is empty";
  if (array.name != nullptr && std::strlen(array.name) > kMaxNameBytes)
    return "has a name of more than " + std::to_string(kMaxNameBytes) + " bytes";
  const auto dtype = static_cast<int>(array.dtype);
  if (dtype < 0 || dtype >= kNumDTypes || array.dtype == COVEY_BOOL)
    return "has no dtype that can be reduced";
  if (array.op != COVEY_AVERAGE && array.op != COVEY_MAX)
    return "has an op other than COVEY_AVERAGE and COVEY_MAX";
  if (array.op == COVEY_AVERAGE && !IsFloating(static_cast<DType>(dtype)))
    return std::string("is of ") + NameOf(static_cast<DType>(dtype)) +
           ", which has no average: its op is COVEY_MAX";
  if (array.count < 0) return "has " + std::to_string(array.count) + " elements";
  if (array.count > 0 && array.data == nullptr) return "has no address";
  return "";
}

// For people: "array 3 ('momentum') of the optimizer's state".
std::string LabelOf(const covey_state_array& array, int32_t i) {
  const bool is_named = array.struct_size == sizeof(array) && array.name != nullptr;
  return "array " + std::to_string(i) +
         (is_named ? " ('" + std::string(array.name).substr(0, kMaxNameBytes) + "')" : "") +
         " of the optimizer's state";
}

// Two arrays in the same memory would be averaged at once; then one rank alone would fail.
Status CheckApart(const covey_state_array* arrays, int32_t num_arrays) {
  struct Place {
    uintptr_t begin, end;
    int32_t i;
  };
  std::vector<Place> places;
  for (int32_t i = 0; i < num_arrays; ++i) {
    const auto begin = reinterpret_cast<uintptr_t>(arrays[i].data);
    const size_t bytes =
        static_cast<size_t>(arrays[i].count) * SizeOf(static_cast<DType>(arrays[i].dtype));
    if (bytes > 0) places.push_back({begin, begin + bytes, i});
  }
  std::sort(places.begin(), places.end(),
            [](const Place& a, const Place& b) { return a.begin < b.begin; });
  for (size_t k = 1; k < places.size(); ++k) {
    if (places[k].begin >= places[k - 1].end) continue;
    const int32_t i = std::max(places[k].i, places[k - 1].i);
    const int32_t other = std::min(places[k].i, places[k - 1].i);
    return Status::InvalidArgument("trainer: " + LabelOf(arrays[i], i) +
                                   " lies in the memory of array " + std::to_string(other) +
                                   ": list it once");
  }
  return Status::Ok();
}

Status ListTo(TrainerDriver* trainer, const covey_state_array* arrays, int32_t num_arrays) {
  if (num_arrays < 0 || (num_arrays > 0 && arrays == nullptr))
    return Status::InvalidArgument("trainer: arrays is NULL, or num_arrays negative");
  std::vector<TrainerState::Array> state;
  std::set<std::string_view> names;
  for (int32_t i = 0; i < num_arrays; ++i) {
    const covey_state_array& array = arrays[i];
    std::string fault = FaultOf(array);
    const bool is_named = fault.empty() && array.name != nullptr;
    if (fault.empty() && is_named != (arrays[0].name != nullptr))
      fault = std::string(is_named ? "has a" : "has no") +
              " name, unlike array 0: all of a list have one, or none has";
    if (is_named && fault.empty() && !names.insert(array.name).second)
      fault = "has the name of an earlier one";
    if (!fault.empty())
      return Status::InvalidArgument("trainer: " + LabelOf(array, i) + " " + fault);
    state.push_back({.name = is_named ? array.name : "",
                     .dtype = static_cast<DType>(array.dtype),
                     .is_average = array.op == COVEY_AVERAGE,
                     .count = array.count,
                     .data = static_cast<std::byte*>(array.data)});
  }
  RETURN_IF_ERROR(CheckApart(arrays, num_arrays));
  return trainer->ListState(std::move(state));
}

}  // namespace
}  // namespace covey

using covey::OrDefault;
using covey::TrainerDriver;
using covey::TrainerState;
using covey::Use;

extern "C" {

covey_code covey_trainer_list(covey_runtime* runtime, covey_trainer trainer,
                              const covey_state_array* arrays, int32_t num_arrays,
                              covey_error* error) {
  return covey::WithTrainer(runtime, trainer, error, [&](const Use&, TrainerDriver* it) {
    return covey::ListTo(it, arrays, num_arrays);
  });
}

const char* covey_trainer_listed(covey_runtime* runtime, covey_trainer trainer, int32_t i,
                                 void** data, covey_dtype* dtype, int64_t* count) {
  const Use use(OrDefault(runtime));
  TrainerDriver* found = covey::FindTrainer(use, trainer);
  const std::vector<TrainerState::Array>* arrays = nullptr;
  if (found == nullptr || !found->GetListed(&arrays).ok()) return nullptr;
  if (i < 0 || static_cast<size_t>(i) >= arrays->size()) return nullptr;
  const TrainerState::Array& array = (*arrays)[static_cast<size_t>(i)];
  if (data != nullptr) *data = array.data;
  if (dtype != nullptr) *dtype = static_cast<covey_dtype>(array.dtype);
  if (count != nullptr) *count = array.count;
  return array.name.c_str();
}

const char* covey_trainer_state(covey_runtime* runtime, covey_trainer trainer, int32_t i,
                                void** address, int64_t* bytes) {
  const Use use(OrDefault(runtime));
  TrainerDriver* found = covey::FindTrainer(use, trainer);
  std::vector<TrainerDriver::StateArray> arrays;
  if (found == nullptr || !found->GetState(&arrays).ok()) return nullptr;
  if (i < 0 || static_cast<size_t>(i) >= arrays.size()) return nullptr;
  const TrainerDriver::StateArray& array = arrays[static_cast<size_t>(i)];
  if (address != nullptr) *address = array.bytes.data();
  if (bytes != nullptr) *bytes = static_cast<int64_t>(array.bytes.size());
  return array.name;
}

}  // extern "C"
