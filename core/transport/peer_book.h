// The book of a job: its key, and where each rank listens. The launcher writes it and hands it to
// the ranks of its host in an inherited memfd, as it holds the key.
//
//   covey book 1
//   key <64 hexadecimal digits>
//   security tls|auth
//   <rank> <lowest rank of its host> <IP address, v4 or v6> <port>       a line for each, in order
//
// Every line ends with a newline, words are parted by one space, and nothing follows.
//
// Values; any thread.
#ifndef COVEY_CORE_TRANSPORT_PEER_BOOK_H_
#define COVEY_CORE_TRANSPORT_PEER_BOOK_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/base/types.h"

namespace covey {

struct PeerBook {
  enum class Security {
    kTls,   // everything is encrypted
    kAuth,  // TLS's handshake proves who is there; the connection goes on in the clear
  };
  struct Peer {
    Rank host = kNoRank;  // the lowest rank of its host
    std::string address;  // as inet_pton takes it
    uint16_t port = 0;
  };
  static constexpr size_t kKeyBytes = 32;

  std::array<uint8_t, kKeyBytes> key{};
  Security security = Security::kTls;
  std::vector<Peer> peers;  // by rank

  // Errors (kInvalidArgument) name the line and the cause, and never show the key.
  static Status Parse(std::string_view text, PeerBook* book);
};

}  // namespace covey
#endif  // COVEY_CORE_TRANSPORT_PEER_BOOK_H_
