"""Mutants: sources with one rule removed, which tests must catch: those of the protocol the
simulator (sim/mutants/*.txt), those of the code around it (mutants/*.txt) its own tests."""

load(":mutants_of_begins.bzl", "BEGINS_MUTANTS")
load(":mutants_of_code.bzl", "BODIES", "CODE_MUTANTS", "UNMUTATED")
load(":mutants_of_repeats.bzl", "REPEATS_MUTANTS")
load(":mutants_of_settling.bzl", "SETTLING_MUTANTS")
load(":mutants_seeds.bzl", "KNOWN")
load(":prelude.bzl", "QUICK_COPTS")

# Mutant -> the files it changes, and what the swarm is to bring up often (Focus in swarm.h), so
# that a rare one takes few seeds, or the simulator that is to catch it: "rounds", "models",
# "hosts" (replicas), "witnesses", "host_models", "host_silence", "pairs", "host_pairs", "windows",
# "neighbors", "communicators", "trainers", "host_trainers"; "plans": sim/simulator/plans.h.
_MUTANTS = dict(dict(SETTLING_MUTANTS, **BEGINS_MUTANTS), **dict(REPEATS_MUTANTS, **{
    "communicator_devices_are_not_compared": (
        ["core/device/communicator_registry.cc"],
        "communicators",
    ),
    "communicator_event_is_not_waited_for": (["core/run/communicator_path.cc"], "communicators"),
    "communicator_is_not_aborted": (["core/run/communicator_path.cc"], "communicators"),
    "communicator_judged_by_what_was_seen_before": (
        ["core/device/communicator_registry.cc"],
        "communicators",
    ),
    "communicator_lost_are_waited_for": (["core/run/executor.cc"], "communicators"),
    "communicator_memory_is_given_back_early": (["core/run/loss.cc"], "communicators"),
    "communicator_own_word_decides": (["core/device/communicator_registry.cc"], "communicators"),
    "communicator_some_are_ready": (["core/device/communicator_registry.cc"], "communicators"),
    "completion_lost": (["core/engine/runtime.cc"], "none"),
    "completion_twice": (["core/engine/runtime.cc"], "none"),
    "device_is_not_waited_for": (["core/run/host_staging_path.cc"], "none"),
    "f2_copies_are_not_waited_for": (["core/device/device_transfers.cc"], "none"),
    "f2_peers_reach_what_has_not_come": (["core/run/host_staging_path.cc"], "none"),
    "f2_steps_run_ahead_of_the_input": (["core/run/host_staging_path.cc"], "none"),
    "f3_streams_are_not_told": (["core/device/device_transfers.cc"], "none"),
    "f3_what_ended_badly_is_forgotten": (["core/device/device_transfers.cc"], "none"),
    "f4_buffer_is_taken_too_early": (["core/device/staging_pool.cc"], "none"),
    "g1_conflict_runs": (["core/run/begin_stage.cc"], "neighbors"),
    "g1_coordinator_agrees": (["core/agree/coordinator.cc"], "neighbors"),
    "g1_only_those_concerned_look": (["core/run/begin_stage.cc"], "neighbors"),
    "g2_weights_of_another_rank": (["core/run/data_steps.cc"], "neighbors"),
    "g3_begin_is_pushed_to_nobody": (["core/run/begin_stage.cc"], "neighbors"),
    "g4_own_model_is_not_rounded": (["core/run/codec_steps.cc"], "neighbors"),
    "g4_ranks_draw_apart": (["core/run/codec_steps.cc"], "neighbors"),
    "late_announcement_stays_pending": (["core/agree/coordinator.cc"], "agreed"),
    "n1_error_uses_no_occurrence": (["core/agree/negotiator.cc"], "none"),
    "n2_answers_the_first_alone": (["core/agree/coordinator.cc"], "none"),
    "n3_headers_one_deep": (["core/run/begin_stage.cc"], "none"),
    "n4_runs_before_all_have_begun": (["core/run/executor.cc"], "none"),
    "n5_begins_what_it_does_not_know": (["core/agree/negotiator.cc"], "none"),
    "n6_callbacks_have_patience": (["core/agree/negotiator_bundles.cc"], "none"),
    "n6_nobody_is_awaited": (["core/agree/negotiator_bundles.cc"], "none"),
    "n7_never_dissolved": (["core/agree/bundle.cc"], "none"),
    "n8_begins_while_frozen": (["core/agree/negotiator_bundles.cc"], "none"),
    "n9_block_freed_at_announce": (["core/agree/negotiator.cc"], "none"),
    "n9_two_landing_slots": (["core/agree/bundle.cc", "core/agree/negotiator.cc"], "none"),
    "n10_identity_of_a_sum": (["core/agree/join.cc"], "joins"),
    "n10_join_after_a_loss_waits": (["core/agree/join.cc"], "losses"),
    "n10_join_waits_for_no_bundle": (["core/engine/runtime.cc"], "joins"),
    "n10_not_told_of_what_is_in_flight": (["core/agree/join.cc"], "joins"),
    "n10_takes_part_twice": (["core/agree/join.cc"], "joins"),
    "n11_aborts_what_does_not_wait": (["core/run/loss.cc"], "none"),
    "n11_begins_nothing_and_does_not_say_so": (["core/engine/runtime.cc"], "losses"),
    "n11_ends_while_peers_write": (["core/run/loss.cc"], "direct"),
    "n11_proposed_block_is_freed": (["core/agree/negotiator.cc"], "agreed"),
    "n12_begun_is_launched": (["core/device/launch_order.cc"], "communicators"),
    "n12_number_does_not_follow": (["core/device/launch_order.cc"], "communicators"),
    "n12_own_proposal_is_the_turn": (["core/run/communicator_path.cc"], "communicators"),
    "n12_turn_is_not_pushed": (["core/run/communicator_path.cc"], "communicators"),
    "n12_unsettled_are_passed_by": (["core/device/launch_order.cc"], "communicators"),
    "n14_begins_while_asked": (["core/agree/negotiator_retire.cc"], "names"),
    "n14_first_answer_alone": (["core/agree/retire.cc"], "names"),
    "n14_joins_do_not_wait": (["core/agree/coordinator.cc"], "names"),
    "o2_says_done_before_it_is": (["core/run/device_staging.cc"], "none"),
    "o_communicator_says_no_of_buffers": (["core/run/device_staging.cc"], "communicators"),
    "o_only_who_has_no_buffer_judges": (["core/run/device_staging.cc"], "none"),
    "p1_one_side_alone": (["core/gossip/exchange.cc"], "pairs"),
    "p1_own_model_alone": (["core/gossip/gossip.cc"], "pairs"),
    "p1_update_without_exchange": (["core/gossip/gossip.cc"], "pairs"),
    "p2_base_is_free": (["core/gossip/gossip.cc"], "pairs"),
    "p2_partners_buffer_is_free": (["core/gossip/gossip.cc"], "pairs"),
    "p3_initiator_is_waited_for": (["core/gossip/exchange.cc"], "pairs"),
    "p3_last_buffer_is_given": (["core/gossip/gossip.cc"], "pairs"),
    "p4_aborted_word_comes_again": (["core/gossip/exchange.cc"], "pairs"),
    "p5_ends_as_seen_before": (["core/gossip/gossip_epochs.cc"], "pairs"),
    "p5_finished_is_dead": (["core/gossip/gossip_epochs.cc"], "pairs"),
    "p5_last_epoch_is_averaged_with": (["core/gossip/gossip.cc"], "pairs"),
    "p5_leaves_when_all_have_finished": (["core/gossip/gossip_epochs.cc"], "pairs"),
    "p5_nobody_meets": (["core/gossip/gossip_epochs.cc"], "pairs"),
    "p5_own_is_what_was_trained_on": (["core/gossip/gossip_epochs.cc"], "pairs"),
    "p5_progress_is_dropped": (["core/gossip/gossip_epochs.cc"], "pairs"),
    "p6_a_step_is_left_out": (["core/gossip/steps.cc"], "pairs"),
    "p6_any_number_is_as_likely": (["core/gossip/steps.cc"], "pairs"),
    "p6_ranks_draw_alike": (["core/gossip/steps.cc"], "pairs"),
    "p6_rest_is_kept": (["core/gossip/steps.cc"], "pairs"),
    "p7_batch_is_averaged_with_copies": (["core/gossip/steps.cc"], "pairs"),
    "p7_progress_is_lost_with_copies": (["core/gossip/gossip.cc"], "pairs"),
    "p8_one_result_for_both": (["core/gossip/exchange.cc"], "pairs"),
    "p8_ranks_draw_apart": (["core/gossip/quantized_pair.cc"], "pairs"),
    "p8_rounding_is_lost": (["core/gossip/quantized_pair.cc"], "pairs"),
    "p8_wrap_is_not_noticed": (["core/gossip/quantized_pair.cc"], "pairs"),
    "p9_own_model_is_not_rounded": (["core/gossip/quantized_pair.cc"], "pairs"),
    "p9_ranks_draw_apart": (["core/gossip/quantized_pair.cc"], "pairs"),
    "p11_lost_partner_is_waited_for": (["core/gossip/far_pairs.cc"], "host_pairs"),
    "p11_one_side_alone": (["core/gossip/far_pairs.cc"], "host_pairs"),
    "reports_pile_up": (["core/engine/runtime.cc"], "reports"),
    "train_goes_on_where_a_part_ends": (["core/train/round_part.cc"], "trainers"),
    "train_finish_does_not_end_rounds": (["core/train/trainer_parts.cc"], "trainers"),
    "train_part_ends_without_the_others": (["core/train/trainer_parts.cc"], "trainers"),
    "w8_attempt_is_no_wait": (["core/replicated/aggregator.cc"], "host_silence"),
    "w8_one_that_is_ahead_makes_another": (["core/partial/rounds.cc"], "trainers"),
    "train_delta_has_what_is_pending": (["core/train/outer_model.cc"], "trainers"),
    "w8_settled_version_ends_later_finishes": (["core/partial/shared_epoch_end.cc"], "trainers"),
    "train_finish_counts_own_models": (["core/train/round_part.cc"], "trainers"),
    "train_models_count_own_updates": (["core/train/trainer.cc"], "trainers"),
    "train_count_is_its_own": (["core/train/trainer.cc"], "trainers"),
    "train_snapshot_has_no_count": (["core/engine/trainer_rounds.cc"], "trainers"),
    "train_last_local_steps_are_dropped": (["core/train/round_part.cc"], "trainers"),
    "train_gone_version_is_passed_over": (["core/train/round_part.cc"], "trainers"),
    "train_finish_fails_before_it_applies": (["core/train/round_part.cc"], "trainers"),
    "train_leaves_though_a_rank_is_missing": (["core/train/round_part.cc"], "trainers"),
    "train_next_part_is_not_finished": (["core/train/trainer_parts.cc"], "trainers"),
    "train_published_twice": (["core/train/trainer.cc"], "trainers"),
    "train_no_state_is_left": (["core/train/trainer_parts.cc"], "trainers"),
    "train_withdrawn_is_dropped": (["core/train/trainer_parts.cc"], "trainers"),
    "train_handover_waits_for_the_overdue": (["core/train/trainer_parts.cc"], "trainers"),
    "void_uses_no_tick": (["core/run/executor.cc"], "none"),
    "wake_omitted": (["core/run/executor.cc"], "none"),
    "w1_state_goes_back": (["core/partial/rounds.cc"], "rounds"),
    "w2_looks_before_it_replaces": (["core/partial/slot.cc"], "models"),
    "w2_newer_model_is_out": (["core/partial/collect.cc"], "models"),
    "w2_owner_does_not_say_that_it_was_taken": (["core/partial/slot.cc"], "rounds"),
    "w2_replaced_model_is_not_kept": (["core/partial/slot.cc"], "models"),
    "w2_taken_back_without_exchange": (["core/partial/slot.cc"], "rounds"),
    "w2_taken_buffer_written_at_once": (["core/partial/slot.cc"], "rounds"),
    "w2_retracted_without_a_look": (["core/partial/slot.cc"], "rounds"),
    "w3_published_before_all_is_added": (["core/partial/slot.cc"], "rounds"),
    "w4_anybody_is_drawn": (["core/partial/arrivals.cc"], "rounds"),
    "w4_half_is_enough": (["core/replicated/quorum.cc"], "hosts"),
    "w4_older_content_counts": (["core/partial/arrivals.cc"], "rounds"),
    "w4_only_the_kth_fires": (["core/partial/arrivals.cc"], "rounds"),
    "w4_votes_twice": (["core/replicated/replica_election.cc"], "hosts"),
    "w4_ends_with_enough": (["core/partial/arrivals.cc"], "rounds"),
    "w4_warm_up_waits_for_enough": (["core/partial/arrivals.cc"], "rounds"),
    "w5_decides_alone": (["core/replicated/leader_state.cc"], "hosts"),
    "w5_own_opinion": (["core/partial/collect.cc"], "rounds"),
    "w5_slot_seen_once": (["core/partial/collect.cc"], "rounds"),
    "w6_a_claim_is_waited_for": (["core/partial/tiles.cc"], "rounds"),
    "w6_copied_without_a_look": (["core/partial/tiles.cc"], "rounds"),
    "w6_copied_early_before_it_is_done": (["core/partial/eager_copy.cc"], "rounds"),
    "w6_merged_early_elsewhere": (["core/partial/eager_copy.cc"], "models"),
    "w6_pins_are_ignored": (["core/partial/log.cc"], "rounds"),
    "w7_counts_again_for_the_next_leader": (["core/replicated/leader_state.cc"], "hosts"),
    "w7_lost_entries_are_committed_again": (["core/replicated/leader_state.cc"], "hosts"),
    "w7_flushed_with_less_than_is_known": (["core/replicated/replica_trainer.cc"], "hosts"),
    "w7_leaves_without_a_message": (["core/replicated/replica_trainer.cc"], "hosts"),
    "w7_not_fenced": (["core/replicated/replica.cc"], "hosts"),
    "w7_sent_is_added_to": (["core/replicated/pending_contributions.cc"], "hosts"),
    "w7_sent_is_not_sent_again": (["core/replicated/pending_contributions.cc"], "hosts"),
    "w7_what_it_accepted_is_what_they_took": (["core/replicated/replica_election.cc"], "hosts"),
    "w7_what_is_accepted_is_not_asked": (["core/replicated/replicated_log.cc"], "hosts"),
    "w8_any_version_tells_who_keeps_up": (["core/partial/suspicion.cc"], "models"),
    "w8_suspicion_counted_twice": (["core/partial/suspicion.cc"], "rounds"),
    "w8_ends_without_a_version_of_all": (
        ["core/partial/arrivals.cc", "core/partial/shared_epoch_end.cc"],
        "models",
    ),
    "w8_finished_is_not_waited_for_again": (["core/partial/rounds.cc"], "models"),
    "w8_fires_without_exchange": (["core/partial/rounds.cc"], "rounds"),
    "w8_late_rank_makes_versions": (
        ["core/partial/arrivals.cc", "core/partial/shared_epoch_end.cc"],
        "rounds",
    ),
    "w8_overdue_is_waited_for": (["core/partial/arrivals.cc"], "rounds"),
    "w8_overdue_is_late_for_ever": (["core/partial/rounds.cc"], "rounds"),
    "w8_overdue_never_ends": (["core/partial/suspicion.cc"], "rounds"),
    "w8_what_is_settled_is_made_anew": (
        ["core/partial/arrivals.cc", "core/partial/shared_epoch_end.cc"],
        "models",
    ),
    "w8_what_is_there_is_left": (["core/partial/arrivals.cc"], "rounds"),
    "w9_hidden_is_as_young_as_its_last": (["core/replicated/aggregator.cc"], "hosts"),
    "w9_nobody_is_too_late": (["core/partial/arrivals.cc"], "rounds"),
    "w9_slow_holds_up_each_version_of_all": (["core/partial/arrivals.cc"], "models"),
    "w9_waited_for_each_version_anew": (["core/partial/arrivals.cc"], "rounds"),
    "w9_what_others_end_does_not_count": (["core/partial/rounds.cc"], "rounds"),
    "w10_a_claim_is_waited_for": (["core/partial/snapshots.cc"], "rounds"),
    "w10_held_without_a_second_look": (["core/partial/log.cc"], "rounds"),
    "w10_holds_are_ignored": (["core/partial/log.cc"], "rounds"),
    "w10_look_without_a_second": (["core/partial/rounds.cc"], "models"),
    "w10_met_is_not_asked": (["core/replicated/leader_state.cc"], "hosts"),
    "w10_merge_pins_nothing": (["core/partial/merge.cc"], "models"),
    "w10_one_runs_ahead_alone": (["core/partial/arrivals.cc"], "rounds"),
    "w10_read_without_a_second_look": (["core/partial/log.cc"], "rounds"),
    "w10_snapshot_not_retracted": (["core/partial/snapshots.cc"], "rounds"),
    "w10_snapshot_without_a_second_look": (["core/partial/snapshots.cc"], "rounds"),
    "w10_versions_of_all_are_not_kept": (["core/partial/memory.cc"], "models"),
    "w10_retracted_is_not_asked_for_again": (["core/partial/snapshots.cc"], "rounds"),
    "w11_flushed_before_its_empty_have_come": (["core/replicated/replica_trainer.cc"], "hosts"),
    "w11_empty_goes_before_its_version": (["core/replicated/pending_contributions.cc"], "hosts"),
    "w11_empty_is_added_to": (["core/partial/slot.cc"], "rounds"),
    "w11_empty_is_divided_by": (["core/partial/tiles.cc"], "rounds"),
    "w11_empty_is_missing": (["core/partial/suspicion.cc"], "rounds"),
    "w11_empty_is_summed": (["core/partial/tiles.cc"], "rounds"),
    "w12_accepts_what_is_not_whole": (["core/replicated/formations.cc"], "hosts"),
    "w12_end_is_in_groups": (["core/partial/memory.cc"], "models"),
    "w12_ends_with_enough": (["core/partial/arrivals.cc"], "models"),
    "w12_goes_on_from_before_a_version_of_all": (["core/partial/rounds.cc"], "models"),
    "w12_lateness_is_guessed": (["core/partial/merge.cc"], "models"),
    "w12_mean_is_not_held": (["core/partial/merge.cc"], "models"),
    "w12_mean_of_no_models": (["core/partial/merge.cc"], "models"),
    "w12_nobody_waits_for_all": (["core/partial/arrivals.cc"], "models"),
    "w12_offered_again_counts_twice": (["core/partial/rounds.cc"], "models"),
    "w12_old_models_count": (["core/partial/collect.cc"], "models"),
    "w12_progress_counts_though_it_was_taken": (["core/partial/rounds.cc"], "models"),
    "w12_progress_is_dropped": (["core/partial/merge.cc"], "models"),
    "w12_what_was_superseded_comes_back": (["core/partial/merge.cc"], "models"),
    "w13_plan_knows_its_rank": (["core/method/method_text.cc"], "plans"),
    "w13_plan_remembers": (["core/method/method_text.cc"], "plans"),
    "w13_silent_member_is_waited_for": (["core/replicated/leader_state.cc"], "hosts"),
    "w13_each_silent_member_costs_an_attempt": (
        ["core/replicated/leader_state.cc"],
        "host_silence",
    ),
    "w13_silence_is_longer_than_max_wait": (
        ["core/replicated/leader_state.cc"],
        "host_silence",
    ),
    "w13_slow_network_makes_none": (["core/replicated/leader_state.cc"], "hosts"),
    "w13_silent_member_is_in_it": (["core/replicated/aggregator.cc"], "hosts"),
    "w13_pieces_of_another_attempt": (["core/replicated/formations.cc"], "hosts"),
    "w13_another_attempt_counts": (["core/replicated/leader_state.cc"], "hosts"),
    "w14_abandoned_is_lost": (["core/replicated/aggregator.cc"], "hosts"),
    "w14_dead_is_waited_for": (["core/partial/arrivals.cc"], "rounds"),
    "w14_leader_accepts_what_it_abandoned": (["core/replicated/replica.cc"], "hosts"),
    "w14_proposed_grows": (["core/replicated/pending_contributions.cc"], "hosts"),
    "w14_what_the_dead_left_is_dropped": (["core/partial/collect.cc"], "rounds"),
    "w15_lost_shards_are_waited_for": (["core/replicated/formations.cc"], "hosts"),
    "w15_who_has_accepted_is_not_asked": (["core/replicated/leader_state.cc"], "host_silence"),
    "w16_committed_of_another_attempt": (["core/replicated/replica.cc"], "hosts"),
    "w17_links_to_others_are_there": (["core/replicated/formation.cc"], "host_silence"),
    "w17_who_was_stopped_was_cut_off": (
        ["core/replicated/replica_election.cc"],
        "host_silence",
    ),
    "w20_absent_means_are_waited_for": (["core/replicated/formations.cc"], "host_models"),
    "w21_ends_with_its_own_merge": (["core/replicated/replica_models.cc"], "host_models"),
    "w21_silent_rank_is_waited_for_ever": (["core/replicated/aggregator.cc"], "host_models"),
    "w22_both_halves_have_the_witness": (["core/replicated/quorum.cc"], "witnesses"),
    "w23_votes_for_both": (["core/replicated/witness.cc"], "witnesses"),
    "w23_what_it_accepted_is_forgotten": (["core/replicated/witness.cc"], "witnesses"),
    "w24_is_never_asked": (["core/replicated/leader_witness.cc"], "witnesses"),
    "window_change_ends_where_it_began": (["core/transport/seqlock.cc"], "windows"),
    "window_copied_without_a_look": (["core/transport/seqlock.cc"], "windows"),
    "window_taken_while_it_changes": (["core/transport/seqlock.cc"], "windows"),
}))

