// When versions fire, as a method's plan has it. Pure.
#ifndef COVEY_CORE_API_ADMISSION_RULE_H_
#define COVEY_CORE_API_ADMISSION_RULE_H_

#include "core/method/method.h"
#include "core/partial/arrivals.h"

namespace covey {

// A grace below 0: one of so many parts of what a step of the rank takes.
AdmissionRule RuleOf(const MethodRounds& rounds);

}  // namespace covey
#endif  // COVEY_CORE_API_ADMISSION_RULE_H_
