// Gradients scaled down to a largest norm: R. Pascanu, T. Mikolov, Y. Bengio, "On the difficulty of
// training recurrent neural networks", ICML 2013, arXiv:1211.5063. Pure; any thread.
#ifndef COVEY_CORE_TRAIN_CLIP_NORM_H_
#define COVEY_CORE_TRAIN_CLIP_NORM_H_

#include "core/base/kernels.h"
#include "core/train/layout.h"

namespace covey {

// The Euclidean norm of all elements together, summed in float64; NaN where one is. REQUIRES:
// floating-point pieces.
double GradientNorm(const TrainerLayout& layout, const std::byte* gradients,
                    const Kernels& kernels);

// Scales by limit / (norm + 1e-6) if that is less than 1, as torch.nn.utils.clip_grad_norm_ does.
void ClipNorm(const TrainerLayout& layout, double limit, const Kernels& kernels,
              std::byte* gradients);

}  // namespace covey
#endif  // COVEY_CORE_TRAIN_CLIP_NORM_H_
