// Where letters go: each gets the attempt of its seat, and what the seat has and knows to be
// decided, as of when it is written, not sent.
#ifndef COVEY_CORE_REPLICATED_OUTBOX_H_
#define COVEY_CORE_REPLICATED_OUTBOX_H_

#include <algorithm>
#include <utility>
#include <vector>

#include "core/replicated/ledger.h"
#include "core/replicated/letter.h"

namespace covey {

struct Post {
  int32_t to = -1;
  Letter letter;
};

// What is to be sent, as bytes.
struct Sealed {
  int32_t to = -1;
  Bytes bytes;
  bool is_word = false;  // nothing follows, and it need not wait for what was not sent
};

class Outbox {
 public:
  // All outlive the outbox.
  Outbox(const uint64_t* attempt, const uint64_t* known, const Ledger* ledger)
      : attempt_(attempt), known_(known), ledger_(ledger) {}

  void Send(int32_t to, Letter letter) {
    letter.attempt = *attempt_;
    letter.executed = ledger_->executed();
    letter.known = known();
    posts_.push_back({to, std::move(letter)});
  }
  bool empty() const { return posts_.empty(); }
  uint64_t known() const { return std::max(*known_, ledger_->executed()); }
  std::vector<Post> Take() { return std::exchange(posts_, {}); }

 private:
  const uint64_t* attempt_;
  const uint64_t* known_;
  const Ledger* ledger_;
  std::vector<Post> posts_;
};

}  // namespace covey
#endif  // COVEY_CORE_REPLICATED_OUTBOX_H_