# Simulators that use no op but kernels.
_OF_CORE = ["host_models", "hosts", "models", "rounds", "windows"]

# Simulators that draw algorithms, codecs or methods.
_OPS = [
    "//ops/algorithms:algorithms_often",
    "//ops/algorithms:allreduce_coded",
    "//ops/algorithms:allreduce_ring",
    "//ops/algorithms:neighbor_allreduce_coded",
    "//ops/codecs:bf16",
    "//ops/codecs:fp16",
    "//ops/codecs:int8",
    "//ops/codecs:lattice",
    "//ops/codecs:qsgd",
    "//ops/methods",
]

def mutant_tests(folder, **kwargs):
    """Tests with a case for each mutant, which passes when a seed fails.

    All mutants are compiled as one program: a file that some of them change once with all their
    changes (mutate.py). It stands before the library that holds the original, which the linker then
    leaves out. The program is linked twice, for simulators that use the catalogue and for those
    that do not: so Bazel knows which mutants a changed op can change.
    """
    rows = ["%s=%s=%s" % (name, focus, KNOWN.get(name, "").replace(" ", ""))
            for name, (_, focus) in _MUTANTS.items()]
    native.cc_library(
        name = folder + "_program",
        testonly = True,
        srcs = native.glob([folder + "/*.cc", folder + "/*.h"]) +
               mutated_sources(folder, _MUTANTS) + [mutant_table(folder, rows)],
        copts = QUICK_COPTS + ["-w"],
        alwayslink = True,
        linkstatic = True,
        deps = [
            ":quick_prelude",
            ":simulator",
            "//core/api:session",
            "//ops/kernels",
            "//tools/bazel:gtest_main",
        ],
    )
    foci = {focus: None for _, focus in _MUTANTS.values()}.keys()
    for name, ops, shards, mine in [
        ("_test", [], 2, [focus for focus in foci if focus in _OF_CORE]),
        ("_over_ops_test", _OPS, 2, [focus for focus in foci if focus not in _OF_CORE]),
    ]:
        native.cc_test(
            name = folder + name,
            env = {"MUTANT_FOCI": " ".join(mine)},
            linkstatic = True,
            shard_count = shards,
            deps = [folder + "_program"] + ops,
            **kwargs
        )

