#include "core/gossip/far_message.h"

namespace covey {

Bytes FarMessage::Head() const {
  Writer writer;
  writer.Put(static_cast<uint8_t>(kind));
  writer.Put(static_cast<uint8_t>(state));
  writer.Put(uint16_t{0});
  writer.Put(uint32_t{0});
  writer.Put(epoch);
  writer.Put(number);
  return writer.Take();
}

bool FarMessage::Decode(std::span<const std::byte> bytes, FarMessage* message) {
  Reader reader(bytes);
  const auto kind = reader.Get<uint8_t>();
  const auto state = reader.Get<uint8_t>();
  reader.Get<uint16_t>();
  reader.Get<uint32_t>();
  message->kind = static_cast<Kind>(kind);
  message->state = static_cast<FarState>(state);
  message->epoch = reader.Get<uint64_t>();
  message->number = reader.Get<uint64_t>();
  message->body = reader.rest();
  const bool is_known =
      kind >= static_cast<uint8_t>(Kind::kState) && kind <= static_cast<uint8_t>(Kind::kModel);
  return reader.ok() && is_known && state <= static_cast<uint8_t>(FarState::kLeft);
}

}  // namespace covey
