// An NCCL without a card: the functions of ops/devices/cuda/nccl.h over the driver of
// tests/plugins/driver, for communicators within one process, and these, with which a test plays
// what happens to it.
//
// Communicators are made late, and what is launched reaches its stream only after some questions
// for errors, as with one that does not wait. It is done once all members' streams have come to it.
#ifndef COVEY_TESTS_PLUGINS_NCCL_FAKE_NCCL_H_
#define COVEY_TESTS_PLUGINS_NCCL_FAKE_NCCL_H_

struct FakeNccl {
  void (*reset)();             // all is well again
  void (*be_of)(int version);  // what it says of itself
  void (*never_ready)();       // making a communicator does not end from now on
  void (*refuse)();            // making one fails
  void (*never_abort)();       // an abort that begins from now on never returns
  void (*fail)(int rank);      // the communicators of this rank have an error
  int (*asked)();              // calls of any function
  int (*made)();               // communicators ever made, or begun to be
  int (*left)();               // that are not destroyed or aborted
  int (*aborted)();            // ever
  int (*launched)();           // collectives ever
  int (*inside)();             // members that wait for others in a collective now
  int (*mixed)();              // collectives that members saw as different ones
  int (*without_context)();    // calls that need a current context and had none
};

extern "C" const FakeNccl* fake_nccl();

#endif  // COVEY_TESTS_PLUGINS_NCCL_FAKE_NCCL_H_
