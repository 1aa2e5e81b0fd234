#include "core/transport/open_hosts.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "core/base/clock.h"
#include "core/transport/guarded_link.h"
#include "core/transport/link_agreement.h"
#include "core/transport/over_link.h"
#include "core/transport/peer_book.h"
#include "core/transport/plugin.h"
#include "core/transport/plugin_link.h"
#include "core/transport/trusted_networks.h"

namespace covey {
namespace {

Status OpenLink(std::string_view name, std::string_view plugin_path,
                const covey_link_options& options, std::unique_ptr<PluginLink>* link) {
  Plugin plugin;
  if (const Status opened = Plugin::Open(name, plugin_path, &plugin); !opened.ok())
    return Status::Unsupported("transport " + std::string(name) + ": " + opened.message());
  if (plugin.open_link() == nullptr)
    return Status::Unsupported("the plug-in " + std::string(name) +
                               " is no network for several hosts");
  return PluginLink::Open(name, plugin.open_link(), options, link);
}

Status OpenUcx(std::string_view plugin_path, const covey_link_options& options,
               std::unique_ptr<PluginLink>* link) {
  std::unique_ptr<PluginLink> opened;
  RETURN_IF_ERROR(OpenLink("ucx", plugin_path, options, &opened));
  if (!opened->HasAddress() || opened->Descriptor() < 0)
    return Status::Unsupported("the plug-in ucx is of another version: run covey build ucx");
  *link = std::move(opened);
  return Status::Ok();
}

bool HasUcx(std::string_view plugin_path) {
  Plugin plugin;
  return Plugin::Open("ucx", plugin_path, &plugin).ok();
}

std::string Named(const LinkVerdict& verdict) {
  return "rank " + std::to_string(ToInt(verdict.hindered)) + ": " + verdict.obstacle;
}

// Of tcp's options; what ucx needs besides is added by the caller.
Status OptionsOf(const TransportOptions& options, const std::string& text, const PeerBook& book,
                 covey_link_options* of_link) {
  const auto size = static_cast<int32_t>(book.peers.size());
  const int32_t rank = ToInt(options.rank);
  if (options.size != size || rank < 0 || rank >= size)
    return Status::InvalidArgument("this is rank " + std::to_string(rank) + " of " +
                                   std::to_string(options.size) + ", the book of ranks is of " +
                                   std::to_string(size));
  *of_link = {.rank = rank,
              .size = size,
              .book = text.c_str(),
              .listener = options.listen_fd,
              .lease_ns = options.lease,
              .address = book.peers[static_cast<size_t>(rank)].address.c_str(),
              .is_trusted = 0,
              .streams = options.tcp_streams};
  return Status::Ok();
}

}  // namespace

bool IsOfHosts(std::string_view name) { return name == "auto" || name == "tcp" || name == "ucx"; }

// Descriptors go to all ranks of a host, so each reads from the beginning.
Status ReadBook(const TransportOptions& options, std::string* book) {
  std::array<char, 4096> part;
  ssize_t length = 0;
  while ((length = pread(options.book_fd, part.data(), part.size(),
                         static_cast<off_t>(book->size()))) > 0)
    book->append(part.data(), static_cast<size_t>(length));
  if (length == 0) return Status::Ok();
  return Status::InvalidArgument("cannot read COVEY_BOOK_FD=" + std::to_string(options.book_fd) +
                                 ": " + ErrnoText(errno) +
                                 "; a program between the launcher and this one has closed it");
}

Status OpenHosts(std::string_view name, std::string_view plugin_path,
                 const TransportOptions& options, std::unique_ptr<Transport>* transport) {
  std::string text;
  PeerBook book;
  TrustedNetworks trusted;
  covey_link_options of_link{};
  RETURN_IF_ERROR(ReadBook(options, &text));
  RETURN_IF_ERROR(PeerBook::Parse(text, &book));
  RETURN_IF_ERROR(OptionsOf(options, text, book, &of_link));
  RETURN_IF_ERROR(TrustedNetworks::Parse(options.trust_network, &trusted));
  const Time deadline = MonotonicNow() + options.start_timeout;
  std::unique_ptr<PluginLink> guard;
  std::unique_ptr<PluginLink> fast;
  RETURN_IF_ERROR(OpenLink("tcp", plugin_path, of_link, &guard));
  std::string obstacle = "its COVEY_TRANSPORT is tcp";
  if (name != "tcp") {
    of_link.is_trusted = name == "ucx" && trusted.Contain(of_link.address) ? 1 : 0;
    obstacle = OpenUcx(plugin_path, of_link, &fast).message();
  }
  LinkVerdict verdict;
  RETURN_IF_ERROR(AgreeOnLink(guard.get(), std::move(obstacle), deadline, &verdict));
  const FarPeers::Options of_peers{.arena_bytes = options.arena_bytes};
  const bool tells = options.log != nullptr && of_link.rank == 0;
  if (verdict.hindered == kNoRank) {
    if (tells && book.security == PeerBook::Security::kTls)
      options.log->Write(LogLevel::kWarn, "tensors travel between hosts by ucx, not encrypted");
    std::unique_ptr<GuardedLink> link;
    RETURN_IF_ERROR(GuardedLink::Open(std::move(guard), std::move(fast), &link));
    for (const auto& [from, message] : verdict.early) link->Hear(from, message);
    return OpenOverLink(options, of_peers, std::move(link), {}, transport);
  }
  fast.reset();
  if (name == "ucx")
    return Status::Unsupported(Named(verdict) +
                               "; or leave COVEY_TRANSPORT at auto, which takes tcp then");
  if (tells && name == "auto" && HasUcx(plugin_path))
    options.log->Write(LogLevel::kWarn,
                       "tensors travel between hosts by tcp, not by the plug-in "
                       "ucx. " +
                           Named(verdict));
  return OpenOverLink(options, of_peers, std::move(guard), std::move(verdict.early), transport);
}

}  // namespace covey
