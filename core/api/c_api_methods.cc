// The C API over core/method/method.h: the list of methods, and a method's plan of a version.
#include "core/api/c_api_methods.h"

#include <cstring>
#include <memory>

#include "core/api/c_api.h"
#include "core/api/runtime_handle.h"
#include "core/api/session.h"
#include "core/base/check.h"
#include "core/method/method.h"

namespace covey {
namespace {

static_assert(static_cast<int>(Payload::kModel) == COVEY_MODEL &&
              static_cast<int>(Payload::kGradients) == COVEY_GRADIENTS &&
              static_cast<int>(Payload::kDelta) == COVEY_DELTA);
static_assert(static_cast<int>(Admission::kAll) == COVEY_ADMIT_ALL &&
              static_cast<int>(Admission::kRounds) == COVEY_ADMIT_ROUNDS &&
              static_cast<int>(Admission::kPairs) == COVEY_ADMIT_PAIRS &&
              static_cast<int>(Admission::kNeighbors) == COVEY_ADMIT_NEIGHBORS);

int64_t WaitOf(const Duration& wait) {
  switch (wait.kind) {
    case Duration::Kind::kOff:
      return COVEY_WAIT_FOREVER;
    case Duration::Kind::kAuto:
      return COVEY_WAIT_AUTO;
    case Duration::Kind::kTime:
      return wait.time;
  }
  return COVEY_WAIT_FOREVER;
}

// The fields of a plan that belong to the method at `version`, not to its step.
void FillLimits(const MethodChoice& choice, const MethodView& view, int64_t version,
                covey_plan* plan) {
  const MethodChoice& here = choice.At(version);
  const MethodPlan own = here.method->plan(here.settings, view, 0);
  const bool in_rounds = own.admission == Admission::kRounds;
  plan->max_wait_ns = COVEY_WAIT_FOREVER;
  if (in_rounds) plan->max_wait_ns = WaitOf(own.rounds.max_wait);
  if (own.admission == Admission::kPairs) plan->max_wait_ns = WaitOf(own.pairs.max_wait);
  if (own.admission == Admission::kNeighbors) plan->max_wait_ns = WaitOf(own.neighbors.max_wait);
  plan->needed = in_rounds ? own.rounds.admit.Needed(view.size) : view.size;
  plan->skips_ahead = in_rounds && own.rounds.skips_ahead ? 1 : 0;
  plan->clip_norm = NormOf(here.clip_norm);
  const std::string& codec = here.codec;
  CHECK(codec.size() < sizeof(plan->codec),
        "a codec's text is longer than covey_plan has room for");
  std::memcpy(plan->codec, codec.c_str(), codec.size() + 1);
}

Status PlanOf(const Use& use, const covey_method* method, covey_group key, int64_t version,
              covey_plan* plan) {
  if (plan == nullptr || plan->struct_size != sizeof(covey_plan))
    return Status::InvalidArgument("plan is NULL, or its struct_size is not that of covey_plan");
  if (version < 0)
    return Status::InvalidArgument("a version is not negative, as " + std::to_string(version) +
                                   " is");
  if (use.get() == nullptr) return use.status();
  const Group* group = use->FindGroup(key);
  if (group == nullptr || ToInt(group->my_index) < 0)
    return Status::InvalidArgument("there is no such group, or this rank is not in it");
  const MethodChoice& choice = ChoiceOf(use, method);
  const MethodView view = ViewOf(*group);
  const MethodPlan made = choice.Plan(view, version);
  // A rank alone never waits: a script for many ranks runs on one as it stands.
  if (made.admission == Admission::kRounds && group->size() > 1)
    if (const Status fits = CheckSize(made.rounds, group->size()); !fits.ok())
      return Status::InvalidArgument("the method " + choice.At(version).OwnText() + " " +
                                     fits.message());
  if (made.admission == Admission::kPairs)
    if (const Status pairs = CheckPairs(TopologyOf(made.pairs, view)); !pairs.ok())
      return Status::InvalidArgument("the method " + choice.At(version).OwnText() + ": " +
                                     pairs.message());
  if (made.admission == Admission::kNeighbors)
    if (const Status there = Check(TopologyOf(made.neighbors, view)); !there.ok())
      return Status::InvalidArgument("the method " + choice.At(version).OwnText() + ": " +
                                     there.message());
  FillLimits(choice, view, version, plan);
  plan->payload = static_cast<covey_payload>(made.payload);
  plan->admission = static_cast<covey_admission>(made.admission);
  plan->group = key;
  plan->until = choice.Until(version);
  plan->local_steps = made.rounds.local_steps;
  plan->warmup = made.rounds.warmup;
  return Status::Ok();
}

Status Parse(const Use& use, const char* text, covey_method** method) {
  if (method == nullptr) return Status::InvalidArgument("method is NULL");
  *method = nullptr;
  auto parsed = std::make_unique<covey_method>();
  if (text != nullptr) {
    RETURN_IF_ERROR(ParseMethod(text, &parsed->choice));
  } else {
    if (use.get() == nullptr) return use.status();
    parsed->choice = use->method();
  }
  *method = parsed.release();
  return Status::Ok();
}

}  // namespace

const MethodChoice& ChoiceOf(const Use& use, const covey_method* method) {
  return method != nullptr ? method->choice : use->method();
}

}  // namespace covey

extern "C" {

size_t covey_methods(char* json, size_t capacity) {
  return covey::Fill(covey::MethodsJson(), json, capacity);
}

covey_code covey_method_parse(covey_runtime* runtime, const char* text, covey_method** method,
                              covey_error* error) {
  const covey::Use use(covey::OrDefault(runtime));
  return covey::Report(covey::Parse(use, text, method), error);
}

void covey_method_free(covey_method* method) { delete method; }

size_t covey_method_text(const covey_method* method, char* out, size_t capacity) {
  return covey::Fill(method == nullptr ? "" : method->choice.Text(), out, capacity);
}

size_t covey_method_at(const covey_method* method, int64_t version, char* out, size_t capacity) {
  const bool known = method != nullptr && version >= 0;
  return covey::Fill(known ? method->choice.At(version).OwnText() : "", out, capacity);
}

covey_code covey_method_plan(covey_runtime* runtime, const covey_method* method, covey_group group,
                             int64_t version, covey_plan* plan, covey_error* error) {
  const covey::Use use(covey::OrDefault(runtime));
  return covey::Report(covey::PlanOf(use, method, group, version, plan), error);
}

}  // extern "C"
