// A Link over UCX behind the door of tcp keeps the contract of links (link_cases.h) and lets in
// nothing without its token.
// Method: UCX's TCP on the loopback interface.
#include <ucp/api/ucp.h>

#include "core/transport/guarded_link.h"
#include "ops/transports/ucx/packet.h"
#include "tests/unit/ops/transports/link_cases.h"

extern "C" covey_open_link_function covey_open_ucx_link;

namespace covey {
namespace {

std::unique_ptr<Link> Guarded(std::unique_ptr<Link> tcp, const covey_link_options& options) {
  std::unique_ptr<PluginLink> fast;
  EXPECT_EQ(PluginLink::Open("ucx", covey_open_ucx_link, options, &fast), Status::Ok());
  std::unique_ptr<GuardedLink> link;
  EXPECT_EQ(GuardedLink::Open(std::move(tcp), std::move(fast), &link), Status::Ok());
  return link;
}

INSTANTIATE_TEST_SUITE_P(Ucx, LinkTest, ::testing::Values(Engine{"auth", Guarded}),
                         [](const auto&) { return "ucx"; });

}  // namespace
}  // namespace covey
