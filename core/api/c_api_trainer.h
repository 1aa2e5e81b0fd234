// Shared parts of the C API over core/engine/trainer_driver.h.
#ifndef COVEY_CORE_API_C_API_TRAINER_H_
#define COVEY_CORE_API_C_API_TRAINER_H_

#include "core/api/c_api.h"
#include "core/api/covey_trainer.h"
#include "core/api/runtime_handle.h"
#include "core/base/status.h"
#include "core/engine/trainer_driver.h"

namespace covey {

// The step with which it ends; kForever: none.
int64_t EndOf(const covey_trainer_config& config);

// Why a part of the training cannot be opened, alike on all members. REQUIRES: Trainer::Check.
Status CheckParts(const Use& use, const covey_trainer_config& config, const TrainerLayout& layout);

// Memory for the exchanges of all parts of the training. False: there is no room.
bool AllocateMemory(const Use& use, const covey_trainer_config& config, size_t length_bytes,
                    TrainerDriver::Memory* memory);

// Opens the rounds and pairs of all parts of the training, now that all members are there.
Status OpenParts(const Use& use, covey_runtime* runtime, const covey_trainer_config& config,
                 TrainerDriver* driver);

// Null: there is none of this number, as NoSuchTrainer says.
TrainerDriver* FindTrainer(const Use& use, covey_trainer number);
Status NoSuchTrainer(const Use& use);

// `call` with the trainer of this number.
template <typename Call>
covey_code WithTrainer(covey_runtime* runtime, covey_trainer number, covey_error* error,
                       Call call) {
  const Use use(OrDefault(runtime));
  TrainerDriver* trainer = FindTrainer(use, number);
  return Report(trainer == nullptr ? NoSuchTrainer(use) : call(use, trainer), error);
}

}  // namespace covey
#endif  // COVEY_CORE_API_C_API_TRAINER_H_
