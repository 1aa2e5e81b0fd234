/* Values: number types, and codecs of them. A part of the C API, with the conventions
 * of covey.h; no runtime is needed. Any thread. */
#ifndef COVEY_CORE_API_COVEY_VALUES_H_
#define COVEY_CORE_API_COVEY_VALUES_H_

#include "core/api/covey.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How many of `count` elements at `data` are NaN or infinite; 0 for types that have none such. */
COVEY_API int64_t covey_count_not_finite(covey_dtype dtype, const void* data, int64_t count);

/* to[i] becomes the lengths_bytes[i] bytes at from[i], for each i below `count`; no overlap. Goes
 * past the caches: for much that is not read again soon. */
COVEY_API void covey_copy_past_caches(void* const* to, void* const* from,
                                      const int64_t* lengths_bytes, size_t count);

/* All codecs, as JSON: [{"name", "card", "parameters": [{"name", "default", "minimum", "maximum",
 * "multiple"}]}], those last that are for models of two ranks (`codec` of a method) and which
 * requests do not have. The buffer rule of covey_stats. */
COVEY_API size_t covey_codecs(char* json, size_t capacity);

/* Whether there is a codec of this text, and, if asked for, whether error feedback makes sense
 * with it. COVEY_INVALID_ARGUMENT: there is none: what there is, and the nearest;
 * COVEY_UNSUPPORTED: one that is right in expectation, which needs no feedback. */
COVEY_API covey_code covey_codec_check(const char* codec, int32_t feeds_back, covey_error* error);

/* The part of a rank's contribution that a codec loses, which error feedback adds to the rank's
 * next contribution: residual[i] = contribution[i] - what arrives of it; 0 where it cannot be coded
 * (NaN). A request of such contributions says feeds_back. Both are float32 [count] and do not
 * overlap. Errors: as covey_codec_check. */
COVEY_API covey_code covey_codec_residual(const char* codec, const float* contribution,
                                          int64_t count, float* residual, covey_error* error);

/* A codec by itself. `count` float32 become as many bytes as covey_codec_bytes says. Random numbers
 * depend on `seed` and place alone. A codec that decodes beside something near takes its `step`,
 * more than 0, and decode's `elements` are the reference before; others ignore `step`. Errors: as
 * covey_codec_check; COVEY_MISMATCH: the encoded model lies too far from the reference. */
COVEY_API covey_code covey_codec_bytes(const char* codec, int64_t count, int64_t* bytes,
                                       covey_error* error);
COVEY_API covey_code covey_codec_encode(const char* codec, const float* elements, int64_t count,
                                        uint64_t seed, float step, void* codes, covey_error* error);
COVEY_API covey_code covey_codec_decode(const char* codec, const void* codes, int64_t count,
                                        float* elements, covey_error* error);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* COVEY_CORE_API_COVEY_VALUES_H_ */
