// The networks that the user declares free of strangers: COVEY_TRUST_NETWORK, "CIDR,CIDR" or "yes"
// for every one.
//
// A value; any thread.
#ifndef COVEY_CORE_TRANSPORT_TRUSTED_NETWORKS_H_
#define COVEY_CORE_TRANSPORT_TRUSTED_NETWORKS_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace covey {

class TrustedNetworks {
 public:
  // Empty: none. Error (kInvalidArgument): no such text, by its part.
  static Status Parse(std::string_view text, TrustedNetworks* networks);
  // `address` as inet_pton takes it, v4 or v6.
  bool Contain(const std::string& address) const;

 private:
  struct Address {
    int family = 0;
    std::array<uint8_t, 16> bytes{};
  };
  struct Network {
    Address address;
    int prefix = 0;  // bits
  };
  static bool Read(const std::string& text, Address* address);

  bool all_ = false;
  std::vector<Network> networks_;
};

}  // namespace covey
#endif  // COVEY_CORE_TRANSPORT_TRUSTED_NETWORKS_H_
