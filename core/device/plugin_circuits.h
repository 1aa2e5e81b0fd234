// Circuits made of what a plug-in written in C offers (core/device/covey_circuits.h).
#ifndef COVEY_CORE_DEVICE_PLUGIN_CIRCUITS_H_
#define COVEY_CORE_DEVICE_PLUGIN_CIRCUITS_H_

#include <string>

#include "core/device/circuits.h"

namespace covey {

class PluginCircuits final : public Circuits {
 public:
  // `circuits` belongs to the device and outlives this.
  explicit PluginCircuits(const covey_circuits& circuits) : c_(circuits) {}

  uint64_t Device() override { return c_.device; }
  Answer Offers() override { return AnswerOf(c_.offers(c_.self)); }
  std::string Trouble() override { return c_.trouble(c_.self); }
  Answer MakeId(CircuitId* id) override { return AnswerOf(c_.make_id(c_.self, id->data())); }
  Circuit* Open(const CircuitId& id, int32_t me, int32_t size) override {
    return c_.open(c_.self, id.data(), me, size);
  }
  Answer IsReady(Circuit* x) override { return AnswerOf(c_.is_ready(c_.self, x)); }
  bool After(Circuit* x, void* event) override { return c_.after(c_.self, x, event) == 0; }
  bool Launch(Circuit* x, const covey_circuit_work& work) override {
    return c_.launch(c_.self, x, &work) == 0;
  }
  Answer IsLaunched(Circuit* x, uint64_t* mark) override {
    return AnswerOf(c_.is_launched(c_.self, x, mark));
  }
  Answer IsDone(Circuit* x, uint64_t mark) override {
    return AnswerOf(c_.is_done(c_.self, x, mark));
  }
  void Abort(Circuit* x) override { c_.abort(c_.self, x); }
  bool IsOver(Circuit* x) override { return c_.is_over(c_.self, x) == 1; }
  void GiveUp(Circuit* x) override { c_.give_up(c_.self, x); }
  std::string Failure(Circuit* x) override { return c_.failure(c_.self, x); }

 private:
  static Answer AnswerOf(int answer) {
    if (answer < 0) return Answer::kFailed;
    return answer > 0 ? Answer::kYes : Answer::kNotYet;
  }

  const covey_circuits& c_;
};

}  // namespace covey
#endif  // COVEY_CORE_DEVICE_PLUGIN_CIRCUITS_H_
