#include "core/agree/stream.h"

#include "core/base/collective.h"

namespace covey {

std::string Describe(const Stream& stream) {
  const Request* front = stream.Front();
  const std::string kind = front != nullptr ? NameOf(front->kind) : "operation";
  if (!stream.name.empty()) return kind + " '" + stream.name + "'";
  return kind + " number " + std::to_string(stream.occurrence) + " of the unnamed operations";
}

}  // namespace covey
