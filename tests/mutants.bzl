"""Mutants: sources with one rule removed, which the simulator must catch (sim/mutants/*.txt)."""

# Mutant -> the files it changes, and what the swarm is to bring up often (Focus in swarm.h), so
# that a rare one takes few seeds; "rounds", "models", "hosts": the simulator of rounds, of
# rounds of models, or of seats is to catch it.
_MUTANTS = {
    "completion_lost": (["core/runtime.cc"], "none"),
    "completion_twice": (["core/runtime.cc"], "none"),
    "device_is_not_waited_for": (["core/run/device_side.cc"], "none"),
    "f2_copies_are_not_waited_for": (["core/run/ferry.cc"], "none"),
    "f2_peers_reach_what_has_not_come": (["core/run/device_side.cc"], "none"),
    "f2_steps_run_ahead_of_the_input": (["core/run/device_side.cc"], "none"),
    "f3_streams_are_not_told": (["core/run/ferry.cc"], "none"),
    "f3_what_ended_badly_is_forgotten": (["core/run/ferry.cc"], "none"),
    "f4_room_is_taken_too_early": (["core/run/rooms.cc"], "none"),
    "late_announcement_stays_pending": (["core/agree/coordinator.cc"], "agreed"),
    "n1_error_uses_no_occurrence": (["core/agree/negotiator.cc"], "none"),
    "n2_answers_the_first_alone": (["core/agree/coordinator.cc"], "none"),
    "n3_headers_one_deep": (["core/run/executor.cc"], "none"),
    "n4_runs_before_all_have_begun": (["core/run/executor.cc"], "none"),
    "n5_begins_what_it_does_not_know": (["core/agree/negotiator.cc"], "none"),
    "n6_callbacks_have_patience": (["core/agree/negotiator_bundles.cc"], "none"),
    "n6_nobody_is_awaited": (["core/agree/negotiator_bundles.cc"], "none"),
    "n7_never_dissolved": (["core/agree/bundle.cc"], "none"),
    "n8_begins_while_frozen": (["core/agree/negotiator_bundles.cc"], "none"),
    "n9_block_freed_at_announce": (["core/agree/negotiator.cc"], "none"),
    "n9_two_landing_slots": (["core/run/executor.cc", "core/run/mover.cc"], "none"),
    "n10_identity_of_a_sum": (["core/agree/join.cc"], "joins"),
    "n10_join_after_a_loss_waits": (["core/agree/join.cc"], "losses"),
    "n10_join_waits_for_no_bundle": (["core/runtime.cc"], "joins"),
    "n10_not_told_of_what_is_in_flight": (["core/agree/join.cc"], "joins"),
    "n10_takes_part_twice": (["core/agree/join.cc"], "joins"),
    "n11_aborts_what_does_not_wait": (["core/run/loss.cc"], "none"),
    "n11_begins_nothing_and_does_not_say_so": (["core/runtime.cc"], "losses"),
    "n11_ends_while_peers_write": (["core/run/loss.cc"], "direct"),
    "n11_proposed_block_is_freed": (["core/agree/negotiator.cc"], "agreed"),
    "reports_pile_up": (["core/runtime.cc"], "reports"),
    "tick_before_data": (["core/run/executor.cc"], "none"),
    "void_uses_no_tick": (["core/run/executor.cc"], "none"),
    "wake_omitted": (["core/run/executor.cc"], "none"),
    "w1_turn_goes_back": (["core/round/rounds.cc"], "rounds"),
    "w2_looks_before_it_replaces": (["core/round/slot.cc"], "models"),
    "w2_newer_model_is_out": (["core/round/collect.cc"], "models"),
    "w2_owner_does_not_say_that_it_was_taken": (["core/round/slot.cc"], "rounds"),
    "w2_replaced_model_is_not_kept": (["core/round/slot.cc"], "models"),
    "w2_taken_back_without_exchange": (["core/round/slot.cc"], "rounds"),
    "w2_taken_buffer_written_at_once": (["core/round/slot.cc"], "rounds"),
    "w4_anybody_is_drawn": (["core/round/arrivals.cc"], "rounds"),
    "w4_half_is_enough": (["core/hosts/quorum.cc"], "hosts"),
    "w4_older_content_counts": (["core/round/arrivals.cc"], "rounds"),
    "w4_only_the_kth_fires": (["core/round/arrivals.cc"], "rounds"),
    "w4_votes_twice": (["core/hosts/seat.cc"], "hosts"),
    "w5_decides_alone": (["core/hosts/reign.cc"], "hosts"),
    "w5_own_opinion": (["core/round/collect.cc"], "rounds"),
    "w5_slot_seen_once": (["core/round/collect.cc"], "rounds"),
    "w6_a_claim_is_waited_for": (["core/round/shards.cc"], "rounds"),
    "w6_copied_without_a_look": (["core/round/shards.cc"], "rounds"),
    "w6_copied_early_before_it_is_done": (["core/round/early.cc"], "rounds"),
    "w6_merged_early_elsewhere": (["core/round/early.cc"], "models"),
    "w6_pins_are_ignored": (["core/round/log.cc"], "rounds"),
    "w7_counts_again_for_the_next_leader": (["core/hosts/reign.cc"], "hosts"),
    "w7_decided_of_another_attempt": (["core/hosts/seat.cc"], "hosts"),
    "w7_not_fenced": (["core/hosts/seat.cc"], "hosts"),
    "w7_open_before_the_last_is_void": (["core/hosts/reign.cc"], "hosts"),
    "w7_sent_is_added_to": (["core/hosts/pieces.cc"], "hosts"),
    "w7_sent_is_not_sent_again": (["core/hosts/pieces.cc"], "hosts"),
    "w7_what_is_kept_is_not_asked": (["core/hosts/ledger.cc"], "hosts"),
    "w8_any_version_tells_who_keeps_up": (["core/round/attendance.cc"], "models"),
    "w8_attendance_counted_twice": (["core/round/attendance.cc"], "rounds"),
    "w8_ends_without_a_version_of_all": (
        ["core/round/arrivals.cc", "core/round/rounds.cc"],
        "models",
    ),
    "w8_finished_is_not_waited_for_again": (["core/round/rounds.cc"], "models"),
    "w8_fires_without_exchange": (["core/round/rounds.cc"], "rounds"),
    "w8_overdue_is_waited_for": (["core/round/arrivals.cc"], "rounds"),
    "w8_overdue_is_late_for_ever": (["core/round/rounds.cc"], "rounds"),
    "w8_overdue_never_ends": (["core/round/attendance.cc"], "rounds"),
    "w9_nobody_is_too_late": (["core/round/arrivals.cc"], "rounds"),
    "w9_waited_for_each_version_anew": (["core/round/arrivals.cc"], "rounds"),
    "w9_what_others_end_does_not_count": (["core/round/rounds.cc"], "rounds"),
    "w10_a_claim_is_waited_for": (["core/round/snapshots.cc"], "rounds"),
    "w10_merge_pins_nothing": (["core/round/merge.cc"], "models"),
    "w10_one_runs_ahead_alone": (["core/round/arrivals.cc"], "rounds"),
    "w10_read_without_a_second_look": (["core/round/log.cc"], "rounds"),
    "w10_snapshot_not_withdrawn": (["core/round/snapshots.cc"], "rounds"),
    "w10_snapshot_without_a_second_look": (["core/round/snapshots.cc"], "rounds"),
    "w10_versions_of_all_are_not_kept": (["core/round/memory.cc"], "models"),
    "w10_withdrawn_is_not_asked_for_again": (["core/round/snapshots.cc"], "rounds"),
    "w11_null_is_added_to": (["core/round/slot.cc"], "rounds"),
    "w11_null_is_divided_by": (["core/round/shards.cc"], "rounds"),
    "w11_null_is_missing": (["core/round/attendance.cc"], "rounds"),
    "w11_null_is_summed": (["core/round/shards.cc"], "rounds"),
    "w12_end_is_in_groups": (["core/round/memory.cc"], "models"),
    "w12_lateness_is_guessed": (["core/round/merge.cc"], "models"),
    "w12_nobody_waits_for_all": (["core/round/arrivals.cc"], "models"),
    "w12_old_models_count": (["core/round/collect.cc"], "models"),
}

