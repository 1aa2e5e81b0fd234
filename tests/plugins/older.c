/* A plug-in of an older Covey. */
__attribute__((visibility("default"))) const char* covey_plugin_abi(void);
const char* covey_plugin_abi(void) { return "Covey 0.0.1 (interfaces 0123456789ab)"; }
