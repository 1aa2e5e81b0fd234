/* While a thread waits in the core: signals, ranks in need, and the end of the runtime. */
#include "frameworks/native/native.h"

int LookAround(void) {
  if (PyErr_CheckSignals() != 0) return -1;
  PyObject* module = PyImport_ImportModule("covey.state");
  PyObject* state = module == NULL ? NULL : PyObject_GetAttrString(module, "state");
  PyObject* answer = state == NULL ? NULL : PyObject_CallMethod(state, "help", NULL);
  Py_XDECREF(state);
  Py_XDECREF(module);
  if (answer == NULL) return -1;
  Py_DECREF(answer);
  return 0;
}

void TellShutdown(covey_error* error) {
  if (error->code != COVEY_NOT_INITIALIZED) return;
  error->code = COVEY_ABORTED;
  PyOS_snprintf(error->message, sizeof(error->message),
                "this rank has shut down while another thread of it waited");
}
