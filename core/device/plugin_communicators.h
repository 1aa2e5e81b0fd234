// Communicators over the functions of a plug-in written in C (core/device/covey_circuits.h).
#ifndef COVEY_CORE_DEVICE_PLUGIN_COMMUNICATORS_H_
#define COVEY_CORE_DEVICE_PLUGIN_COMMUNICATORS_H_

#include <string>

#include "core/device/communicators.h"

namespace covey {

class PluginCommunicators final : public Communicators {
 public:
  // `communicators` belongs to the device and outlives this.
  explicit PluginCommunicators(const covey_circuits& communicators) : c_(communicators) {}

  uint64_t Device() override { return c_.device; }
  Answer Offers() override { return AnswerOf(c_.offers(c_.self)); }
  std::string Trouble() override { return c_.trouble(c_.self); }
  Answer MakeId(CommunicatorId* id) override { return AnswerOf(c_.make_id(c_.self, id->data())); }
  Communicator* Open(const CommunicatorId& id, int32_t me, int32_t size) override {
    return c_.open(c_.self, id.data(), me, size);
  }
  Answer IsReady(Communicator* x) override { return AnswerOf(c_.is_ready(c_.self, x)); }
  bool After(Communicator* x, void* event) override { return c_.after(c_.self, x, event) == 0; }
  bool Launch(Communicator* x, const covey_circuit_work& work) override {
    return c_.launch(c_.self, x, &work) == 0;
  }
  Answer IsLaunched(Communicator* x, uint64_t* mark) override {
    return AnswerOf(c_.is_launched(c_.self, x, mark));
  }
  Answer IsDone(Communicator* x, uint64_t mark) override {
    return AnswerOf(c_.is_done(c_.self, x, mark));
  }
  void Abort(Communicator* x) override { c_.abort(c_.self, x); }
  bool IsOver(Communicator* x) override { return c_.is_over(c_.self, x) == 1; }
  void GiveUp(Communicator* x) override { c_.give_up(c_.self, x); }
  std::string Failure(Communicator* x) override { return c_.failure(c_.self, x); }

 private:
  static Answer AnswerOf(int answer) {
    if (answer < 0) return Answer::kFailed;
    return answer > 0 ? Answer::kYes : Answer::kNotYet;
  }

  const covey_circuits& c_;
};

}  // namespace covey
#endif  // COVEY_CORE_DEVICE_PLUGIN_COMMUNICATORS_H_
