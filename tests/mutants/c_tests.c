/* Tests in C that are programs of their own, for caught.cc. */
int MisuseMain(void);

#define main MisuseMain
#include "tests/unit/c_api_misuse_test.c"