def mutant_tests(folder):
    """One test for each mutant; it passes when a seed fails.

    What a mutant changes stands before the library that holds the original, which the linker then
    leaves out.
    """
    found = [path[len(folder) + 1:-len(".txt")] for path in native.glob([folder + "/*.txt"])]
    if sorted(found) != sorted(_MUTANTS.keys()):
        fail("the table in mutants.bzl is not the mutants of %s: %s" % (folder, found))
    for name, (files, focus) in _MUTANTS.items():
        out = folder + "/" + name
        native.genrule(
            name = out + "_sources",
            testonly = True,
            srcs = [out + ".txt"] + ["//%s:%s" % tuple(f.rsplit("/", 1)) for f in files],
            outs = [out + "/" + f for f in files],
            cmd = "$(location :mutate) $(location %s.txt) $(RULEDIR)/%s %s" %
                  (out, out, " ".join(files)),
            tools = [":mutate"],
        )
        native.cc_test(
            name = out + "_test",
            size = "medium",
            srcs = [out + "/" + f for f in files],
            copts = ["-O1", "-w"],
            env = {"FOCUS": focus},
            linkstatic = True,
            tags = ["mutants"],
            deps = [
                ":mutant_test",
                "//core:runtime",
                "//ops",
                "//tools/bazel:gtest_main",
            ],
        )
