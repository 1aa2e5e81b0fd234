// The C API over core/transport/seqlock.h: checks and translates.
#include <vector>

#include "core/api/c_api.h"
#include "core/api/covey_window.h"
#include "core/api/runtime_handle.h"
#include "core/api/session.h"
#include "core/transport/window.h"

namespace covey {
namespace {

constexpr int32_t kMostSpans = 4096;

Status CheckUse(const Use& use) {
  if (use.get() == nullptr) return use.status();
  if (use->transport().words() != nullptr) return Status::Ok();
  return Status::Unsupported(
      "windows need ranks that share memory: all on one host, started by coveyrun (shm)");
}

Status CheckSpans(int32_t count, const void* spans, const int64_t* lengths_bytes) {
  if (count < 0 || count > kMostSpans || (count > 0 && (!spans || !lengths_bytes)))
    return Status::InvalidArgument("windows have 0 to " + std::to_string(kMostSpans) +
                                   " spans, with addresses and lengths");
  return Status::Ok();
}

SeqLock OwnWindow(const Use& use, int64_t place) {
  return WindowAt(&use->transport(), use->rank(), static_cast<uint64_t>(place));
}

Status Open(const Use& use, void* const* spans, const int64_t* lengths_bytes, int32_t count,
            int64_t* place) {
  RETURN_IF_ERROR(CheckUse(use));
  RETURN_IF_ERROR(CheckSpans(count, spans, lengths_bytes));
  if (place == nullptr) return Status::InvalidArgument("window: place is NULL");
  std::vector<SeqLock::Span> known;
  for (int32_t i = 0; i < count; ++i) {
    const auto length_bytes = static_cast<uint64_t>(lengths_bytes[i]);
    const uint64_t offset =
        use->transport().OffsetOf(static_cast<const std::byte*>(spans[i]), length_bytes);
    if (offset == Transport::kNoOffset)
      return Status::InvalidArgument("window: span " + std::to_string(i) +
                                     " is not in the arena (covey_arena_alloc)");
    known.push_back({offset, length_bytes});
  }
  const uint64_t offset = use->AllocBlock(SeqLock::LengthBytes(known.size()));
  if (offset == Transport::kNoOffset)
    return Status::Exhausted("the arena has no room for a window: raise COVEY_ARENA_BYTES");
  *place = static_cast<int64_t>(offset);
  OwnWindow(use, *place).Open(known);
  return Status::Ok();
}

Status Look(const Use& use, int32_t rank, int64_t place, std::span<void* const> to,
            const int64_t* lengths_bytes, covey_window_state* state, int64_t* version) {
  RETURN_IF_ERROR(CheckUse(use));
  RETURN_IF_ERROR(CheckSpans(static_cast<int32_t>(to.size()), to.data(), lengths_bytes));
  if (rank < 0 || rank >= use->size() || place < 0 || place % 64 != 0 || !state || !version)
    return Status::InvalidArgument("window: rank " + std::to_string(rank) + " or place " +
                                   std::to_string(place) + " is none, or state or version is NULL");
  const std::vector<uint64_t> lengths(lengths_bytes, lengths_bytes + to.size());
  uint64_t seen = 0;
  const WindowState found =
      LookAtWindow(&use->transport(), Rank{rank}, static_cast<uint64_t>(place), to, lengths, &seen);
  *state = static_cast<covey_window_state>(found);
  *version = found == WindowState::kNothing ? 0 : static_cast<int64_t>(seen);
  return Status::Ok();
}

}  // namespace
}  // namespace covey

using covey::OrDefault;
using covey::Report;
using covey::Use;

extern "C" {

covey_code covey_window_open(covey_runtime* runtime, void* const* spans,
                             const int64_t* lengths_bytes, int32_t num_spans, int64_t* place,
                             covey_error* error) {
  const Use use(OrDefault(runtime));
  return Report(covey::Open(use, spans, lengths_bytes, num_spans, place), error);
}

void covey_window_begin(covey_runtime* runtime, int64_t place) {
  const Use use(OrDefault(runtime));
  if (covey::CheckUse(use).ok()) covey::OwnWindow(use, place).BeginChange();
}

void covey_window_end(covey_runtime* runtime, int64_t place, int64_t version) {
  const Use use(OrDefault(runtime));
  if (covey::CheckUse(use).ok())
    covey::OwnWindow(use, place).EndChange(static_cast<uint64_t>(version));
}

void covey_window_close(covey_runtime* runtime, int64_t place) {
  const Use use(OrDefault(runtime));
  if (covey::CheckUse(use).ok()) covey::OwnWindow(use, place).Close();
}

covey_code covey_window_look(covey_runtime* runtime, int32_t rank, int64_t place, void* const* to,
                             const int64_t* lengths_bytes, int32_t num_spans,
                             covey_window_state* state, int64_t* version, covey_error* error) {
  const Use use(OrDefault(runtime));
  if (const covey::Status fits = covey::CheckSpans(num_spans, to, lengths_bytes); !fits.ok())
    return Report(fits, error);
  const std::span<void* const> spans(to, static_cast<size_t>(num_spans));
  return Report(covey::Look(use, rank, place, spans, lengths_bytes, state, version), error);
}

}  // extern "C"
