#include "core/agree/message.h"

namespace covey {

const char* NameOf(MessageType type) {
  switch (type) {
    case MessageType::kAnnounce:
      return "ANNOUNCE";
    case MessageType::kAgreed:
      return "AGREED";
    case MessageType::kError:
      return "ERROR";
    case MessageType::kMissing:
      return "MISSING";
    case MessageType::kWhere:
      return "WHERE";
    case MessageType::kHere:
      return "HERE";
  }
  return "UNKNOWN";
}

Bytes EncodeMessage(const Message& m) {
  Writer w;
  w.Put(static_cast<uint8_t>(m.type));
  w.Put(m.id.group);
  w.PutString(m.id.stream);
  w.Put(m.id.occurrence);
  w.PutList(m.ranks);
  w.Put(m.entry);
  w.Put(m.slot_bytes);
  w.PutList(m.blocks);
  w.Put(static_cast<uint8_t>(m.code));
  w.Put(m.peer);
  w.PutString(m.text);
  if (m.type == MessageType::kAnnounce) Encode(m.signature, &w);
  return w.Take();
}

bool DecodeMessage(std::span<const std::byte> bytes, Message* m) {
  Reader r(bytes);
  const auto type = r.Get<uint8_t>();
  if (type > static_cast<uint8_t>(MessageType::kHere)) return false;
  m->type = MessageType{type};
  m->id.group = r.Get<uint64_t>();
  m->id.stream = r.GetString();
  m->id.occurrence = r.Get<uint32_t>();
  m->ranks = r.GetList<int32_t>();
  m->entry = r.Get<uint32_t>();
  m->slot_bytes = r.Get<uint64_t>();
  m->blocks = r.GetList<uint64_t>();
  const auto code = r.Get<uint8_t>();
  if (code > static_cast<uint8_t>(StatusCode::kInternal)) return false;
  m->code = StatusCode{code};
  m->peer = r.Get<int32_t>();
  m->text = r.GetString();
  if (m->type == MessageType::kAnnounce && !Decode(&r, &m->signature)) return false;
  return r.AtEnd();
}

}  // namespace covey
