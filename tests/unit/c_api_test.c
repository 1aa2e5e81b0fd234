/* covey.h is C: this file is compiled as C, pedantically, and runs a whole life of a job of one. */
#include <stdio.h>
#include <string.h>

#include "core/api/covey.h"
#include "core/api/covey_methods.h"
#include "core/api/covey_rounds.h"
#include "core/api/covey_waiting.h"
#include "tests/unit/c_expect.h"

/* The plan of the group's step `version` by the method `text`. */
static covey_code PlanOf(const char* text, covey_group group, int64_t version, covey_plan* plan) {
  covey_error error = COVEY_INIT(covey_error);
  covey_method* method = NULL;
  covey_code code = covey_method_parse(NULL, text, &method, &error);
  if (code == COVEY_OK) code = covey_method_plan(NULL, method, group, version, plan, &error);
  covey_method_free(method);
  return code;
}

static int Texts(void) {
  covey_error error = COVEY_INIT(covey_error);
  covey_method* method = NULL;
  char text[16384];
  EXPECT(covey_methods(text, sizeof(text)) > 100 && strstr(text, "\"local_steps\"") != NULL);
  EXPECT(covey_method_parse(NULL, "local:H=0", &method, &error) == COVEY_INVALID_ARGUMENT);
  EXPECT(covey_method_parse(NULL, "nothing", &method, &error) == COVEY_INVALID_ARGUMENT);
  EXPECT(method == NULL);
  EXPECT(covey_method_parse(NULL, NULL, &method, &error) == COVEY_OK); /* that of the knob */
  EXPECT(covey_method_text(method, text, sizeof(text)) == 9 && strcmp(text, "allreduce") == 0);
  covey_method_free(method);
  EXPECT(covey_method_parse(NULL, "local:H=2,then=local@7:H=3", &method, &error) == COVEY_OK);
  EXPECT(covey_method_text(method, text, sizeof(text)) > 0);
  EXPECT(strcmp(text, "local:local_steps=2,then=local@7:local_steps=3") == 0);
  EXPECT(covey_method_at(method, 7, text, sizeof(text)) == 19 &&
         strcmp(text, "local:local_steps=3") == 0);
  EXPECT(covey_method_at(method, -1, text, sizeof(text)) == 0);
  covey_method_free(method);
  return 0;
}

static int Plans(covey_group group) {
  covey_error error = COVEY_INIT(covey_error);
  covey_plan plan = COVEY_INIT(covey_plan);
  EXPECT(PlanOf("local:H=2", group, 1, &plan) == COVEY_OK);
  EXPECT(plan.payload == COVEY_MODEL && plan.admission == COVEY_ADMIT_ALL && plan.group == group);
  EXPECT(plan.until == INT64_MAX && plan.local_steps == 0);
  EXPECT(PlanOf("local:H=2,max_wait=1s", group, 0, &plan) == COVEY_OK);
  EXPECT(plan.payload == COVEY_MODEL && plan.admission == COVEY_ADMIT_ROUNDS);
  EXPECT(plan.local_steps == 2);
  EXPECT(PlanOf("local:then=allreduce@7", group, 1, &plan) == COVEY_OK);
  EXPECT(plan.until == 7);
  EXPECT(plan.max_wait_ns == COVEY_WAIT_FOREVER && plan.needed == 1 && plan.clip_norm == 0);
  EXPECT(plan.codec[0] == 0 && plan.skips_ahead == 0);
  /* One rank alone waits for nobody. */
  EXPECT(PlanOf("eager:admit=99,progress=skip,clip_norm=0.5", group, 0, &plan) == COVEY_OK);
  EXPECT(plan.max_wait_ns == COVEY_WAIT_AUTO && plan.needed == 1 && plan.skips_ahead == 1);
  EXPECT(plan.clip_norm == 0.5);
  /* What holds of a method holds in its warm-up too. */
  EXPECT(PlanOf("dpsgd:max_wait=2s,codec=int8,warmup_steps=3", group, 0, &plan) == COVEY_OK);
  EXPECT(plan.payload == COVEY_GRADIENTS && plan.max_wait_ns == 2000000000);
  EXPECT(strncmp(plan.codec, "int8@", 5) == 0);
  EXPECT(covey_method_plan(NULL, NULL, COVEY_WORLD, 1, &plan, &error) == COVEY_OK);
  EXPECT(plan.payload == COVEY_GRADIENTS && plan.group == COVEY_WORLD);
  EXPECT(covey_method_plan(NULL, NULL, 12345, 1, &plan, &error) == COVEY_INVALID_ARGUMENT);
  EXPECT(covey_method_plan(NULL, NULL, COVEY_WORLD, -1, &plan, &error) == COVEY_INVALID_ARGUMENT);
  EXPECT(covey_method_plan(NULL, NULL, COVEY_WORLD, 0, NULL, &error) == COVEY_INVALID_ARGUMENT);
  return 0;
}

