#include "core/run/data_steps.h"

#include <algorithm>

namespace covey {
namespace {

constexpr size_t kMixElems =
    2048;  // of kMix, at a time: partial sums stay in the first-level cache

constexpr size_t kWorthAPut = 32 * 1024;  // bytes of a piece

std::byte* InSlot(const Exchange& x, const Buffer& b) {
  return x.Slot(static_cast<size_t>(b.index), b.slot) + b.offset;
}

std::span<const Rank> PeersOf(const Exchange& x, const Step& step) {
  const std::vector<Rank>& members = x.request->group->members;
  if (step.peer == kEveryRank) return members;
  return std::span(members).subspan(static_cast<size_t>(step.peer), 1);
}

}  // namespace

// The pieces of one end of a copy: own input or output may lie in several, everything else is one.
template <typename Fn>
void DataSteps::ForEachPiece(const Exchange& x, const Buffer& b, size_t length_bytes, Fn fn) const {
  if (b.place == Place::kLanding) return fn(InSlot(x, b), size_t{0}, length_bytes);
  const Spans& spans = b.place == Place::kInput ? x.input : x.output;
  spans.ForEach(b.offset, length_bytes, fn);
}

void DataSteps::Copy(const Exchange& x, const Step& step) {
  const bool staged = step.dst.place == Place::kLanding && x.streaming;
  const Stores stores = step.streaming || staged ? Stores::kStreaming : Stores::kCached;
  ForEachPiece(x, step.dst, step.length_bytes, [&](std::byte* dst, size_t delta, size_t length) {
    Buffer from = step.src;
    from.offset += delta;
    ForEachPiece(x, from, length, [&](const std::byte* src, size_t within, size_t part) {
      if (dst + within != src) kernels_->copy(dst + within, src, part, stores);
    });
  });
}

int DataSteps::Fetch(const Exchange& x, const Step& step) {
  const auto peer = static_cast<size_t>(step.src.index);
  const Placement& theirs = x.CellOf(peer)->placement[x.Turn()];
  const uint64_t address =
      step.src.place == Place::kInput ? theirs.input_address : theirs.output_address;
  std::byte* to = step.dst.place == Place::kLanding ? InSlot(x, step.dst)
                                                    : x.output.Contiguous() + step.dst.offset;
  return reader_->ReadPeer(x.request->group->members[peer], address + step.src.offset, to,
                           step.length_bytes);
}

void DataSteps::ReduceFetched(const Exchange& x, const Step& step) {
  sources_.clear();
  const std::byte* fetched = x.Slot(x.Me(), 0);
  for (size_t j = 0; j < x.size(); ++j) {
    if (j == x.Me()) {
      sources_.push_back(x.input.Contiguous() + step.dst.offset);
    } else {
      sources_.push_back(fetched);
      fetched += step.stride;
    }
  }
  std::byte* output = x.output.Contiguous() + step.dst.offset;
  kernels_->reduce(x.reduction, sources_, {&output, 1},
                   step.length_bytes / SizeOf(x.reduction.dtype),
                   step.streaming ? Stores::kStreaming : Stores::kCached);
}

// In pieces that stay in the cache, in rank order; the own input may be the output, so a piece is
// written when all of it has been read.
void DataSteps::Mix(const Exchange& x, const Step& step) {
  const DType dtype = x.reduction.dtype;
  const size_t elem_bytes = SizeOf(dtype);
  partial_.resize(kMixElems * SizeOf(AccumulatorOf(dtype)));
  // neighbors-G2: a rank mixes by the weights of its own row.
  const PeerTable own = x.PeersOf(x.Me());
  const auto mix = [&](const std::byte* input, std::byte* output, size_t at, size_t length) {
    sources_.clear();
    weights_.clear();
    for (size_t j = 0; j < x.size(); ++j) {
      if (WeightOf(own, j) == 0) continue;
      sources_.push_back(j == x.Me() ? input : x.Slot(j, step.src.slot) + step.src.offset + at);
      weights_.push_back(WeightOf(own, j));
    }
    for (size_t done = 0; done < length; done += kMixElems * elem_bytes) {
      const size_t count = std::min(kMixElems, (length - done) / elem_bytes);
      for (size_t i = 0; i < sources_.size(); ++i) {
        const Reduction weighted{dtype, Op::kSum, weights_[i]};
        const auto combine = i == 0 ? kernels_->begin : kernels_->add;
        combine(weighted, sources_[i] + done, partial_.data(), count);
      }
      kernels_->finish({dtype, Op::kSum}, partial_.data(), output + done, count);
    }
  };
  x.output.ForEach(step.dst.offset, step.length_bytes,
                   [&](std::byte* out, size_t delta, size_t length) {
                     x.input.ForEach(step.input_offset + delta, length,
                                     [&](const std::byte* in, size_t within, size_t part) {
                                       mix(in, out + within, delta + within, part);
                                     });
                   });
}

void DataSteps::Sum(const Exchange& x, const Step& step) {
  const Kernels& kernels = *kernels_;
  const size_t elem_bytes = SizeOf(x.reduction.dtype);
  const size_t widening = SizeOf(AccumulatorOf(x.reduction.dtype)) / elem_bytes;
  if (step.kind == StepKind::kFinishSum) {
    const std::byte* acc = InSlot(x, step.src);
    x.output.ForEach(
        step.dst.offset, step.length_bytes, [&](std::byte* piece, size_t delta, size_t length) {
          kernels.finish(x.reduction, acc + delta * widening, piece, length / elem_bytes);
        });
    return;
  }
  std::byte* acc = InSlot(x, step.dst);
  if (step.kind == StepKind::kCombineSums) {
    const Reduction sums{AccumulatorOf(x.reduction.dtype), x.reduction.op};
    sources_ = {InSlot(x, step.src), InSlot(x, step.also)};
    return kernels.reduce(sums, sources_, {&acc, 1}, step.length_bytes / elem_bytes,
                          Stores::kCached);
  }
  if (step.kind == StepKind::kAddToSum)
    kernels.copy(acc, InSlot(x, step.src), step.length_bytes * widening, Stores::kCached);
  const auto combine = step.kind == StepKind::kBeginSum ? kernels.begin : kernels.add;
  x.input.ForEach(step.input_offset, step.length_bytes,
                  [&](const std::byte* piece, size_t delta, size_t length) {
                    combine(x.reduction, piece, acc + delta * widening, length / elem_bytes);
                  });
}

// In pieces that stay in the cache where partial sums are wider than what they sum up.
void DataSteps::SumHost(const Exchange& x, const Step& step) {
  const DType dtype = x.reduction.dtype;
  const size_t elem_bytes = SizeOf(dtype);
  const size_t widening = SizeOf(AccumulatorOf(dtype)) / elem_bytes;
  const Reduction partial{dtype, x.reduction.op, x.reduction.prescale};
  std::byte* sums = InSlot(x, step.dst);
  const auto sum = [&](const std::byte* own, size_t at, size_t length) {
    sources_.clear();
    for (const int16_t j : x.schedule->host) {
      const auto member = static_cast<size_t>(j);
      sources_.push_back(member == x.Me() ? own
                                          : x.Slot(member, step.src.slot) + step.src.offset + at);
    }
    if (widening == 1) {
      std::byte* to = sums + at;
      return kernels_->reduce(partial, sources_, {&to, 1}, length / elem_bytes, Stores::kCached);
    }
    for (size_t done = 0; done < length; done += kMixElems * elem_bytes) {
      const size_t count = std::min(kMixElems, (length - done) / elem_bytes);
      for (size_t i = 0; i < sources_.size(); ++i)
        (i == 0 ? kernels_->begin : kernels_->add)(partial, sources_[i] + done,
                                                   sums + (at + done) * widening, count);
    }
  };
  x.input.ForEach(step.input_offset, step.length_bytes, sum);
}

// A sum of one contribution, unscaled, is what was contributed, bit for bit.
bool DataSteps::ReducesToItself(const Exchange& x) {
  const Reduction& r = x.reduction;
  return x.size() == 1 && r.prescale == 1 && r.postscale == 1 && r.divisor == 1;
}

void DataSteps::Reduce(const Exchange& x, const Step& step) {
  if (step.src.place == Place::kInput) return ReduceInArena(x, step);
  const size_t elem_bytes = SizeOf(x.reduction.dtype);
  const Stores stores = step.streaming ? Stores::kStreaming : Stores::kCached;
  const bool reduces_to_itself = ReducesToItself(x);
  const auto reduce = [&](const std::byte* own, std::byte* output, size_t at, size_t length) {
    if (reduces_to_itself) {
      if (own != output) kernels_->copy(output, own, length, stores);
      return;
    }
    sources_.clear();
    for (size_t j = 0; j < x.size(); ++j)
      sources_.push_back(j == x.Me() ? own : x.Slot(j, step.src.slot) + step.src.offset + at);
    kernels_->reduce(x.reduction, sources_, {&output, 1}, length / elem_bytes, stores);
  };
  ForEachPiece(x, step.dst, step.length_bytes, [&](std::byte* out, size_t delta, size_t length) {
    x.input.ForEach(step.input_offset + delta, length,
                    [&](const std::byte* own, size_t within, size_t part) {
                      reduce(own, out + within, delta + within, part);
                    });
  });
}

void DataSteps::ReduceStaged(const Exchange& x) {
  std::byte* output = x.output.First();
  const std::byte* own = x.input.First();
  const size_t length = x.input.length_bytes();
  if (ReducesToItself(x)) {
    if (own != output) kernels_->copy(output, own, length, Stores::kCached);
    return;
  }
  sources_.resize(x.size());
  for (size_t j = 0; j < x.size(); ++j) sources_[j] = j == x.Me() ? own : x.Slot(j, 0);
  kernels_->reduce(x.reduction, sources_, {&output, 1}, length / SizeOf(x.reduction.dtype),
                   Stores::kCached);
}

// The pieces of all members lie alike, so one's own tell where the others' are.
void DataSteps::ReduceInArena(const Exchange& x, const Step& step) {
  const size_t elem_bytes = SizeOf(x.reduction.dtype);
  const bool everywhere = step.dst.index == kEveryRank;
  const auto reduce = [&](const std::byte* input, std::byte* output, size_t length) {
    // In place the lines are in the cache already: storing around it would only throw them out.
    const bool streaming = step.streaming && input != output;
    sources_.clear();
    targets_.clear();
    for (size_t j = 0; j < x.size(); ++j) {
      const Placement& theirs = x.CellOf(j)->placement[x.Turn()];
      std::byte* base = regions_->Base(x.request->group->members[j]);
      sources_.push_back(base + theirs.input + (input - x.input.First()));
      if (everywhere) targets_.push_back(base + theirs.output + (output - x.output.First()));
    }
    if (!everywhere) targets_.push_back(output);
    kernels_->reduce(x.reduction, sources_, targets_, length / elem_bytes,
                     streaming ? Stores::kStreaming : Stores::kCached);
  };
  x.output.ForEach(step.dst.offset, step.length_bytes,
                   [&](std::byte* out, size_t delta, size_t length) {
                     x.input.ForEach(step.src.offset + delta, length,
                                     [&](const std::byte* in, size_t within, size_t part) {
                                       reduce(in, out + within, part);
                                     });
                   });
}

void PushStep(const Exchange& x, const Step& step, SharedRegions* regions) {
  regions->Push(PeersOf(x, step), InSlot(x, step.src), step.length_bytes);
}

// Its pieces are put from where they lie; many small ones are copied to the slot: a put costs about
// as much as a copy of kWorthAPut.
void DataSteps::Put(const Exchange& x, const Step& step) {
  size_t pieces = 0;
  x.input.ForEach(step.src.offset, step.length_bytes,
                  [&](const std::byte*, size_t, size_t) { ++pieces; });
  std::byte* slot = InSlot(x, step.dst);
  if (step.length_bytes < pieces * kWorthAPut) {
    Copy(x, step);
    return regions_->Push(PeersOf(x, step), slot, step.length_bytes);
  }
  x.input.ForEach(step.src.offset, step.length_bytes,
                  [&](const std::byte* input, size_t delta, size_t length) {
                    regions_->PushAs(PeersOf(x, step), slot + delta, input, length);
                  });
}

}  // namespace covey
