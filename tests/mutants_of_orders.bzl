"""Mutants of memory orders, and the cases of orders/ that must catch them."""

# The rest of what the cases run.
ORDER_SOURCES = [
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
ORDER_MUTANTS = {
    "order_exchange_is_relaxed": (["ops/transports/shm_words.cc"], "pairs"),
    "order_exchange_lets_writes_pass": (["ops/transports/shm_words.cc"], "window"),
    "order_load_is_relaxed": (["ops/transports/shm_words.cc"], "pairs"),
    "order_load_lets_reads_pass": (["ops/transports/shm_words.cc"], "window"),
    "order_parked_is_read_early": (["ops/transports/shm.cc"], "mail"),
    "order_sleeper_has_no_fence": (["ops/transports/shm.cc"], "tick"),
    "order_store_is_relaxed": (["ops/transports/shm_words.cc"], "rounds"),
    "order_tick_is_raised_early": (["ops/transports/shm.cc"], "tick"),
    "order_tick_is_read_relaxed": (["ops/transports/shm.cc"], "tick"),
    "order_ticket_is_relaxed": (["ops/transports/shm_words.cc"], "event"),
    "order_waker_has_no_fence": (["ops/transports/shm.cc"], "tick"),
}
