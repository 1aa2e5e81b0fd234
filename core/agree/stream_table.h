// The streams of a rank by group and name, and which of them have not been used for long (the
// patience of core/agree/retire.h).
//
// A name that was dropped and comes again gets more patience. The names that were dropped are known
// by hash in a table of fixed size, in which the later one stays: what is remembered is bounded.
#ifndef COVEY_CORE_AGREE_STREAM_TABLE_H_
#define COVEY_CORE_AGREE_STREAM_TABLE_H_

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/agree/stream.h"

namespace covey {

struct RetireRules {
  uint64_t patience = 0;  // submissions of a rank; 0: nothing is retired
  size_t batch = 32;      // new names of a group between two looks
};

class StreamTable {
 public:
  StreamTable(Rank self, const RetireRules& rules) : self_(self), rules_(rules) {}

  // The stream that this request is a use of; its memo, if any, remembers it.
  Stream* Use(const Request& request);
  // The stream whose next occurrence `request` would be, where it would begin at once, alone and
  // in-band if it fits the last entry; null otherwise.
  Stream* ToRepeat(const Request& request) const;
  // That occurrence has been carried out.
  void OnRepeated(Stream* stream);
  // null: nothing of it has been submitted.
  Stream* Find(const OperationId& id) const;
  // All, in the order of their first use (reports; deterministic).
  const std::deque<std::unique_ptr<Stream>>& all() const { return streams_; }

  // Not used for as long as its patience, by the submissions of this rank.
  bool IsUnused(const Stream& stream) const {
    return stream.patience != 0 && submissions_ - stream.last_used >= stream.patience;
  }
  // A group whose streams are to be looked at for unused ones, since enough new names have come to
  // it; null: none. REQUIRES of those that have any: this rank coordinates them.
  const Group* TakeGroup();
  bool HasGroup() const { return !look_at_.empty(); }
  // The name is dropped: it counts anew. One that holds a request stays, with more patience; any
  // other is gone with the next Sweep.
  void Drop(Stream* stream);
  void Sweep();
  // Memos of names that are gone; the caller clears them.
  std::vector<NameMemo*>& forgotten() { return forgotten_; }

 private:
  struct Key {
    uint64_t group;
    std::string_view name;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const {
      return std::hash<std::string_view>()(key.name) ^ (key.group * 0x9e3779b97f4a7c15u);
    }
  };
  struct Dropped {
    uint64_t hash = 0;
    uint64_t patience = 0;
  };

  Stream* Known(const Request& request) const;  // null: it is the first of its name
  Stream* FindOrMake(const Request& request);
  void OnNewName(Stream* stream);

  Rank self_;
  RetireRules rules_;
  std::deque<std::unique_ptr<Stream>> streams_;
  std::unordered_map<Key, Stream*, KeyHash> by_key_;  // keys point into the streams' names
  std::array<Dropped, 1024> dropped_{};
  std::map<uint64_t, size_t> new_names_;  // by group, since the last look at it
  std::vector<const Group*> look_at_;
  std::vector<NameMemo*> forgotten_;
  uint64_t submissions_ = 0;
};

}  // namespace covey
#endif  // COVEY_CORE_AGREE_STREAM_TABLE_H_
