#include "tests/orders/weak_memory.h"

#include <algorithm>
#include <utility>

namespace covey {
namespace {

constexpr size_t kMostCandidates = 4;
// Stores become visible in finite time ([atomics.order]): a loop that waits for one ends.
constexpr uint32_t kMostStale = 2;

bool Acquires(std::memory_order order) {
  return order == std::memory_order_acquire || order == std::memory_order_acq_rel ||
         order == std::memory_order_seq_cst || order == std::memory_order_consume;
}

bool Releases(std::memory_order order) {
  return order == std::memory_order_release || order == std::memory_order_acq_rel ||
         order == std::memory_order_seq_cst;
}

void RaiseAll(std::vector<uint32_t>* to, const std::vector<uint32_t>& from) {
  if (to->size() < from.size()) to->resize(from.size());
  for (size_t i = 0; i < from.size(); ++i) (*to)[i] = std::max((*to)[i], from[i]);
}

uint32_t At(const std::vector<uint32_t>& times, size_t index) {
  return index < times.size() ? times[index] : 0;
}

void RaiseOne(std::vector<uint32_t>* times, size_t index, uint32_t to) {
  if (times->size() <= index) times->resize(index + 1);
  (*times)[index] = std::max((*times)[index], to);
}

}  // namespace

void WeakMemory::View::Join(const View& other) {
  RaiseAll(&at, other.at);
  RaiseAll(&ordered, other.ordered);
  RaiseAll(&fences, other.fences);
}

void WeakMemory::View::Raise(uint32_t location, uint32_t message) {
  RaiseOne(&at, location, message);
}

WeakMemory::WeakMemory(int threads, Pick pick)
    : pick_(std::move(pick)), threads_(static_cast<size_t>(threads)) {}

uint32_t WeakMemory::Add(uint64_t value) {
  locations_.push_back({.messages = {{.value = value, .writer = -1, .view = {}}}, .accesses = {}});
  return static_cast<uint32_t>(locations_.size() - 1);
}

void WeakMemory::Join(int to, int from) {
  Of(to).now.Join(Of(from).now);
  Of(to).acquired.Join(Of(from).now);
}

// ---- The order of seq_cst operations ------------------------------------------------------------

// After what strongly happens before it; -1 unless it is seq_cst.
int WeakMemory::NewNode(int thread, Order order) {
  if (order != std::memory_order_seq_cst) return -1;
  const int node = static_cast<int>(edges_.size());
  edges_.emplace_back();
  visited_.push_back(0);
  for (size_t u = 0; u < threads_.size(); ++u) {
    const std::vector<int>& nodes = threads_[u].nodes;
    const size_t before =
        static_cast<int>(u) == thread ? nodes.size() : At(Of(thread).now.ordered, u);
    if (before > 0) edges_[static_cast<size_t>(nodes[before - 1])].push_back(node);
  }
  return node;
}

// Only from here on: a message that the node itself has written says nothing of it ("strongly").
void WeakMemory::Count(int thread, int node) {
  if (node < 0) return;
  Thread& t = Of(thread);
  t.nodes.push_back(node);
  const auto count = static_cast<uint32_t>(t.nodes.size());
  RaiseOne(&t.now.ordered, static_cast<size_t>(thread), count);
  RaiseOne(&t.acquired.ordered, static_cast<size_t>(thread), count);
}

WeakMemory::Access WeakMemory::AccessOf(int thread, int node, bool is_write,
                                        uint32_t message) const {
  Access access{.is_write = is_write, .message = message, .node = node, .pre = {}};
  if (node >= 0) access.pre.push_back(node);
  for (const uint32_t fence : threads_[static_cast<size_t>(thread)].now.fences)
    if (fence > 0) access.pre.push_back(static_cast<int>(fence) - 1);
  return access;
}

// The nodes that are before `access` because accesses coherence-ordered before it are.
std::vector<int> WeakMemory::Before(const Location& location, const Access& access) const {
  std::vector<int> nodes;
  for (auto other = location.accesses.rbegin(); other != location.accesses.rend(); ++other) {
    const bool is_before = other->is_write
                               ? other->message < access.message ||
                                     (other->message == access.message && !access.is_write)
                               : other->message < access.message;
    if (!is_before) continue;
    nodes.insert(nodes.end(), other->pre.begin(), other->pre.end());
    if (other->is_write && other->node >= 0) break;  // those before it are before its node
  }
  return nodes;
}

// The nodes that are after `access`: they, or what happens before them, have a newer message.
std::vector<int> WeakMemory::After(uint32_t location, const Access& access) const {
  std::vector<int> nodes;
  for (const Access& other : locations_[location].accesses)
    if (other.node >= 0 && other.message > access.message) nodes.push_back(other.node);
  for (const Fenced& fence : fenced_)
    if (At(fence.at, location) > access.message) nodes.push_back(fence.node);
  return nodes;
}

bool WeakMemory::Reaches(const std::vector<int>& from, const std::vector<int>& to) {
  ++search_;
  std::vector<int> open = from;
  while (!open.empty()) {
    const int node = open.back();
    open.pop_back();
    if (visited_[static_cast<size_t>(node)] == search_) continue;
    visited_[static_cast<size_t>(node)] = search_;
    if (std::find(to.begin(), to.end(), node) != to.end()) return true;
    const std::vector<int>& next = edges_[static_cast<size_t>(node)];
    open.insert(open.end(), next.begin(), next.end());
  }
  return false;
}

// Whether S exists with it.
bool WeakMemory::IsPossible(uint32_t location, const Access& access) {
  if (access.pre.empty()) return true;
  std::vector<int> before = access.pre;
  if (access.node >= 0) {
    const std::vector<int> more = Before(locations_[location], access);
    before.insert(before.end(), more.begin(), more.end());
  }
  return !Reaches(After(location, access), before);
}

void WeakMemory::Note(uint32_t location, const Access& access) {
  if (access.pre.empty()) return;
  Location& x = locations_[location];
  if (access.node >= 0)
    for (const int node : Before(x, access))
      if (node != access.node) edges_[static_cast<size_t>(node)].push_back(access.node);
  for (const int after : After(location, access))
    for (const int node : access.pre) edges_[static_cast<size_t>(node)].push_back(after);
  x.accesses.push_back(access);
}

// ---- Accesses -----------------------------------------------------------------------------------

// The messages that the thread may read, the newest first.
std::vector<uint32_t> WeakMemory::Candidates(int thread, uint32_t location, int node) {
  const uint32_t newest = Newest(location);
  const uint32_t oldest = Oldest(thread, location);
  std::vector<uint32_t> candidates{newest};
  const bool is_late = At(Of(thread).stale, location) >= kMostStale;
  for (uint32_t m = newest; m > oldest && candidates.size() < kMostCandidates && !is_late; --m)
    if (IsPossible(location, AccessOf(thread, node, false, m - 1))) candidates.push_back(m - 1);
  return candidates;
}

uint32_t WeakMemory::Choose(int thread, uint32_t location,
                            const std::vector<uint32_t>& candidates) {
  const uint32_t message =
      candidates.size() == 1 ? candidates[0] : candidates[pick_(candidates.size())];
  std::vector<uint32_t>& stale = Of(thread).stale;
  const uint32_t in_a_row = message == Newest(location) ? 0 : At(stale, location) + 1;
  RaiseOne(&stale, location, 0);
  stale[location] = in_a_row;
  return message;
}

void WeakMemory::Acquire(Thread* thread, const Message& message, Order order) {
  thread->acquired.Join(message.view);
  if (Acquires(order)) thread->now.Join(message.view);
}

uint64_t WeakMemory::Load(int thread, uint32_t location, Order order) {
  Thread& t = Of(thread);
  const int node = NewNode(thread, order);
  const uint32_t message = Choose(thread, location, Candidates(thread, location, node));
  Note(location, AccessOf(thread, node, false, message));
  t.now.Raise(location, message);
  t.acquired.Raise(location, message);
  const Message& read = locations_[location].messages[message];
  Acquire(&t, read, order);
  Count(thread, node);
  return read.value;
}

// `continued`: of the message that an exchange has read, whose release sequence it continues.
void WeakMemory::Append(int thread, uint32_t location, uint64_t value, Order order, int node,
                        const View* continued) {
  Thread& t = Of(thread);
  const uint32_t message = Newest(location) + 1;
  t.now.Raise(location, message);
  t.acquired.Raise(location, message);
  Message written{.value = value, .writer = thread, .view = Releases(order) ? t.now : t.released};
  written.view.Raise(location, message);
  if (continued != nullptr) written.view.Join(*continued);
  locations_[location].messages.push_back(std::move(written));
  if (node >= 0 || !t.now.fences.empty()) Note(location, AccessOf(thread, node, true, message));
  Count(thread, node);
}

void WeakMemory::Store(int thread, uint32_t location, uint64_t value, Order order) {
  Append(thread, location, value, order, NewNode(thread, order), nullptr);
}

uint64_t WeakMemory::Exchange(int thread, uint32_t location, Order order,
                              const std::function<uint64_t(uint64_t)>& change) {
  const int node = NewNode(thread, order);
  const Message read = locations_[location].messages.back();
  Acquire(&Of(thread), read, order);
  Append(thread, location, change(read.value), order, node, &read.view);
  return read.value;
}

bool WeakMemory::CompareExchange(int thread, uint32_t location, uint64_t* expected,
                                 uint64_t desired, Order success, Order failure) {
  const std::vector<Message>& messages = locations_[location].messages;
  const uint64_t wanted = *expected;
  // An exchange that fails is a load; one that reads `expected` is of the newest message.
  const bool loads_seq_cst = failure == std::memory_order_seq_cst;
  const int node = NewNode(thread, loads_seq_cst ? failure : std::memory_order_relaxed);
  std::vector<uint32_t> candidates = Candidates(thread, location, node);
  std::erase_if(candidates,
                [&](uint32_t m) { return m != Newest(location) && messages[m].value == wanted; });
  const uint32_t message = Choose(thread, location, candidates);
  *expected = messages[message].value;
  Thread& t = Of(thread);
  if (*expected != wanted) {
    Note(location, AccessOf(thread, node, false, message));
    t.now.Raise(location, message);
    t.acquired.Raise(location, message);
    Acquire(&t, messages[message], failure);
    Count(thread, node);
    return false;
  }
  const Message read = messages[message];
  Acquire(&t, read, success);
  const int written = node >= 0 ? node : NewNode(thread, success);
  Append(thread, location, desired, success, written, &read.view);
  return true;
}

void WeakMemory::Fence(int thread, Order order) {
  Thread& t = Of(thread);
  if (Acquires(order)) t.now.Join(t.acquired);
  const int node = NewNode(thread, order);
  if (node >= 0) {
    for (size_t x = 0; x < locations_.size(); ++x)
      for (const Access& access : locations_[x].accesses) {
        const uint32_t seen = At(t.now.at, x);
        if (access.is_write ? access.message > seen : access.message >= seen) continue;
        for (const int before : access.pre) edges_[static_cast<size_t>(before)].push_back(node);
      }
    fenced_.push_back({.node = node, .at = t.now.at});
    RaiseOne(&t.now.fences, static_cast<size_t>(thread), static_cast<uint32_t>(node) + 1);
    RaiseOne(&t.acquired.fences, static_cast<size_t>(thread), static_cast<uint32_t>(node) + 1);
  }
  if (Releases(order)) t.released = t.now;
  Count(thread, node);
}

// ---- Plain bytes --------------------------------------------------------------------------------

uint32_t WeakMemory::Oldest(int thread, uint32_t location) const {
  return At(threads_[static_cast<size_t>(thread)].now.at, location);
}

uint32_t WeakMemory::Newest(uint32_t location) const {
  return static_cast<uint32_t>(locations_[location].messages.size()) - 1;
}

uint64_t WeakMemory::Show(int thread, uint32_t location, uint32_t message) {
  Thread& t = Of(thread);
  const Message& shown = locations_[location].messages[message];
  t.now.Raise(location, message);
  t.acquired.Raise(location, message);
  t.acquired.Join(shown.view);
  return shown.value;
}

bool WeakMemory::Write(int thread, uint32_t location, uint64_t value) {
  const Message& last = locations_[location].messages.back();
  const bool is_race = last.value != value && last.writer != thread && last.writer >= 0 &&
                       Oldest(thread, location) < Newest(location);
  Append(thread, location, value, std::memory_order_relaxed, -1, nullptr);
  return is_race;
}

}  // namespace covey
