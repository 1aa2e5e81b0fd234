// oneCCL as a contestant of `covey bench`: the functions that frameworks/covey/bench/oneccl.py
// calls.
//
// Made by `covey build oneccl` from oneCCL's wheels: its library for the CPU comes as an archive
// that leaves the hooks of Intel's profiler open; they are null without a profiler.
//
// One thread. A function that fails says why on stderr and returns null or 1.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <oneapi/ccl.hpp>

#define COVEY_SHOWN extern "C" __attribute__((visibility("default")))

COVEY_SHOWN void* __itt_domain_create_ptr__3_0 = nullptr;
COVEY_SHOWN void* __itt_event_create_ptr__3_0 = nullptr;
COVEY_SHOWN void* __itt_event_end_ptr__3_0 = nullptr;
COVEY_SHOWN void* __itt_event_start_ptr__3_0 = nullptr;
COVEY_SHOWN void* __itt_metadata_add_ptr__3_0 = nullptr;
COVEY_SHOWN void* __itt_string_handle_create_ptr__3_0 = nullptr;
COVEY_SHOWN void* __itt_task_begin_ptr__3_0 = nullptr;
COVEY_SHOWN void* __itt_task_end_ptr__3_0 = nullptr;
COVEY_SHOWN void* __itt_thread_set_name_ptr__3_0 = nullptr;

namespace {

struct Peer {
  ccl::shared_ptr_class<ccl::kvs> store;
  std::unique_ptr<ccl::communicator> communicator;
};

// Calls `function`, and `failed` is returned when it throws.
template <class Function, class Result>
Result Guarded(Result failed, Function function) {
  try {
    return function();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "oneCCL: %s\n", error.what());
    return failed;
  }
}

}  // namespace

// Bytes of the address under which the ranks meet.
COVEY_SHOWN int32_t covey_peer_address_bytes(void) {
  return static_cast<int32_t>(sizeof(ccl::kvs::address_type));
}

// Rank 0 fills `address`, the others are given it.
COVEY_SHOWN void* covey_peer_new(int32_t rank, char* address) {
  return Guarded(static_cast<void*>(nullptr), [&]() -> void* {
    ccl::init();
    auto peer = std::make_unique<Peer>();
    ccl::kvs::address_type bytes;
    if (rank == 0) {
      peer->store = ccl::create_main_kvs();
      bytes = peer->store->get_address();
      std::memcpy(address, bytes.data(), bytes.size());
    } else {
      std::memcpy(bytes.data(), address, bytes.size());
      peer->store = ccl::create_kvs(bytes);
    }
    return peer.release();
  });
}

// All ranks, after covey_peer_new.
COVEY_SHOWN int32_t covey_peer_open(void* handle, int32_t rank, int32_t size) {
  auto* peer = static_cast<Peer*>(handle);
  return Guarded(1, [&] {
    auto made = ccl::create_communicator(size, rank, peer->store);
    peer->communicator = std::make_unique<ccl::communicator>(std::move(made));
    return 0;
  });
}

// `times` blocking sums of `count` floats in place.
COVEY_SHOWN int32_t covey_peer_sum(void* handle, float* data, uint64_t count, int64_t times) {
  const auto* peer = static_cast<Peer*>(handle);
  return Guarded(1, [&] {
    for (int64_t i = 0; i < times; ++i) {
      ccl::allreduce(data, data, count, ccl::datatype::float32, ccl::reduction::sum,
                     *peer->communicator)
          .wait();
    }
    return 0;
  });
}

COVEY_SHOWN void covey_peer_delete(void* handle) {
  Guarded(0, [&] {
    delete static_cast<Peer*>(handle);
    return 0;
  });
}