def code_mutant_tests(folder, **kwargs):
    """A test with a case for each mutant of CODE_MUTANTS, which passes when one of its tests fails.

    The sources with the mutants, and the tests, are one program: see caught.cc.
    """
    rows = ["'%s=%s='" % (name, focus) for name, (_, focus) in CODE_MUTANTS.items()]

    # As an archive of another kind, of which the linker takes what no source with mutants has: it
    # stands behind the tests, which ask for that.
    native.filegroup(
        name = folder + "/c_api_objects",
        testonly = True,
        srcs = ["//core/api:c_api"],
        output_group = "archive",
    )
    native.genrule(
        name = folder + "/c_api_unmutated",
        testonly = True,
        srcs = [folder + "/c_api_objects"],
        outs = [folder + "/libc_api_unmutated.pic.a"],
        cmd = "cp $(SRCS) $@",
    )
    native.cc_test(
        name = folder + "_test",
        srcs = native.glob([folder + "/*.cc", folder + "/*.c"]) + UNMUTATED +
               [path[:-len(".cc")] + "_body_archive" for path in BODIES] +
               [folder + "/libc_api_unmutated.pic.a"] +
               ["sim/mutants/mutants.h", "unit/c_expect.h"] +
               mutated_sources(folder, CODE_MUTANTS) + [mutant_table(folder, rows)],
        copts = QUICK_COPTS + ["-w"],
        linkstatic = True,
        deps = [
            ":c_api_misuse_text",
            ":quick_prelude",
            "//core/api:header",
            "//core/api:session",
            "//core/base",
            "//core/gossip",
            "//core/method",
            "//ops/algorithms:algorithms_often",
            "//ops/algorithms:allreduce_coded",
            "//ops/algorithms:neighbor_allreduce_coded",
            "//ops/codecs",
            "//ops/devices",
            "//ops/kernels",
            "//ops/methods",
            "//tools/bazel:gtest_main",
        ],
        **kwargs
    )

