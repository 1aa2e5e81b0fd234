/* Goal: a wrong call of the C API is an error that says what is wrong, whatever is NULL or
 * impossible in it; the next call works.
 * Method: a job of one; each function with what it must not get. A process that ends in between has
 * followed a NULL. */
#include <stdio.h>
#include <string.h>

#include "core/api/covey.h"
#include "core/api/covey_control.h"
#include "core/api/covey_methods.h"
#include "core/api/covey_neighbors.h"
#include "core/api/covey_rounds.h"
#include "core/api/covey_values.h"
#include "tests/unit/c_expect.h"

#define WRONG(call, part)                        \
  do {                                           \
    error.code = COVEY_OK;                       \
    EXPECT((call) == COVEY_INVALID_ARGUMENT);    \
    EXPECT(strstr(error.message, part) != NULL); \
  } while (0)

static int Life(void) {
  covey_error error = COVEY_INIT(covey_error);
  covey_config config = COVEY_INIT(covey_config);
  covey_runtime* runtime = NULL;
  WRONG(covey_runtime_new(NULL, NULL, &error), "runtime is NULL");
  config.struct_size = 3;
  WRONG(covey_init(&config, &error), "covey_config");
  WRONG(covey_runtime_new(&config, &runtime, &error), "struct_size");
  EXPECT(runtime == NULL && covey_is_initialized() == 0);
  WRONG(covey_plugin_check(NULL, &error), "NULL");
  WRONG(covey_control_open(NULL, NULL, &error), "NULL");
  return 0;
}

/* Texts: NULL has no room, whatever the capacity. */
static int Texts(void) {
  EXPECT(covey_stats(NULL, NULL, 100) > 0 && covey_status(NULL, NULL, 100) > 0);
  EXPECT(covey_knobs(NULL, 100) > 100 && covey_methods(NULL, 100) > 100);
  EXPECT(covey_method_text(NULL, NULL, 100) == 0 && covey_codecs(NULL, 100) > 100);
  return 0;
}

static int Methods(void) {
  covey_error error = COVEY_INIT(covey_error);
  covey_method* method = NULL;
  WRONG(covey_method_parse(NULL, "local", NULL, &error), "method is NULL");
  WRONG(covey_method_parse(NULL, "lokal", &method, &error), "local");
  EXPECT(method == NULL);
  EXPECT(covey_method_parse(NULL, "local", &method, &error) == COVEY_OK && method != NULL);
  EXPECT(covey_method_text(method, NULL, 100) > 0 && covey_method_at(method, -1, NULL, 100) == 0);
  covey_method_free(method);
  covey_method_free(NULL);
  return 0;
}

static int Groups(void) {
  covey_error error = COVEY_INIT(covey_error);
  const int32_t ranks[1] = {0};
  covey_group apart;
  WRONG(covey_group_of(NULL, ranks, 1, NULL, &error), "group is NULL");
  WRONG(covey_group_apart(NULL, COVEY_WORLD, "a", NULL, &error), "apart is NULL");
  WRONG(covey_group_apart(NULL, COVEY_WORLD, NULL, &apart, &error), "order is NULL");
  WRONG(covey_group_apart(NULL, COVEY_WORLD, "", &apart, &error), "order is empty");
  WRONG(covey_group_apart(NULL, 7, "a", &apart, &error), "no such group: 7");
  EXPECT(covey_group_ranks(NULL, COVEY_WORLD, NULL, 3) == 1);
  return 0;
}

static int Memory(void) {
  covey_error error = COVEY_INIT(covey_error);
  void* data = &error;
  size_t less;
  WRONG(covey_arena_alloc(NULL, 100, NULL, &error), "data is NULL");
  for (less = 0; less < 300; ++less)
    EXPECT(covey_arena_alloc(NULL, (size_t)-1 - less, &data, &error) == COVEY_EXHAUSTED &&
           data == NULL);
  EXPECT(covey_arena_alloc(NULL, 0, &data, &error) == COVEY_OK && data != NULL);
  covey_arena_free(data);
  WRONG(covey_codec_bytes("int8", 100, NULL, &error), "bytes is NULL");
  return 0;
}

