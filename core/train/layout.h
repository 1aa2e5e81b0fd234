// Where the parameters of a trainer lie: those of a dtype side by side in one piece, so that an
// exchange is one operation for each dtype.
//
// Equal on all members for equal parameters. Pure.
#ifndef COVEY_CORE_TRAIN_LAYOUT_H_
#define COVEY_CORE_TRAIN_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/types.h"

namespace covey {

class TrainerLayout {
 public:
  struct Parameter {
    DType dtype = DType::kF32;
    int64_t count = 0;  // elements
  };
  // The parameters of one dtype.
  struct Piece {
    DType dtype = DType::kF32;
    int64_t count = 0;  // elements, with the gaps between parameters
    size_t offset_bytes = 0;
    size_t first = 0;  // of its parameters
  };

  explicit TrainerLayout(const std::vector<Parameter>& parameters);

  const std::vector<Parameter>& parameters() const { return parameters_; }
  size_t length_bytes() const { return length_bytes_; }
  const std::vector<Piece>& pieces() const { return pieces_; }  // in the order of their first
  // By parameter.
  const std::vector<size_t>& offsets_bytes() const { return offsets_bytes_; }
  // Copies parameters[i], by parameter, to memory laid out so.
  void CopyIn(std::span<const void* const> parameters, std::byte* to) const;
  // Copies all parameters from memory laid out so to parameters[i], by parameter.
  void CopyOut(const std::byte* from, std::span<void* const> parameters) const;

 private:
  std::vector<Parameter> parameters_;
  std::vector<Piece> pieces_;
  std::vector<size_t> offsets_bytes_, sizes_bytes_;  // by parameter
  size_t length_bytes_ = 0;
};

}  // namespace covey
#endif  // COVEY_CORE_TRAIN_LAYOUT_H_
