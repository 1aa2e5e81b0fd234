#include "core/device/ferry.h"

#include <algorithm>

namespace covey {
namespace {

constexpr size_t kLine = 64;
// What the schedule writes is handed over in copies of so much, or at the end: each costs the host
// some microseconds.
constexpr size_t kHandOverBytes = size_t{256} << 10;

bool IsInPlace(const Request& r) {
  const auto alike = [](const Tensor& a, const Tensor& b) {
    return a.data == b.data && a.LengthBytes() == b.LengthBytes();
  };
  return std::equal(r.inputs.begin(), r.inputs.end(), r.outputs.begin(), r.outputs.end(), alike);
}

bool ReadsInput(const Request& r) {
  return Gives(r.kind, r.group->members[static_cast<size_t>(ToInt(r.group->my_index))] == r.root);
}

}  // namespace

Passage* Ferry::NewPassage(const Request& request, const Spans& input, const Spans& output) {
  if (free_.empty()) {
    all_.push_back(std::make_unique<Passage>());
    free_.push_back(all_.back().get());
  }
  Passage* p = free_.back();
  free_.pop_back();
  p->from.Clear();
  if (ReadsInput(request)) p->from = input;
  p->to = output;
  p->fetched = false;
  p->in_common = p->is_open = false;
  p->legs.clear();
  p->events_complete = p->legs_come = p->written_begin = p->written_end = 0;
  return p;
}

void Ferry::PointInto(Passage* p, size_t output_offset, Spans* input, Spans* output) {
  const size_t in_bytes = input->length_bytes();
  const size_t out_bytes = output->length_bytes();
  p->input = p->room->data;
  p->output = p->input + output_offset;
  input->Clear();
  input->Add(p->input, in_bytes);
  output->Clear();
  output->Add(p->output, out_bytes);
}

Passage* Ferry::Board(const Request& request, Spans* input, Spans* output) {
  Passage* p = NewPassage(request, *input, *output);
  const size_t in_bytes = input->length_bytes();
  const size_t out_bytes = output->length_bytes();
  const bool one = IsInPlace(request) || !ReadsInput(request);
  const size_t apart = one ? 0 : (in_bytes + kLine - 1) / kLine * kLine;
  p->room = rooms_.Take(one ? std::max(in_bytes, out_bytes) : apart + out_bytes);
  PointInto(p, apart, input, output);
  return p;
}

Passage* Ferry::BoardInCommon(const Request& request, Spans* input, Spans* output) {
  const bool one = !Scatters(request.kind);
  const size_t apart = one ? 0 : (input->length_bytes() + kLine - 1) / kLine * kLine;
  Room* room = common_->Take(one ? input->length_bytes() : apart + output->length_bytes());
  if (room == nullptr) return nullptr;
  Passage* p = NewPassage(request, *input, *output);
  p->in_common = true;
  p->room = room;
  PointInto(p, apart, input, output);
  return p;
}

bool Ferry::Copy(const Passage& p, Device::Queue queue, std::byte* to, const std::byte* from,
                 size_t length_bytes) {
  if (p.in_common) return common_->commons()->Copy(queue, to, from, length_bytes);
  return device_->Copy(queue, to, from, length_bytes);
}

bool Ferry::Fetch(Passage* p, size_t leg_bytes) {
  p->fetched = true;
  const size_t length = p->from.length_bytes();
  const size_t step = leg_bytes == 0 ? length : leg_bytes;
  for (size_t at = 0; at < length; at += step) {
    const size_t part = std::min(step, length - at);
    bool ok = true;
    p->from.ForEach(at, part, [&](const std::byte* piece, size_t delta, size_t bytes) {
      ok = ok && Copy(*p, Device::Queue::kToHost, p->input + at + delta, piece, bytes);
    });
    const uint64_t mark = ok ? device_->Mark(Device::Queue::kToHost) : 0;
    if (mark == 0) return false;
    p->legs.push_back({at + part, mark});
    p->room->to_host = mark;
  }
  if (!p->in_common) counters_.to_host_bytes += length;
  return true;
}

Device::Answer Ferry::HasCome(Passage* p, size_t end) {
  for (; p->legs_come < p->legs.size(); ++p->legs_come) {
    const size_t here = p->legs_come == 0 ? 0 : p->legs[p->legs_come - 1].end;
    if (here >= end) break;
    const uint64_t mark = p->legs[p->legs_come].mark;
    const Device::Answer come = device_->IsReached(Device::Queue::kToHost, mark);
    // device-F2: bytes count as come only when the device has reached the mark behind their copy.
    if (come != Device::Answer::kYes) return come;
  }
  return Device::Answer::kYes;
}

bool Ferry::Wrote(Passage* p, size_t begin, size_t length) {
  if (p->to.length_bytes() == 0 || length == 0) return true;
  if (p->written_end != begin) {
    if (!HandOver(p)) return false;
    p->written_begin = begin;
  }
  p->written_end = begin + length;
  return p->written_end - p->written_begin < kHandOverBytes || HandOver(p);
}

bool Ferry::HandOver(Passage* p) {
  const size_t length = p->written_end - p->written_begin;
  bool ok = true;
  if (length > 0)
    p->to.ForEach(p->written_begin, length, [&](std::byte* piece, size_t delta, size_t bytes) {
      ok = ok &&
           Copy(*p, Device::Queue::kToDevice, piece, p->output + p->written_begin + delta, bytes);
    });
  if (length > 0 && ok) {
    p->room->to_device = device_->Mark(Device::Queue::kToDevice);
    ok = p->room->to_device != 0;
    if (!p->in_common) counters_.to_device_bytes += length;
  }
  p->written_begin = p->written_end;
  return ok;
}

bool Ferry::Leave(Passage* p, const Request& request, bool done) {
  bool ok = !done || HandOver(p);
  Room* room = p->room;
  // device-F3: after a failed exchange copies to the host may still run; streams come after them
  // too.
  const uint64_t coming = p->legs_come < p->legs.size() ? room->to_host : 0;
  const void* last = this;  // no stream
  for (const auto* tensors : {&request.inputs, &request.outputs})
    for (const Tensor& t : *tensors) {
      if (t.stream == last) continue;  // one for all, mostly
      last = t.stream;
      // device-F3: the user's stream comes after the copies to the device, or it reads the old
      // bytes.
      if (room->to_device != 0)
        ok = ok && device_->OrderAfter(t.stream, Device::Queue::kToDevice, room->to_device);
      if (coming != 0) ok = ok && device_->OrderAfter(t.stream, Device::Queue::kToHost, coming);
    }
  free_.push_back(p);
  // Of a device that has failed nobody knows what it still writes, nor of peers' devices when the
  // exchange has ended too early.
  if (ok && !p->in_common) rooms_.GiveBack(room);
  if (ok && p->in_common && (done || !p->is_open)) common_->GiveBack(room);
  return ok;
}

}  // namespace covey
