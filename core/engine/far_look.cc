#include "core/engine/far_look.h"

namespace covey {

Bytes FarLook::Head() const {
  Writer writer;
  writer.Put(static_cast<uint8_t>(kind));
  writer.Put(static_cast<uint8_t>(question.wants_model));
  writer.Put(static_cast<uint8_t>(answer.state));
  writer.Pad(sizeof(uint64_t));
  writer.Put(question.part);
  writer.Put(question.begun);
  writer.Put(answer.version);
  writer.Put(answer.step);
  writer.Put(uint64_t{0});
  return writer.Take();
}

bool FarLook::Decode(std::span<const std::byte> bytes, FarLook* look) {
  Reader reader(bytes);
  const auto kind = reader.Get<uint8_t>();
  const auto wants_model = reader.Get<uint8_t>();
  const auto state = reader.Get<uint8_t>();
  for (size_t i = 3; i < sizeof(uint64_t); ++i) reader.Get<uint8_t>();
  look->kind = static_cast<Kind>(kind);
  look->question.wants_model = wants_model == 1;
  look->answer.state = static_cast<WindowState>(state);
  look->question.part = reader.Get<int64_t>();
  look->question.begun = reader.Get<uint64_t>();
  look->answer.version = reader.Get<int64_t>();
  look->answer.step = reader.Get<uint64_t>();
  reader.Get<uint64_t>();
  look->answer.model = reader.rest();
  const bool is_known =
      kind >= static_cast<uint8_t>(Kind::kAsk) && kind <= static_cast<uint8_t>(Kind::kClosed);
  return reader.ok() && is_known && wants_model <= 1 &&
         state <= static_cast<uint8_t>(WindowState::kClosed);
}

}  // namespace covey
