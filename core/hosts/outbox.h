// Where letters go: each gets the attempt of its seat, and what the seat knows to be decided, as of
// when it is written, not sent.
#ifndef COVEY_CORE_HOSTS_OUTBOX_H_
#define COVEY_CORE_HOSTS_OUTBOX_H_

#include <utility>
#include <vector>

#include "core/hosts/ledger.h"
#include "core/hosts/letter.h"

namespace covey {

struct Post {
  int32_t to = -1;
  Letter letter;
};

// What is to be sent, as bytes.
struct Sealed {
  int32_t to = -1;
  Bytes bytes;
};

class Outbox {
 public:
  // Both outlive the outbox.
  Outbox(const uint64_t* attempt, const Ledger* ledger) : attempt_(attempt), ledger_(ledger) {}

  void Send(int32_t to, Letter letter) {
    letter.attempt = *attempt_;
    letter.executed = ledger_->executed();
    posts_.push_back({to, std::move(letter)});
  }
  bool empty() const { return posts_.empty(); }
  std::vector<Post> Take() { return std::exchange(posts_, {}); }

 private:
  const uint64_t* attempt_;
  const Ledger* ledger_;
  std::vector<Post> posts_;
};

}  // namespace covey
#endif  // COVEY_CORE_HOSTS_OUTBOX_H_
