// Where the unwinding tables of a piece of code are, found with means older than glibc 2.35.
//
// GCC's static unwinder, which libcovey.so and plug-ins hold, asks _dl_find_object for it. They
// bring their own: find_object.cc defines it, hidden, beside older_glibc.cc. Any thread.
#ifndef COVEY_CORE_BASE_FIND_OBJECT_H_
#define COVEY_CORE_BASE_FIND_OBJECT_H_

#include <dlfcn.h>

namespace covey {

// As _dl_find_object (see its manual), but for dlfo_link_map, which stays null. 0; -1: `pc` is in
// no object, or in one without unwinding tables.
int FindObject(const void* pc, dl_find_object* result);

}  // namespace covey
#endif  // COVEY_CORE_BASE_FIND_OBJECT_H_