def mutated_sources(folder, table):
    """The sources with their mutants, which stand before the library that holds the originals."""
    found = [path[len(folder) + 1:-len(".txt")] for path in native.glob([folder + "/*.txt"])]
    if sorted(found) != sorted(table.keys()):
        fail("the table is not the mutants of %s: %s" % (folder, found))
    mutants = {}
    for name, (files, _) in table.items():
        for file in files:
            mutants.setdefault(file, []).append("%s/%s.txt" % (folder, name))
    for file, texts in mutants.items():
        split = file.split if file.endswith(".c") else file.rsplit
        source = "//%s:%s" % tuple(split("/", 1))
        native.genrule(
            name = "%s/%s_mutated" % (folder, file),
            testonly = True,
            srcs = [source] + texts,
            outs = ["%s/%s" % (folder, file)],
            cmd = "$(location :mutate) $@ $(location %s) " % source +
                  " ".join(["$(location %s)" % text for text in texts]),
            tools = [":mutate"],
        )
    return ["%s/%s" % (folder, file) for file in mutants]

def mutant_table(folder, rows):
    """The file with the variables of the mutants: see mutate.py."""
    native.genrule(
        name = folder + "/table",
        testonly = True,
        outs = [folder + "/table.cc"],
        cmd = "$(location :mutate) $@ --table " + " ".join(rows),
        tools = [":mutate"],
    )
    return folder + "/table.cc"
