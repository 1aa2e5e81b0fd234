// Words of all members, one of each, in few bytes: members are mostly alike, or differ in few ways.
//
// Groups of words follow one another:
//
//   group       bytes                                                  stands for
//   run         2 count      first  step                               count words, each by `step`
//                                                                      more than the last
//   dictionary  2 count + 1  number of values  first  more ...  bits   count words: for each the
//                                                                      index of its value
//
// All numbers are varints (core/base/wire.h). `first` is told by its difference from the last word
// before the group; that and `step` are zigzag numbers: 0, -1, 1, -2, ... as 0, 1, 2, 3, ... The
// values of a dictionary ascend, each told by how much `more` it is. An index has as many bits as
// the highest one needs, the lowest bit first, and the last byte is filled up with zeros.
//
// So words that are equal, or count members, take a few bytes, however many there are; words of two
// kinds a bit each; any words 12 bytes each at most. Pure.
#ifndef COVEY_CORE_REPLICATED_PACKED_WORDS_H_
#define COVEY_CORE_REPLICATED_PACKED_WORDS_H_

#include <cstdint>
#include <span>

#include "core/base/wire.h"

namespace covey {

// The most bytes of a packed word.
inline constexpr size_t kMostPackedBytes = 12;

void PackWords(std::span<const uint64_t> words, Writer* writer);
// Reads words.size() words. False: the bytes are malformed, and `words` has undefined content.
bool UnpackWords(Reader* reader, std::span<uint64_t> words);

}  // namespace covey
#endif  // COVEY_CORE_REPLICATED_PACKED_WORDS_H_
