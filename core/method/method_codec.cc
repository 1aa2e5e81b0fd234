#include <algorithm>

#include "core/base/codec_descriptor.h"
#include "core/method/method_common.h"

namespace covey {

const char* CodecHelp(CodecUse use) {
  switch (use) {
    case CodecUse::kGradients:
      return "codec of float32 gradients before they travel, such as int8 or "
             "topk@bits=2+block=512 (covey codecs lists them), as by Compression.of";
    case CodecUse::kModels:
      return "codec of float32 parameters before they travel, such as int8 (covey codecs lists "
             "them): each rank encodes the change since the last average of all";
    case CodecUse::kPairs:
      return "codec of float32 parameters: lattice@8 (4 to 16 bits), each rank decodes the "
             "other's model beside its own, error as small as models are near; or bf16, fp16, "
             "int8, qsgd (covey codecs lists them), of a scale of their own: models come as near "
             "as its steps are small";
    case CodecUse::kNeighbors:
      return "codec of float32 parameters before they travel: bf16, fp16, int8, qsgd (covey codecs "
             "lists them); models come as near as its steps are small";
    case CodecUse::kNone:
      break;
  }
  return "";
}

Status ReadMethodCodec(const Method& method, std::string_view text, std::string* full) {
  full->clear();
  if (text == "off") return Status::Ok();
  if (method.codecs == CodecUse::kNone)
    return Status::InvalidArgument(std::string("the method ") + method.name +
                                   " has no codec: " + method.no_codec +
                                   "; allreduce, local, dpsgd, swarm and adpsgd have codecs");
  CodecText read;
  if (const Status status = ReadCodecText(text, method.codecs, &read); !status.ok())
    return Status::InvalidArgument(std::string("the method ") + method.name + ": " +
                                   status.message());
  *full = read.text;
  std::replace(full->begin(), full->end(), ',', '+');
  return Status::Ok();
}

Status CheckMethodCodec(const MethodChoice& choice) {
  if (choice.codec.empty()) return Status::Ok();
  const MethodPlan plan = choice.method->plan(choice.settings, {.size = 1, .rank = {}}, 0);
  if (plan.admission != Admission::kRounds) return Status::Ok();
  return Status::InvalidArgument(
      std::string("the method ") + choice.method->name +
      " has codecs without max_wait only: with it contributions are summed as they are; leave out "
      "max_wait or codec");
}

}  // namespace covey
