/* covey_control.h is C: this file is compiled as C, pedantically. Without the plug-in, opening says
 * so; what an opened one does is in contract/control_test. */
#include <stdio.h>
#include <string.h>

#include "core/api/covey_control.h"
#include "tests/unit/c_expect.h"

int main(void) {
  covey_error error = COVEY_INIT(covey_error);
  covey_control_config config = COVEY_INIT(covey_control_config);
  covey_control* control = NULL;
  config.address = "127.0.0.1:0";
  EXPECT(covey_control_open(&config, &control, &error) == COVEY_UNSUPPORTED && control == NULL);
  EXPECT(strstr(error.message, "the plug-in libcovey_grpc.so is in none of the places") != NULL);
  config.struct_size = 1;
  EXPECT(covey_control_open(&config, &control, &error) == COVEY_INVALID_ARGUMENT);
  EXPECT(control == NULL && strstr(error.message, "covey_control_config has another size") != NULL);
  covey_control_close(NULL);
  return 0;
}
