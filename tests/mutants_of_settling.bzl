"""Mutants of the protocol: how ranks of several hosts go on from finish() without others,
and from the last version of a part."""

# As in mutants.bzl.
SETTLING_MUTANTS = {
    "w26_another_version_follows": (["core/replicated/aggregator.cc"], "hosts"),
    "w26_leader_settles_alone": (["core/replicated/settlement.cc"], "hosts"),
    "w26_later_leader_forgets": (["core/replicated/leader_state.cc"], "hosts"),
    "w26_is_of_no_attempt": (["core/replicated/settlement.cc"], "hosts"),
    "w26_those_that_leave_take_it_along": (["core/replicated/going_on.cc"], "host_models"),
    "w26_settles_what_is_not_final": (["core/replicated/settlement.cc"], "host_models"),
    "w27_late_rank_merges": (["core/replicated/replica_trainer.cc"], "host_models"),
    "w29_taken_back_in_part": (["core/replicated/pending_contributions.cc"], "host_trainers"),
    "w29_versions_follow_the_last": (["core/replicated/leader_state.cc"], "host_trainers"),
}