static int Results(void) {
  covey_error error = COVEY_INIT(covey_error);
  covey_handle handle = 0;
  float data[2] = {1, 2};
  const int64_t shape[1] = {2};
  covey_tensor tensor = COVEY_INIT(covey_tensor);
  covey_tensor result = COVEY_INIT(covey_tensor);
  covey_request request = COVEY_INIT(covey_request);
  tensor.ndim = 1;
  tensor.shape = shape;
  tensor.data = data;
  request.kind = COVEY_ALLGATHER;
  request.num_tensors = 1;
  request.inputs = &tensor;
  EXPECT(covey_submit(NULL, &request, &handle, &error) == COVEY_OK);
  EXPECT(covey_wait(NULL, handle, -1, &error) == COVEY_OK);
  WRONG(covey_result(NULL, handle, 0, NULL, NULL, &error), "result is NULL");
  WRONG(covey_result_take(NULL, handle, 0, NULL, NULL, &error), "result is NULL");
  EXPECT(covey_result_take(NULL, handle, 0, &result, NULL, &error) == COVEY_OK);
  covey_free(result.data);
  covey_release(NULL, handle);
  return 0;
}

static int Tensors(void) {
  covey_error error = COVEY_INIT(covey_error);
  covey_handle handle = 0;
  float data[4] = {1, 2, 3, 4};
  const int64_t shape[1] = {2};
  const int64_t huge[2] = {INT64_MAX, 7};
  covey_tensor input = COVEY_INIT(covey_tensor);
  covey_tensor output = COVEY_INIT(covey_tensor);
  covey_neighbors neighbors = COVEY_INIT(covey_neighbors);
  covey_request request = COVEY_INIT(covey_request);
  input.ndim = output.ndim = 1;
  input.shape = output.shape = shape;
  input.data = data;
  output.data = data + 1;
  request.num_tensors = 1;
  request.inputs = &input;
  request.outputs = &output;
  WRONG(covey_submit(NULL, &request, &handle, &error), "an output overlaps its input");
  output.data = data + 2;
  EXPECT(covey_submit(NULL, &request, &handle, &error) == COVEY_OK);
  EXPECT(covey_wait(NULL, handle, -1, &error) == COVEY_OK && data[3] == 2);
  covey_release(NULL, handle);
  request.outputs = NULL;
  input.ndim = 2;
  input.shape = huge;
  WRONG(covey_submit(NULL, &request, &handle, &error), "[9223372036854775807, 7]");
  input.ndim = 1;
  input.shape = shape;
  request.kind = COVEY_NEIGHBOR_ALLREDUCE;
  request.neighbors = &neighbors;
  neighbors.own_weight = 1;
  neighbors.num_sources = 1;
  WRONG(covey_submit(NULL, &request, &handle, &error), "sources or weights is NULL");
  return 0;
}

static int Rounds(void) {
  covey_error error = COVEY_INIT(covey_error);
  covey_rounds_config config = COVEY_INIT(covey_rounds_config);
  covey_rounds rounds = 0;
  const covey_dtype dtypes[1] = {COVEY_FLOAT32};
  const int64_t counts[1] = {4};
  config.name = "r";
  covey_method* method = NULL;
  EXPECT(covey_method_parse(NULL, "eager", &method, &error) == COVEY_OK);
  config.method = method;
  config.op = COVEY_AVERAGE;
  config.num_spans = 1;
  config.dtypes = dtypes;
  config.counts = counts;
  EXPECT(covey_rounds_open(NULL, &config, &rounds, &error) == COVEY_OK);
  covey_method_free(method); /* It is not needed after open. */
  WRONG(covey_rounds_spans(NULL, rounds, NULL, &error), "spans is NULL");
  WRONG(covey_rounds_withdraw(NULL, rounds, NULL, &error), "spans is NULL");
  WRONG(covey_rounds_hold(NULL, rounds, 1, NULL, NULL, &error), "spans is NULL");
  WRONG(covey_rounds_hold(NULL, rounds, -1, NULL, NULL, &error), "the version negative");
  WRONG(covey_rounds_give(NULL, rounds, 1, NULL, NULL, 1, &error), "parts or lengths is NULL");
  covey_rounds_close(NULL, rounds);
  return 0;
}

int main(void) {
  covey_error error = COVEY_INIT(covey_error);
  EXPECT(Life() == 0 && Texts() == 0);
  EXPECT(covey_init(NULL, &error) == COVEY_OK);
  EXPECT(Texts() == 0 && Methods() == 0 && Groups() == 0 && Memory() == 0 && Results() == 0 &&
         Tensors() == 0);
  EXPECT(Rounds() == 0);
  return covey_shutdown(&error);
}
