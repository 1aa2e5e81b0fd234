// lattice: float32 elements as whole numbers modulo 2^bits, for a receiver that has something near
// them itself: its own model is the reference, so that models need no scale of their own.
//
// Encoding rounds x / step at random to a whole number k, up with the probability of what is cut
// off, and writes k modulo q = 2^bits. Decoding takes the number that is equal to it modulo q and
// nearest to reference / step. It is k when |x - reference| <= (q/2 - 1.5) step; then the error is
// below one step (beside float32's rounding), and its expectation is 0. Further away it is another
// one, and looks no different: therefore each chunk carries a hash of its k, the sum of each times
// a random odd number of 64 bits that belongs to its place. A wrongly decoded element is off by
// multiples of q: found for one element always, for several but for one in 2^(64 - bits). The
// elements of that chunk have to be sent whole.
//
// A chunk is 16 bytes, step (float32), a spare word and hash, then bits/8 bytes per element: with 8
// bits and chunks of 1024 1.016 bytes. One with a NaN, an infinity or |x / step| >= 2^50 is marked
// and never decoded.
//
// Registered as core/run/reference_codec.h has it, one chunk at a time; not in the catalogue of
// core/run/codec.h: those decode without a reference.
//
// Davies, Gurunathan, Moshrefi, Ashkboos, Alistarh: New Bounds For Distributed Mean Estimation and
// Variance Reduction, ICLR 2021, arXiv:2002.09268 (the cubic lattice); Nadiradze et al.: SwarmSGD,
// NeurIPS 2021, arXiv:1910.12308. Neither detects what was decoded wrongly.
// Keeps no state, allocates nothing; any thread.
#ifndef COVEY_OPS_CODECS_LATTICE_H_
#define COVEY_OPS_CODECS_LATTICE_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/kernels.h"
#include "core/run/reference_codec.h"

namespace covey {

struct LatticeForm {
  int bits = 8;               // 2 to 16, of which bits * 8 elements are whole bytes
  size_t chunk_elems = 1024;  // a multiple of 8, 1024 at most

  size_t Chunks(size_t count) const { return (count + chunk_elems - 1) / chunk_elems; }
  size_t ChunkBytes(size_t count) const;  // of one chunk of so many elements
  size_t EncodedBytes(size_t count) const;
  // How far an element may be from its reference.
  double Reach(double step) const { return ((int64_t{1} << (bits - 1)) - 1.5) * step; }
};

// Writes EncodedBytes(x.size()) bytes, a function of the other arguments alone, whatever the
// kernels. REQUIRES: step > 0.
void EncodeLattice(const Kernels& kernels, const LatticeForm& form, float step,
                   std::span<const float> x, uint64_t seed, std::byte* out);

// Chunk `number` of x.size() = reference.size() elements, into the same place of `to`, which may be
// `reference`.
ReferenceChunk DecodeLattice(const Kernels& kernels, const LatticeForm& form, const std::byte* in,
                             std::span<const float> reference, size_t number, std::span<float> to);

}  // namespace covey
#endif  // COVEY_OPS_CODECS_LATTICE_H_
