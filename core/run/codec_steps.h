// Performs the steps of a schedule that encode and decode: the counterpart of data_steps.h for
// exchanges with a codec.
//
// Works in pieces of whole blocks that stay in the cache. A segment of a schedule may lie in
// several tensors: a piece that does is gathered first. No state but scratch and the codecs looked
// up; called with the progress lock held.
#ifndef COVEY_CORE_RUN_CODEC_STEPS_H_
#define COVEY_CORE_RUN_CODEC_STEPS_H_

#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/run/codec.h"
#include "core/run/exchange.h"

namespace covey {

class CodecSteps {
 public:
  explicit CodecSteps(const Kernels* kernels) : kernels_(kernels) {}  // outlives this

  // Of a request's codec; null for "". REQUIRES: it is one (validated where it was submitted).
  const ChosenCodec* Find(const std::string& text);

  // REQUIRES: exchange.codec is not null.
  void EncodeFirst(const Exchange& exchange);                  // the begin's part, in slot 0
  void Encode(const Exchange& exchange, const Step& step);     // kEncode
  void Reduce(const Exchange& exchange, const Step& step);     // kReduceCoded
  void Mix(const Exchange& exchange, const Step& step);        // kMixCoded
  void EncodeSum(const Exchange& exchange, const Step& step);  // kEncodeSum
  void DecodeSum(const Exchange& exchange, const Step& step);  // kDecodeSum, kAddDecoded

 private:
  void AddMoved(const Exchange& exchange, const Step& step, size_t at,
                std::span<const float> moved);
  void EncodeRange(const Exchange& exchange, size_t begin_bytes, size_t length_bytes,
                   std::byte* out);

  const Kernels* kernels_;
  std::map<std::string, ChosenCodec> codecs_;  // by text
  std::vector<float> gathered_;
  std::vector<float> decoded_;  // one after the other, of each member
  std::vector<const std::byte*> sources_;
};

}  // namespace covey
#endif  // COVEY_CORE_RUN_CODEC_STEPS_H_
