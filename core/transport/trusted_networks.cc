#include "core/transport/trusted_networks.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>

namespace covey {
namespace {

bool Matches(const uint8_t* left, const uint8_t* right, int bits) {
  if (!std::equal(left, left + bits / 8, right)) return false;
  const int rest = 8 - bits % 8;
  return rest == 8 || left[bits / 8] >> rest == right[bits / 8] >> rest;
}

}  // namespace

bool TrustedNetworks::Read(const std::string& text, Address* address) {
  for (const int family : {AF_INET, AF_INET6}) {
    address->family = family;
    if (inet_pton(family, text.c_str(), address->bytes.data()) == 1) return true;
  }
  return false;
}

Status TrustedNetworks::Parse(std::string_view text, TrustedNetworks* networks) {
  *networks = {};
  networks->all_ = text == "yes";
  if (networks->all_) return Status::Ok();
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(part.size() + 1, text.size()));
    const size_t slash = part.find('/');
    Network network;
    bool sound = slash != std::string_view::npos &&
                 Read(std::string(part.substr(0, slash)), &network.address);
    const std::string_view bits = sound ? part.substr(slash + 1) : "";
    const auto [end, error] =
        std::from_chars(bits.data(), bits.data() + bits.size(), network.prefix);
    const int most = network.address.family == AF_INET ? 32 : 128;
    sound &= error == std::errc() && end == bits.data() + bits.size() && network.prefix >= 0 &&
             network.prefix <= most;
    if (!sound)
      return Status::InvalidArgument("COVEY_TRUST_NETWORK: \"" + std::string(part) +
                                     "\" is no network such as 10.1.0.0/16 or fd00:1::/64");
    networks->networks_.push_back(network);
  }
  return Status::Ok();
}

bool TrustedNetworks::Contain(const std::string& address) const {
  Address wanted;
  if (!Read(address, &wanted)) return false;
  return all_ || std::any_of(networks_.begin(), networks_.end(), [&](const Network& network) {
           return network.address.family == wanted.family &&
                  Matches(network.address.bytes.data(), wanted.bytes.data(), network.prefix);
         });
}

}  // namespace covey
