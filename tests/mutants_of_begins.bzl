"""Mutants of what a rank publishes and stages when it begins an exchange."""

# As in mutants.bzl.
BEGINS_MUTANTS = {
    "tick_before_data": (["core/run/begin_stage.cc"], "none"),
    "x4_late_input_is_not_staged": (["core/run/begin_stage.cc"], "none"),
    "x5_own_count_of_staged": (["core/run/problem.cc"], "none"),
}
