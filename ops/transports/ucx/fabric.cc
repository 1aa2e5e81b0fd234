#include "ops/transports/ucx/fabric.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <uct/api/uct.h>

#include <cstring>

namespace covey::ucx {
namespace {

// By the name of the transport: rc_verbs, dc_mlx5, ud_verbs, srd.
bool IsRdma(const uct_tl_resource_desc_t& resource) {
  const std::string name = resource.tl_name;
  for (const char* prefix : {"rc_", "dc_", "ud_", "srd"})
    if (name.rfind(prefix, 0) == 0) return true;
  return false;
}

bool HasRdma(uct_component_h component, const char* domain) {
  uct_md_config_t* config = nullptr;
  if (uct_md_config_read(component, nullptr, nullptr, &config) != UCS_OK) return false;
  uct_md_h memory = nullptr;
  const ucs_status_t opened = uct_md_open(component, domain, config, &memory);
  uct_config_release(config);
  if (opened != UCS_OK) return false;
  uct_tl_resource_desc_t* resources = nullptr;
  unsigned count = 0;
  bool found = false;
  if (uct_md_query_tl_resources(memory, &resources, &count) == UCS_OK) {
    for (unsigned i = 0; i < count; ++i) found |= IsRdma(resources[i]);
    uct_release_tl_resource_list(resources);
  }
  uct_md_close(memory);
  return found;
}

bool HasRdma(uct_component_h component) {
  uct_component_attr_t known{};
  known.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME | UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT;
  if (uct_component_query(component, &known) != UCS_OK) return false;
  if (std::strcmp(known.name, "ib") != 0) return false;
  std::string names(known.md_resource_count * sizeof(uct_md_resource_desc_t), '\0');
  auto* domains = reinterpret_cast<uct_md_resource_desc_t*>(names.data());
  known.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
  known.md_resources = domains;
  if (uct_component_query(component, &known) != UCS_OK) return false;
  for (unsigned i = 0; i < known.md_resource_count; ++i)
    if (HasRdma(component, domains[i].md_name)) return true;
  return false;
}

bool IsAt(const sockaddr* interface, const std::string& address) {
  char text[INET6_ADDRSTRLEN] = "";
  in6_addr wanted;
  if (interface == nullptr) return false;
  if (interface->sa_family == AF_INET)
    return inet_pton(AF_INET, address.c_str(), &wanted) == 1 &&
           inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(interface)->sin_addr, text,
                     sizeof(text)) != nullptr &&
           address == text;
  return interface->sa_family == AF_INET6 && inet_pton(AF_INET6, address.c_str(), &wanted) == 1 &&
         std::memcmp(&wanted, &reinterpret_cast<const sockaddr_in6*>(interface)->sin6_addr,
                     sizeof(wanted)) == 0;
}

// Empty: none has it.
std::string InterfaceOf(const std::string& address) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return {};
  std::string name;
  for (const ifaddrs* one = all; one != nullptr && name.empty(); one = one->ifa_next)
    if (IsAt(one->ifa_addr, address)) name = one->ifa_name;
  freeifaddrs(all);
  return name;
}

}  // namespace

bool HasRdma() {
  uct_component_h* components = nullptr;
  unsigned count = 0;
  if (uct_query_components(&components, &count) != UCS_OK) return false;
  bool found = false;
  for (unsigned i = 0; i < count && !found; ++i) found = HasRdma(components[i]);
  uct_release_component_list(components);
  return found;
}

std::string Choose(const std::string& address, bool is_trusted, Fabric* fabric) {
  if (HasRdma()) {
    *fabric = {"ib", ""};
    return {};
  }
  if (!is_trusted)
    return "this host has no InfiniBand or RoCE device that is up, and the network of its "
           "address " +
           address +
           " is not declared trusted. Strangers can end processes that use UCX over TCP: in a "
           "network without strangers set COVEY_TRANSPORT=ucx and COVEY_TRUST_NETWORK=CIDR";
  const std::string name = InterfaceOf(address);
  if (name.empty()) return "no network interface of this host has its address " + address;
  *fabric = {"tcp", name};
  return {};
}

}  // namespace covey::ucx
