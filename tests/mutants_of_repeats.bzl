"""Mutants of the queue of submissions, and of operations that repeat the one before."""

# As in mutants_of_code.bzl.
QUEUE_MUTANTS = {
    "api_unfit_is_repeated": (["core/api/repeats.cc"], "RepeatsTest.*"),
    "queue_callback_comes_again": (["core/engine/tensor_queue.cc"], "TensorQueueTest.*"),
    "queue_failed_is_released_unseen": (["core/engine/tensor_queue.cc"], "TensorQueueTest.*"),
    "queue_failed_is_repeated": (["core/engine/tensor_queue.cc"], "RepeatedTest.*"),
    "queue_forgotten_is_repeated": (["core/engine/tensor_queue.cc"], "RepeatedTest.*"),
    "queue_handle_has_no_generation": (["core/engine/tensor_queue.cc"], "TensorQueueTest.*"),
    "queue_held_is_reused": (["core/engine/tensor_queue.cc"], "TensorQueueTest.*"),
    "queue_is_overtaken": (["core/engine/tensor_queue.cc"], "RepeatedTest.*"),
    "queue_name_stays_in_flight": (["core/engine/tensor_queue.cc"], "TensorQueueTest.*"),
    "queue_released_is_reused_in_flight": (["core/engine/tensor_queue.cc"], "TensorQueueTest.*"),
    "queue_takes_a_name_twice": (["core/engine/tensor_queue.cc"], "TensorQueueTest.*"),
}

# As in mutants.bzl.
REPEATS_MUTANTS = {
    "e6_repeats_what_others_have_joined": (["core/engine/runtime_repeat.cc"], "repeats"),
    "e7_begun_begins_again": (["core/engine/runtime_repeat.cc"], "repeats"),
    "n1_repeat_uses_no_occurrence": (["core/agree/stream_table.cc"], "repeats"),
    "n4_repeats_what_differs": (["core/run/repeat.cc"], "repeats"),
    "n8_repeats_while_frozen": (["core/agree/stream_table.cc"], "repeats"),
    "x6_landing_space_is_another": (["core/run/repeat.cc"], "repeats"),
}
