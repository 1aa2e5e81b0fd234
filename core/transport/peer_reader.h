// Reading a peer's private memory.
#ifndef COVEY_CORE_TRANSPORT_PEER_READER_H_
#define COVEY_CORE_TRANSPORT_PEER_READER_H_

#include <cstddef>
#include <cstdint>

#include "core/base/types.h"

namespace covey {

class PeerReader {
 public:
  virtual ~PeerReader() = default;

  // This rank's own answer, probed when the job began.
  virtual bool CanReadPeers() const = 0;
  // Copies from `address` in the address space of `peer`. 0, or an errno.
  virtual int ReadPeer(Rank peer, uint64_t address, std::byte* to, size_t length_bytes) = 0;
};

}  // namespace covey
#endif  // COVEY_CORE_TRANSPORT_PEER_READER_H_
