#include "core/replicated/pieces.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"

namespace covey {

Pieces::Pieces(const RoundLayout* layout, const Kernels* kernels)
    : layout_(layout), kernels_(kernels), open_(NewBuffer()) {}

std::unique_ptr<std::byte[]> Pieces::NewBuffer() {
  if (spare_.empty()) return std::make_unique<std::byte[]>(layout_->length_bytes());
  std::unique_ptr<std::byte[]> buffer = std::move(spare_.back());
  spare_.pop_back();
  return buffer;
}

void Pieces::Add(Piece* to, const std::byte* sum, const Contribution& content) {
  for (const RoundLayout::Shard& shard : layout_->shards()) {
    std::byte* at = to->sum.get() + shard.offset_bytes;
    const std::byte* inputs[] = {at, sum + shard.offset_bytes};
    kernels_->reduce({.dtype = shard.dtype, .op = Op::kSum},
                     std::span<const std::byte* const>(inputs), std::span<std::byte* const>(&at, 1),
                     shard.count, Stores::kCached);
  }
  to->content.last = content.last;
  to->content.arrived = content.arrived;
  to->content.count += content.count;
}

void Pieces::Publish(uint64_t step, std::span<const double> hypers) {
  CHECK(pieces_.empty() || step > pieces_.back().content.arrived, "steps grow");
  const Contribution content{.first = step, .last = step, .count = 1, .arrived = step};
  // What is not sent and has no sum says less than the step that comes.
  if (!pieces_.empty() && pieces_.back().is_new && pieces_.back().sum == nullptr)
    pieces_.pop_back();
  // replicated-W7b: a piece that was sent does not grow: the leader may hold it as it was.
  if (!pieces_.empty() && pieces_.back().is_new) {
    Add(&pieces_.back(), open_.get(), content);
  } else {
    Piece piece;
    piece.content = content;
    piece.sum = std::exchange(open_, nullptr);
    pieces_.push_back(std::move(piece));
    open_ = NewBuffer();
  }
  pieces_.back().hypers.assign(hypers.begin(), hypers.end());
}

void Pieces::Skip(uint64_t step) {
  CHECK(pieces_.empty() || step > pieces_.back().content.arrived, "steps grow");
  if (pieces_.empty() || !pieces_.back().is_new) pieces_.emplace_back();
  Contribution* content = &pieces_.back().content;
  content->arrived = step;
  if (content->count == 0) content->first = content->last = step;
}

const Pieces::Piece* Pieces::Send() {
  for (Piece& piece : pieces_) {
    if (piece.is_held) continue;
    // replicated-W7b: one piece is under way at a time, so versions end between two pieces.
    if (piece.is_sent) return nullptr;
    piece.is_new = false;
    piece.is_sent = true;
    return &piece;
  }
  return nullptr;
}

// Where the leader's sum of two is that of what it got; adding them here again gives the same.
void Pieces::OnHeld(const Contribution& content) {
  Piece* first = nullptr;
  for (Piece& piece : pieces_) {
    if (!piece.is_sent || piece.content.arrived > content.arrived) break;
    piece.is_held = true;
    // What is older than all that lies there is in a version, which is not known here yet.
    const bool is_null = piece.sum == nullptr;
    if (!is_null && (content.count == 0 || piece.content.first < content.first)) continue;
    if (first == nullptr && (!is_null || content.count == 0)) {
      first = &piece;
      continue;
    }
    if (first != nullptr) first->content.arrived = piece.content.arrived;
    if (!is_null) {
      Add(first, piece.sum.get(), piece.content);
      first->hypers = piece.hypers;
      spare_.push_back(std::move(piece.sum));
    }
    piece.content = {};
  }
  std::erase_if(pieces_, [](const Piece& piece) { return piece.content.arrived == 0; });
}

void Pieces::OnConsumed(uint64_t step) {
  while (!pieces_.empty() && pieces_.front().content.first <= step) {
    CHECK(pieces_.front().content.last <= step, "a version ends between two pieces");
    if (pieces_.front().sum != nullptr) spare_.push_back(std::move(pieces_.front().sum));
    pieces_.pop_front();
  }
}

void Pieces::OnExecuted(uint64_t version) {
  std::erase_if(pieces_, [version](const Piece& piece) {
    // replicated-W11: a null stays until versions have come as far: the next leader needs it.
    return piece.sum == nullptr && piece.content.arrived <= version;
  });
}

void Pieces::OnNewLeader() {
  // replicated-W7b: what the last leader held is lost with it: all pieces are sent again.
  for (Piece& piece : pieces_) piece.is_sent = piece.is_held = false;
}

std::vector<Contribution> Pieces::contents() const {
  std::vector<Contribution> all;
  for (const Piece& piece : pieces_)
    if (piece.sum != nullptr) all.push_back(piece.content);
  return all;
}

bool Pieces::empty() const {
  return std::all_of(pieces_.begin(), pieces_.end(), [](const Piece& p) { return !p.sum; });
}

bool Pieces::AreAllSent() const {
  return std::all_of(pieces_.begin(), pieces_.end(), [](const Piece& p) { return p.is_sent; });
}

}  // namespace covey