int main(void) {
  covey_error error = COVEY_INIT(covey_error);
  covey_handle handle = 0;
  covey_group group = 0;
  float data[4] = {1, 2, 3, 4};
  const int64_t shape[2] = {2, 2};
  const int32_t ranks[1] = {0};
  int64_t rows[1] = {0};
  char text[16384];
  covey_tensor tensor = COVEY_INIT(covey_tensor);
  covey_tensor result = COVEY_INIT(covey_tensor);
  covey_request request = COVEY_INIT(covey_request);
  void* arena = NULL;

  EXPECT(covey_is_initialized() == 0 && covey_rank(NULL) == -1);
  EXPECT(covey_lost(NULL, NULL, 0) == -1);
  EXPECT(covey_submit(NULL, &request, &handle, &error) == COVEY_NOT_INITIALIZED);
  EXPECT(strstr(error.message, "call init() first") != NULL);
  EXPECT(covey_init(NULL, &error) == COVEY_OK);
  EXPECT(covey_rank(NULL) == 0 && covey_size(NULL) == 1 && covey_local_size(NULL) == 1);
  EXPECT(covey_lost(NULL, NULL, 0) == 0);
  EXPECT(covey_group_of(NULL, ranks, 1, &group, &error) == COVEY_OK &&
         covey_group_ranks(NULL, group, NULL, 0) == 1);

  tensor.ndim = 2;
  tensor.shape = shape;
  tensor.data = data;
  request.name = "x";
  request.op = COVEY_AVERAGE;
  request.postscale = 2;
  request.num_tensors = 1;
  request.inputs = &tensor;
  EXPECT(covey_submit(NULL, &request, &handle, &error) == COVEY_OK);
  EXPECT(covey_wait(NULL, handle, -1, &error) == COVEY_OK && covey_poll(NULL, handle) == 1);
  EXPECT(data[3] == 8);
  covey_release(NULL, handle);
  EXPECT(covey_poll(NULL, handle) == -1);

  request.kind = COVEY_ALLGATHER;
  request.postscale = 0;
  EXPECT(covey_submit(NULL, &request, &handle, &error) == COVEY_OK);
  EXPECT(covey_wait(NULL, handle, -1, &error) == COVEY_OK);
  EXPECT(covey_result(NULL, handle, 0, &result, rows, &error) == COVEY_OK);
  EXPECT(rows[0] == 2 && result.shape[0] == 2 && ((float*)result.data)[3] == 8);
  EXPECT(covey_result(NULL, handle, 1, &result, rows, &error) == COVEY_INVALID_ARGUMENT);
  EXPECT(strstr(error.message, "allgather has one result, of index 0, not 1") != NULL);
  covey_release(NULL, handle);

  request.kind = COVEY_BARRIER;
  request.num_tensors = 0;
  EXPECT(covey_submit(NULL, &request, &handle, &error) == COVEY_OK);
  EXPECT(covey_wait(NULL, handle, -1, &error) == COVEY_OK);
  EXPECT(covey_result(NULL, handle, 0, &result, rows, &error) == COVEY_INVALID_ARGUMENT);
  EXPECT(strstr(error.message, "barrier has no result of its own") != NULL);
  covey_release(NULL, handle);

  EXPECT(covey_arena_alloc(NULL, 100, &arena, &error) == COVEY_OK && ((size_t)arena) % 64 == 0);
  EXPECT(covey_stats(NULL, text, sizeof(text)) < sizeof(text) && text[0] == '{');
  EXPECT(covey_status(NULL, text, sizeof(text)) > 0 && strstr(text, "waits for nothing") != NULL);
  EXPECT(covey_knobs(text, sizeof(text)) > 100);
  EXPECT(Texts() == 0 && Plans(group) == 0);
  EXPECT(strcmp(covey_dtype_name(COVEY_BFLOAT16), "bfloat16") == 0);
  EXPECT(covey_api_version() == COVEY_API_VERSION);
  EXPECT(covey_shutdown(&error) == COVEY_OK && covey_is_initialized() == 0);
  covey_arena_free(arena);
  return 0;
}
