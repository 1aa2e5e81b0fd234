#include "core/agree/message.h"

#include <iterator>

namespace covey {
namespace {

bool HasSignature(MessageType type) {
  return type == MessageType::kAnnounce || type == MessageType::kShadow;
}

bool HasPlan(MessageType type) {
  return type == MessageType::kFreeze || type == MessageType::kFrozen ||
         type == MessageType::kSwitch || type == MessageType::kRetire ||
         type == MessageType::kIdle || type == MessageType::kDrop;
}

}  // namespace

const char* NameOf(MessageType type) {
  constexpr const char* kNames[] = {"ANNOUNCE", "AGREED", "ERROR", "FREEZE", "FROZEN",
                                    "SWITCH",   "BREAK",  "JOIN",  "JOINED", "ALL_JOINED",
                                    "SHADOW",   "RETIRE", "IDLE",  "DROP",   "DROPPED",
                                    "MISSING",  "WHO",    "WHERE", "HERE"};
  static_assert(std::size(kNames) == static_cast<size_t>(MessageType::kHere) + 1);
  return kNames[static_cast<int>(type)];
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
  w.Put(m.depth);
  w.PutList(m.blocks);
  w.Put(static_cast<uint8_t>(m.code));
  w.Put(m.peer);
  w.PutString(m.text);
  if (m.type == MessageType::kAnnounce) {
    w.Put(m.waits);
    w.Put(m.submitted_at);
    w.PutList(m.peers);
  }
  if (m.type == MessageType::kMissing) w.Put(m.waited);
  if (HasSignature(m.type)) Encode(m.signature, &w);
  if (HasPlan(m.type)) {
    w.Put(static_cast<uint32_t>(m.members.size()));
    for (const PlanMember& member : m.members) {
      w.PutString(member.stream);
      w.Put(member.entry);
      w.Put(member.occurrence);
    }
  }
  return w.Take();
}

bool DecodeMessage(std::span<const std::byte> bytes, Message* m) {
  Reader r(bytes);
  const auto type = r.Get<uint8_t>();
  if (type > static_cast<uint8_t>(MessageType::kHere)) return false;
  m->type = MessageType{type};
  m->id.group = r.Get<uint64_t>();
  m->id.stream = r.GetString();
  m->id.occurrence = r.Get<uint64_t>();
  m->ranks = r.GetList<int32_t>();
  m->entry = r.Get<uint32_t>();
  m->slot_bytes = r.Get<uint64_t>();
  m->depth = r.Get<uint32_t>();
  if (m->depth < kMinLandingSlots || m->depth > kMaxLandingSlots) return false;
  m->blocks = r.GetList<uint64_t>();
  const auto code = r.Get<uint8_t>();
  if (code >= kNumStatusCodes) return false;
  m->code = StatusCode{code};
  m->peer = r.Get<int32_t>();
  m->text = r.GetString();
  if (m->type == MessageType::kAnnounce) {
    m->waits = r.Get<uint64_t>();
    m->submitted_at = r.Get<Time>();
    m->peers = r.GetList<uint64_t>();
  }
  if (m->type == MessageType::kMissing) m->waited = r.Get<Time>();
  if (HasSignature(m->type) && !Decode(&r, &m->signature)) return false;
  const uint32_t planned = HasPlan(m->type) ? r.Get<uint32_t>() : 0;
  for (uint32_t i = 0; i < planned && r.ok(); ++i) {
    PlanMember& member = m->members.emplace_back();
    member.stream = r.GetString();
    member.entry = r.Get<uint32_t>();
    member.occurrence = r.Get<uint64_t>();
  }
  return r.AtEnd();
}

}  // namespace covey
