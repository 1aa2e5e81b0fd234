// The published models of rounds, as other threads and other ranks see them.
#include "core/engine/trainer_rounds.h"

namespace covey {
namespace {

// The spans of a port are pieces of the model.
Status PeekAt(RoundsPort* port, int32_t member, std::span<std::byte> model,
              RoundsPort::Seen* seen) {
  std::vector<void*> spans;
  for (const size_t offset : port->layout().offsets_bytes()) spans.push_back(model.data() + offset);
  return port->Peek(member, spans, seen);
}

}  // namespace

Status TrainerRounds::Peek(int32_t member, std::span<std::byte> model,
                           RoundsPort::Seen* seen) const {
  return PeekAt(options_.port, member, model, seen);
}

std::function<Status(std::span<std::byte>, uint64_t*)> TrainerRounds::Published() const {
  return [port = options_.port](std::span<std::byte> model, uint64_t* step) {
    RoundsPort::Seen own;
    const Status seen = PeekAt(port, ToInt(port->group().my_index), model, &own);
    *step = own.step;
    return seen;
  };
}

}  // namespace covey
