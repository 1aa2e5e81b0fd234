#include "core/device/device_transfers.h"

#include <algorithm>

namespace covey {
namespace {

constexpr size_t kLine = 64;
// Output is written back in copies of so much, or at the end: each copy costs the host some
// microseconds.
constexpr size_t kWriteBackBytes = size_t{256} << 10;

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

Transfer* DeviceTransfers::NewTransfer(const Request& request, const Spans& input,
                                       const Spans& output) {
  if (free_.empty()) {
    all_.push_back(std::make_unique<Transfer>());
    free_.push_back(all_.back().get());
  }
  Transfer* p = free_.back();
  free_.pop_back();
  p->from.Clear();
  if (ReadsInput(request)) p->from = input;
  p->to = output;
  p->fetched = false;
  p->by_ipc = p->is_open = false;
  p->chunks.clear();
  p->events_complete = p->chunks_arrived = p->written_begin = p->written_end = 0;
  return p;
}

void DeviceTransfers::PointInto(Transfer* p, size_t output_offset, Spans* input, Spans* output) {
  const size_t in_bytes = input->length_bytes();
  const size_t out_bytes = output->length_bytes();
  p->input = p->buffer->data;
  p->output = p->input + output_offset;
  input->Clear();
  input->Add(p->input, in_bytes);
  output->Clear();
  output->Add(p->output, out_bytes);
}

Transfer* DeviceTransfers::Map(const Request& request, Spans* input, Spans* output) {
  Transfer* p = NewTransfer(request, *input, *output);
  const size_t in_bytes = input->length_bytes();
  const size_t out_bytes = output->length_bytes();
  const bool one = IsInPlace(request) || !ReadsInput(request);
  const size_t apart = one ? 0 : (in_bytes + kLine - 1) / kLine * kLine;
  p->buffer = pinned_.Take(one ? std::max(in_bytes, out_bytes) : apart + out_bytes);
  PointInto(p, apart, input, output);
  return p;
}

Transfer* DeviceTransfers::MapByIpc(const Request& request, Spans* input, Spans* output) {
  const bool one = !Scatters(request.kind);
  const size_t apart = one ? 0 : (input->length_bytes() + kLine - 1) / kLine * kLine;
  StagingBuffer* buffer =
      ipc_buffers_->Take(one ? input->length_bytes() : apart + output->length_bytes());
  if (buffer == nullptr) return nullptr;
  Transfer* p = NewTransfer(request, *input, *output);
  p->by_ipc = true;
  p->buffer = buffer;
  PointInto(p, apart, input, output);
  return p;
}

bool DeviceTransfers::Copy(const Transfer& p, Device::Queue queue, std::byte* to,
                           const std::byte* from, size_t length_bytes) {
  if (p.by_ipc) return ipc_buffers_->ipc_memory()->Copy(queue, to, from, length_bytes);
  return device_->Copy(queue, to, from, length_bytes);
}

bool DeviceTransfers::Fetch(Transfer* p, size_t chunk_bytes) {
  p->fetched = true;
  const size_t length = p->from.length_bytes();
  const size_t step = chunk_bytes == 0 ? length : chunk_bytes;
  for (size_t at = 0; at < length; at += step) {
    const size_t part = std::min(step, length - at);
    bool ok = true;
    p->from.ForEach(at, part, [&](const std::byte* piece, size_t delta, size_t bytes) {
      ok = ok && Copy(*p, Device::Queue::kToHost, p->input + at + delta, piece, bytes);
    });
    const uint64_t mark = ok ? device_->Mark(Device::Queue::kToHost) : 0;
    if (mark == 0) return false;
    p->chunks.push_back({at + part, mark});
    p->buffer->to_host = mark;
  }
  if (!p->by_ipc) counters_.to_host_bytes += length;
  return true;
}

Device::Answer DeviceTransfers::HasCome(Transfer* p, size_t end) {
  for (; p->chunks_arrived < p->chunks.size(); ++p->chunks_arrived) {
    const size_t here = p->chunks_arrived == 0 ? 0 : p->chunks[p->chunks_arrived - 1].end;
    if (here >= end) break;
    const uint64_t mark = p->chunks[p->chunks_arrived].mark;
    const Device::Answer come = device_->IsReached(Device::Queue::kToHost, mark);
    // device-F2: bytes count as come only when the device has reached the mark behind their copy.
    if (come != Device::Answer::kYes) return come;
  }
  return Device::Answer::kYes;
}

bool DeviceTransfers::Wrote(Transfer* p, size_t begin, size_t length) {
  if (p->to.length_bytes() == 0 || length == 0) return true;
  if (p->written_end != begin) {
    if (!WriteBack(p)) return false;
    p->written_begin = begin;
  }
  p->written_end = begin + length;
  return p->written_end - p->written_begin < kWriteBackBytes || WriteBack(p);
}

bool DeviceTransfers::WriteBack(Transfer* p) {
  const size_t length = p->written_end - p->written_begin;
  bool ok = true;
  if (length > 0)
    p->to.ForEach(p->written_begin, length, [&](std::byte* piece, size_t delta, size_t bytes) {
      ok = ok &&
           Copy(*p, Device::Queue::kToDevice, piece, p->output + p->written_begin + delta, bytes);
    });
  if (length > 0 && ok) {
    p->buffer->to_device = device_->Mark(Device::Queue::kToDevice);
    ok = p->buffer->to_device != 0;
    if (!p->by_ipc) counters_.to_device_bytes += length;
  }
  p->written_begin = p->written_end;
  return ok;
}

bool DeviceTransfers::Unmap(Transfer* p, const Request& request, bool done) {
  bool ok = !done || WriteBack(p);
  StagingBuffer* buffer = p->buffer;
  // device-F3: after a failed exchange copies to the host may still run; streams come after them
  // too.
  const uint64_t coming = p->chunks_arrived < p->chunks.size() ? buffer->to_host : 0;
  const void* last = this;  // no stream
  for (const auto* tensors : {&request.inputs, &request.outputs})
    for (const Tensor& t : *tensors) {
      if (t.stream == last) continue;  // one for all, mostly
      last = t.stream;
      // device-F3: the user's stream comes after the copies to the device, or it reads the old
      // bytes.
      if (buffer->to_device != 0)
        ok = ok && device_->OrderAfter(t.stream, Device::Queue::kToDevice, buffer->to_device);
      if (coming != 0) ok = ok && device_->OrderAfter(t.stream, Device::Queue::kToHost, coming);
    }
  free_.push_back(p);
  // A device that has failed, or peers' devices after an early end, may still write the buffer.
  if (ok && !p->by_ipc) pinned_.GiveBack(buffer);
  if (ok && p->by_ipc && (done || !p->is_open)) ipc_buffers_->GiveBack(buffer);
  return ok;
}

}  // namespace covey
