"""Mutants of memory orders, and the cases of orders/ that must catch them."""

load(":mutants.bzl", "mutant_table", "mutated_sources")

# The rest of what the cases run.
_ORDER_SOURCES = [
    "sim/mutants/mutants.h",
    "sim/simulator/fiber.cc",
    "sim/simulator/fiber.h",
    "//ops/transports:shm.h",
    "//ops/transports:shm_job.cc",
    "//ops/transports:shm_job.h",
    "//ops/transports:shm_watch.cc",
    "//ops/transports:shm_watch.h",
    "//ops/transports:shm_words.h",
]

# Mutant -> the files it changes, and the case that is to find it (orders/cases.h).
_ORDER_MUTANTS = {
    "order_arm_is_relaxed": (["core/transport/one_shot.cc"], "shot"),
    "order_consume_shows_nothing": (["core/transport/one_shot.cc"], "shot"),
    "order_end_is_relaxed": (["core/engine/tensor_queue.cc"], "driving"),
    "order_exchange_is_relaxed": (["ops/transports/shm_words.cc"], "pairs"),
    "order_exchange_lets_writes_pass": (["ops/transports/shm_words.cc"], "window"),
    "order_hold_is_released": (["core/partial/log.cc"], "hold"),
    "order_kick_has_no_fence": (["core/engine/engine.cc"], "engine"),
    "order_load_is_relaxed": (["ops/transports/shm_words.cc"], "pairs"),
    "order_load_lets_reads_pass": (["ops/transports/shm_words.cc"], "window"),
    "order_lock_is_freed_late": (["core/engine/engine.cc"], "driving"),
    "order_parked_is_read_early": (["ops/transports/shm.cc"], "mail"),
    "order_parked_is_set_relaxed": (["core/transport/mirrored.cc"], "mirrored"),
    "order_queue_is_counted_late": (["core/engine/tensor_queue.cc"], "driving"),
    "order_retract_lets_writes_pass": (["core/partial/snapshots.cc"], "snapshot"),
    "order_sleeper_has_no_fence": (["ops/transports/shm.cc"], "tick"),
    "order_store_is_relaxed": (["ops/transports/shm_words.cc"], "rounds"),
    "order_tick_is_raised_early": (["ops/transports/shm.cc"], "tick"),
    "order_tick_is_read_relaxed": (["ops/transports/shm.cc"], "tick"),
    "order_ticket_is_relaxed": (["ops/transports/shm_words.cc"], "event"),
    "order_waiter_is_counted_late": (["core/engine/engine.cc"], "driving"),
    "order_waker_has_no_fence": (["ops/transports/shm.cc"], "tick"),
}

# The sources that a case runs over a stage of its own.
_STAGED = [
    "core/engine/engine.cc",
    "core/engine/tensor_queue.cc",
    "core/transport/mirrored.cc",
    "core/transport/one_shot.cc",
]

def order_tests(folder, **kwargs):
    """A test of memory orders, with a case for each mutant of _ORDER_MUTANTS: see orders/README.md.

    Every source of it is compiled with orders/std_atomics.h in front, those of the mutants too;
    those of _STAGED are parts of the files with their cases.
    """
    mutants = folder + "/mutants"
    rows = ["%s=%s=" % (name, focus) for name, (_, focus) in _ORDER_MUTANTS.items()]
    mutated = mutated_sources(mutants, _ORDER_MUTANTS)
    texts = [mutants + "/" + path for path in _STAGED]
    native.cc_library(
        name = folder + "/staged_texts",
        testonly = True,
        textual_hdrs = texts,
    )
    native.cc_test(
        name = folder + "/orders_test",
        srcs = native.glob([folder + "/*.cc", folder + "/*.h"]) + _ORDER_SOURCES +
               [path for path in mutated if path not in texts] + [mutant_table(mutants, rows)],
        copts = ["-O1", "-w", "-include", "tests/orders/std_atomics.h"],
        linkstatic = True,
        deps = [
            ":" + folder + "/staged_texts",
            "//core/base",
            "//core/engine",
            "//core/gossip",
            "//core/partial",
            "//core/transport",
            "//core/transport:interfaces",
            "//ops/kernels",
            "//tools/bazel:gtest_main",
        ],
        **kwargs
    )
