/* A library that has the name of a plug-in and is none. */
__attribute__((visibility("default"))) int stranger(void);
int stranger(void) { return 1; }
