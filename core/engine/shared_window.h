// The window of a trainer whose members share memory: each looks where the other's model lies.
//
// Its block of this rank's region goes back once no member can look at it any more: each says so in
// a word of its own there.
//
// One thread at a time, but for Hide.
#ifndef COVEY_CORE_ENGINE_SHARED_WINDOW_H_
#define COVEY_CORE_ENGINE_SHARED_WINDOW_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/base/tensor.h"
#include "core/engine/trainer_window.h"

namespace covey {

class SharedWindow final : public TrainerWindow {
 public:
  struct Options {
    Transport* transport = nullptr;  // that has words, and outlives it
    const Group* group = nullptr;
    uint64_t offset = 0;               // of BlockBytes in this rank's region, zero
    const std::byte* model = nullptr;  // in this rank's region; null: there is none to be seen
    bool is_copy = false;              // it is trained elsewhere
    size_t length_bytes = 0;           // of each member's model
    int64_t version = 0;
  };

  static size_t BlockBytes(int32_t members);

  explicit SharedWindow(const Options& options);

  uint64_t place() const override { return options_.offset; }
  void Meet(std::vector<uint64_t> offsets) override { offsets_ = std::move(offsets); }
  WindowState Look(int32_t member, std::span<std::byte> model, int64_t* version) override;
  void Want(int32_t member) override;
  bool IsBehind(int32_t member) override;
  void Leave() override;
  bool HaveAllLeft() override;

 private:
  WindowState LookAt(int32_t member, std::span<void* const> to, std::span<const uint64_t> lengths,
                     TrainerMark* mark) const;
  uint64_t* OwnAt(int32_t of) const;
  uint64_t* LeftAt(int32_t member, int32_t of) const;

  const Options options_;
  std::vector<uint64_t> offsets_;
};

}  // namespace covey
#endif  // COVEY_CORE_ENGINE_SHARED_WINDOW_H_
