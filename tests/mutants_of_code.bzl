"""Mutants of engine, networks, queue, views and C API, and the tests that must catch them."""

load(":mutants_of_repeats.bzl", "QUEUE_MUTANTS")

# Mutant -> the files it changes, and which tests are to fail (mutants/caught.cc).
CODE_MUTANTS = dict(QUEUE_MUTANTS, **{
    "c_child_of_fork_calls": (["core/api/runtime_handle.cc"], "LifeTest.AChild*"),
    "c_null_group_is_followed": (["core/api/c_api.cc"], "MisuseTest.*"),
    "c_null_runtime_is_followed": (["core/api/c_api.cc"], "MisuseTest.*"),
    "c_open_again_with_other_arguments": (["core/api/runtime_handle.cc"], "LifeTest.UseBefore*"),
    "c_release_does_not_wait": (["core/api/c_api.cc"], "HandlesEndTest.*"),
    "c_release_holds_nothing": (["core/api/c_api.cc"], "Each/HandlesTest.*/release"),
    "c_result_is_taken_twice": (["core/api/c_api.cc"], "ResultTest.*"),
    "c_shutdown_is_a_timeout": (["core/api/c_api.cc"], "HandlesEndTest.*"),
    "c_size_of_structs_is_not_looked_at": (["core/api/runtime_handle.cc"], "MisuseTest.*"),
    "c_wait_holds_nothing": (["core/api/c_api.cc"], "Each/HandlesTest.*/wait"),
    "choice_early_messages_are_dropped": (
        ["core/transport/link_agreement.cc"],
        "LinkAgreementTest.WhatComesEarly*",
    ),
    "choice_goes_before_its_words": (
        ["core/transport/link_agreement.cc"],
        "LinkAgreementTest.RankZeroStays*",
    ),
    "choice_is_told_early": (["core/transport/link_agreement.cc"], "LinkAgreementTest.AllHear*"),
    "choice_looks_for_losses_first": (
        ["core/transport/link_agreement.cc"],
        "LinkAgreementTest.AVerdictCounts*",
    ),
    "choice_takes_any_message": (
        ["core/transport/link_agreement.cc"],
        "LinkAgreementTest.ARankThatDoesNot*",
    ),
    "choice_takes_any_obstacle": (
        ["core/transport/link_agreement.cc"],
        "LinkAgreementTest.AllHear*",
    ),
    "choice_waits_for_ever": (
        ["core/transport/link_agreement.cc"],
        "LinkAgreementTest.ARankThatIsAbsent*",
    ),
    "engine_progress_lock_for_two": (
        ["core/engine/engine.cc"],
        "*/EngineTest.TwoThreads*/*:*/EngineTest.Many*/*",
    ),
    "engine_progress_lock_is_asked_for_in_silence": (
        ["core/engine/engine.cc"],
        "*/WakeupsTest.OfAWaiterThatDrives*/np3",
    ),
    "engine_driver_sleeps_after_stop": (["core/engine/engine.cc"], "*/EngineStopTest.*"),
    "engine_hands_nothing_on": (
        ["core/engine/engine.cc"],
        "*/WakeupsTest.OfWhatWaitersLeaveBehind/*",
    ),
    "engine_kick_is_silent": (
        ["core/engine/engine.cc"],
        "*/WakeupsTest.OfOperationsThatEndInTheBackground/np2",
    ),
    "engine_kick_rings_no_waiter": (["core/engine/engine.cc"], "*/WakeupsTest.OfAWaiter*/np3"),
    "engine_last_look_tells_nobody": (["core/engine/engine.cc"], "EngineLookTest.*"),
    "engine_leaves_what_is_due": (["core/engine/engine.cc"], "*/WakeupsOfBundlesTest.*"),
    "engine_release_rings_nobody": (["core/engine/engine.cc"], "*/WakeupsTest.*/np2"),
    "engine_release_tells_no_sleeper": (["core/engine/engine.cc"], "*/WakeupsTest.OfAWaiter*/np3"),
    "engine_sleepers_are_not_told_of_ends": (
        ["core/engine/engine.cc"],
        "*/WakeupsTest.OfAWaiter*/np3",
    ),
    "engine_stop_is_looked_for_first": (["core/engine/engine.cc"], "*/EngineStopTest.*"),
    "guard_keeps_whom_it_drops": (
        ["core/transport/guarded_link.cc"],
        "GuardedLinkTest.ALossOnEither*",
    ),
    "guard_loss_is_told_twice": (
        ["core/transport/guarded_link.cc"],
        "GuardedLinkTest.ALossOnEither*",
    ),
    "guard_offer_is_made_once": (
        ["core/transport/guarded_link.cc"],
        "GuardedLinkTest.AGuardWithoutRoom*",
    ),
    "guard_offer_is_not_answered": (
        ["core/transport/guarded_link.cc"],
        "GuardedLinkTest.APairMeets*",
    ),
    "guard_rings_nobody": (
        ["core/transport/guarded_link.cc"],
        "GuardedLinkTest.MessagesOfBothLinksRing",
    ),
    "guard_second_offer_is_taken": (
        ["core/transport/guarded_link.cc"],
        "GuardedLinkTest.ASecondOffer*",
    ),
    "guard_sends_to_the_lost": (
        ["core/transport/guarded_link.cc"],
        "GuardedLinkTest.APeerThatIsLostBefore*",
    ),
    "guard_short_offer_is_taken": (
        ["core/transport/guarded_link.cc"],
        "GuardedLinkTest.AShortOffer*",
    ),
    "guard_token_is_not_drawn": (
        ["core/transport/guarded_link.cc"],
        "GuardedLinkTest.APairMeets*:GuardedLinkTest.TokensAreDrawn",
    ),
    "p10_averages_with_the_dead": (
        ["core/gossip/gossip.cc"],
        "TrainerPairsTest.ARankThatHasClosed*",
    ),
    "p10_waits_for_those_that_have_left": (
        ["core/gossip/gossip_port.cc"],
        "TrainerPairsTest.ARankThatHasClosed*",
    ),
    "p11_answer_counts_again": (["core/gossip/far_pairs.cc"], "FarPairsTest.*"),
    "p12_both_offers_count": (["core/gossip/far_pairs.cc"], "FarPairsTest.*"),
    "p13_finished_takes_offers": (["core/gossip/far_pairs.cc"], "FarPairsTest.*"),
    "p13_open_offer_is_not_awaited": (["core/gossip/far_pairs.cc"], "FarPairsTest.*"),
    "p13_partner_changes_what_is_handed_in": (["core/gossip/gossip.cc"], "FarPairsTest.*"),
    "p13_word_keeps_its_number": (["core/gossip/far_access.cc"], "FarPairsTest.*"),
    "p14_chunk_is_never_whole": (["core/gossip/far_codec.cc"], "FarCodecStepTest.*"),
    "p14_ranks_draw_apart": (["core/gossip/far_codec.cc"], "*/FarCodecTest.*"),
    "p15_mean_is_of_all_members": (
        ["core/gossip/hosts_port.cc"],
        "HostsPairsTest.ARankThatHasClosed*",
    ),
    "p16_asks_again": (["core/gossip/far_looks.cc"], "FarLooksTest.*"),
    "p16_shows_models_of_long_ago": (["core/gossip/far_looks.cc"], "FarLooksTest.*"),
    "p17_offers_where_a_model_is_to_come": (["core/gossip/far_pairs.cc"], "FarPairsTest.*"),
    "p18_end_of_pairs_counts_as_any": (
        ["core/gossip/pairs_port.cc"],
        "TrainerPairsTest.AllLeave*",
    ),
    "p18_epoch_ends_a_later_finish": (
        ["core/gossip/gossip_port.cc"],
        "TrainerPairsTest.FinishesAreCounted",
    ),
    "p18_mean_ends_a_later_finish": (
        ["core/gossip/hosts_port.cc"],
        "HostsPairsTest.FinishesAreCounted",
    ),
    "p18_number_stays_where_it_goes_on": (
        ["core/gossip/pairs_port.cc"],
        "TrainerPairsTest.AFinishAgain*",
    ),
    "p19_far_mean_with_a_settle": (["core/gossip/hosts_port.cc"], "HostsPairsTest.AFinishWaits*"),
    "p19_mean_with_a_settle": (["core/gossip/gossip_epochs.cc"], "TrainerPairsTest.AFinishWaits*"),
    "pair_meeting_rings_nobody": (["core/gossip/gossip_epochs.cc"], "*/TrainerPairsMeanTest.*"),
    "shm_bell_wakes_nobody": (["ops/transports/shm.cc"], "*/WakeupsTest.OfAWaiter*/np3"),
    "shm_dead_is_not_missed": (["ops/transports/shm.cc"], "ShmTest.WhoHasEnded*"),
    "shm_full_mailbox_is_written": (["ops/transports/shm.cc"], "ShmTest.AFull*"),
    "shm_idle_ranks_get_no_mail": (["ops/transports/shm.cc"], "*/WakeupsTest.*/np2"),
    "shm_join_waits_for_the_dead": (
        ["ops/transports/shm_job.cc"],
        "ShmJoinTest.NamesARankThatDies*:ShmJoinTest.NamesARankThatDied*",
    ),
    "shm_join_waits_for_who_gave_up": (
        ["ops/transports/shm_job.cc"],
        "ShmJoinTest.NamesARankThatGaveUp",
    ),
    "shm_left_is_not_missed": (
        ["ops/transports/shm.cc"],
        "ShmJoinTest.ARankThatLeavesAtOnceIsNotMissed",
    ),
    "shm_mail_rings_nobody": (
        ["ops/transports/shm.cc"],
        "*/WakeupsTest.OfMessagesToTheCoordinator/np2:*/WakeupsTest.OfBlockingOperations/np2",
    ),
    "shm_memory_is_not_sealed": (["ops/transports/shm_job.cc"], "ShmJobTest.*"),
    "shm_message_does_not_wrap": (["ops/transports/shm.cc"], "ShmTest.AFull*"),
    "shm_name_is_known": (["ops/transports/shm_job.cc"], "ShmJobTest.*"),
    "shm_reads_a_stranger": (["ops/transports/shm.cc"], "ShmTest.WhoBears*"),
    "shm_rings_before_there_is_mail": (
        ["ops/transports/shm.cc"],
        "*/WakeupsTest.OfMessagesToTheCoordinator/*",
    ),
    "shm_rings_the_wrong_bell": (["ops/transports/shm.cc"], "*/WakeupsTest.OfAWaiter*/np3"),
    "shm_seals_are_not_looked_for": (["ops/transports/shm_job.cc"], "ShmJobTest.*"),
    "shm_ticks_find_nobody": (["ops/transports/shm.cc"], "*/WakeupsTest.OfAWaiter*/np3"),
    "shm_ticks_ring_nobody": (["ops/transports/shm.cc"], "*/WakeupsTest.OfAWaiter*/np3"),
    "shm_words_ring_is_not_remembered": (["ops/transports/shm_words.cc"], "ShmWordsTest.ARing*"),
    "shm_words_ring_nobody": (
        ["ops/transports/shm_words.cc"],
        "*RoundsTest.WithAll*/*:*/PairsTest.*:ShmWordsTest.ARing*",
    ),
    "train_answer_of_before_is_taken": (
        ["core/engine/far_window.cc"],
        "FarWindowTest.AnAnswerFrom*",
    ),
    "train_any_number_counts": (["core/train/trainer.cc"], "TrainerTest.WrongCalls*"),
    "train_kept_progress_is_not_offered": (
        ["core/train/round_part.cc"],
        "RoundPartTest.ProgressThat*",
    ),
    "train_own_steps_are_not_counted": (
        ["core/train/round_part.cc"],
        "RoundPartTest.ARankOfDeltas*",
    ),
    "train_overdue_rank_keeps_its_course": (
        ["core/train/round_part.cc"],
        "RoundPartTest.AnOverdue*",
    ),
    "train_delta_is_never_forgotten": (["core/train/outer_model.cc"], "OuterModelTest.*"),
    "train_exchange_begins_twice": (["core/train/trainer.cc"], "TrainerTest.MaxWait*"),
    "train_leaves_without_limit": (
        ["core/train/trainer_parts.cc"],
        "TrainerPartsTest.WhatFollowsPairs*",
    ),
    "train_nothing_is_vacated": (
        ["core/train/trainer_parts.cc"],
        "TrainerHandoverTest.MemoryOfRounds*",
    ),
    "train_finish_takes_steps_of_the_leader": (["core/partial/tiles.cc"], "MergeTest.TheRecord*"),
    "train_finish_keeps_own_steps": (["core/train/trainer.cc"], "TrainerTest.AfterFinish*"),
    "train_pairs_part_without_a_mean": (
        ["core/train/trainer_parts.cc"],
        "TrainerPartsTest.PairsEnd*",
    ),
    "train_codec_leaves_out_at_the_end_of_a_part": (
        ["core/train/trainer.cc"],
        "TrainerPartsTest.WithinAPart*",
    ),
    "train_pass_waits_for_any_version": (["core/train/pass_clock.cc"], "PassClockTest.*"),
    "train_momenta_stay_apart": (["core/train/trainer.cc"], "TrainerPartsTest.StateIsAveraged*"),
    "train_residual_is_lost": (["core/engine/trainer_codec.cc"], "TrainerCodecTest.*"),
    "train_restored_version_goes_back": (["core/train/trainer_position.cc"], "TrainerTest.ARest*"),
    "train_pass_ends_pairs": (["core/train/trainer_parts.cc"], "TrainerPartsTest.APassEnds*"),
    "train_settle_goes_on_as_a_finish": (
        ["core/train/trainer.cc"],
        "TrainerHandoverTest.ASettle*",
    ),
    "train_settle_takes_the_mean": (
        ["core/train/trainer.cc"],
        "TrainerPairsTest.WhatRanksHold*",
    ),
    "train_copy_stays_in_the_next_step": (
        ["core/engine/trainer_driver.cc"],
        "TrainerPeekTest.ARankThatLooks*",
    ),
    "train_model_is_copied_unasked": (
        ["core/engine/trainer_window.cc"],
        "TrainerPeekTest.AModelThatIsTrainedElsewhere*",
    ),
    "train_update_is_seen_half_done": (
        ["core/engine/trainer_driver.cc"],
        "TrainerPeekTest.AModelIsNotSeen*",
    ),
    "train_state_kinds_are_not_compared": (
        ["core/engine/trainer_state.cc"],
        "TrainerStateTest.KindsThat*",
    ),
    "train_state_lists_count_as_equal": (
        ["core/engine/trainer_state.cc"],
        "TrainerStateTest.AnyDifference*",
    ),
    "train_state_not_listed_is_left_out": (
        ["core/engine/trainer_state.cc"],
        "TrainerStateTest.ListsThatDiffer*",
    ),
    "train_updated_step_is_dropped": (
        ["core/train/trainer.cc"],
        "TrainerTest.AStepThatFailsAfter*",
    ),
    "train_waiting_model_is_taken": (
        ["core/engine/trainer_window.cc"],
        "SharedWindowTest.ARankThatWaits*",
    ),
    "view_first_pages_alone": (["core/base/copy_on_write.cc"], "CopyOnWriteTest.*"),
    "view_locked_pages_are_not_copied": (["core/base/copy_on_write.cc"], "CopyOnWriteTest.*"),
    "view_shared_pages_count_as_written": (["core/base/copy_on_write.cc"], "CopyOnWriteTest.*"),
    "view_written_pages_are_kept": (["core/base/copy_on_write.cc"], "CopyOnWriteTest.*"),
    "w10_one_in_need_fires": (
        ["core/partial/rounds.cc"],
        "EndingTest.WhoLooksForASnapshot*",
    ),
    "w5_learnt_is_of_the_leaders_term": (
        ["core/replicated/replica.cc"],
        "ReplicaElectionTest.WhatIsLearnt*",
    ),
    "w6_dropped_step_keeps_early_copies": (
        ["core/partial/rounds.cc"],
        "MergeTest.ADroppedStep*",
    ),
    "w7_leader_keeps_who_has_more_waiting": (
        ["core/replicated/leader_state.cc"],
        "ReplicaElectionTest.*BeforeItsTerm",
    ),
    "w8_ahead_is_waited_for_in_finish": (
        ["core/partial/arrivals.cc"],
        "ArrivalsTest.AWaiterInFinish*",
    ),
    "w8_finish_again_is_the_same": (
        ["core/partial/rounds_port.cc"],
        "HostsPairsTest.AFinishOfRounds*",
    ),
    "w8_late_model_holds_up_the_others": (
        ["core/replicated/aggregator.cc"],
        "SettlementTest.WhatComesLater*",
    ),
    "w8_snapshot_makes_overdue": (
        ["core/replicated/replica_trainer.cc"],
        "ReplicaTest.AfterASnapshot*",
    ),
    "w8_who_goes_on_drops_nothing": (
        ["core/partial/shared_epoch_end.cc"],
        "EndingTest.WhoGoesOnDrops*",
    ),
    "w26_goes_on_only_in_finish": (
        ["core/replicated/settlement.cc"],
        "SettlementTest.WhoHasEndedWithAll*",
    ),
    "w26_given_up_attempt_is_accepted": (
        ["core/replicated/replica_settlement.cc"],
        "SettlementTest.WhatWasGivenUp*",
    ),
    "w26_is_quiet_while_it_settles": (
        ["core/replicated/leader_heartbeats.cc"],
        "SettlementTest.TheMeanIsTaken*",
    ),
    "w28_state_goes_with_its_trainer": (
        ["core/replicated/replica_settlement.cc"],
        "SettlementTest.WhoHasGoneKeeps*",
    ),
    "w10_who_has_gone_on_is_a_donor": (
        ["core/replicated/replica.cc"],
        "ReplicaTest.AfterTheLast*",
    ),
    "w29_state_comes_before_its_log": (
        ["core/replicated/replica_trainer.cc"],
        "ReplicaTest.AfterTheLast*",
    ),
    "w29_state_serves_one_rank": (
        ["core/replicated/replica_settlement.cc"],
        "ReplicaTest.AfterTheLast*",
    ),
    "w29_taken_back_before_the_last": (
        ["core/replicated/replica_trainer.cc"],
        "ReplicaTest.WhatNoVersionHas*",
    ),
})

# The tests; those in C that have a main are in mutants/c_tests.c.
BODIES = [
    "contract/engine_test.cc",
    "contract/handles_test.cc",
    "contract/hosts_pairs_test.cc",
    "contract/models_test.cc",
    "contract/result_test.cc",
    "contract/rounds_test.cc",
    "contract/trainer_pairs_test.cc",
    "contract/trainer_peek_test.cc",
    "contract/wakeups_test.cc",
    "unit/api/repeats_test.cc",
    "unit/base/copy_on_write_test.cc",
    "unit/engine/engine_test.cc",
    "unit/engine/tensor_queue_test.cc",
    "unit/engine/trainer_codec_test.cc",
    "unit/engine/far_window_test.cc",
    "unit/engine/shared_window_test.cc",
    "unit/engine/trainer_state_test.cc",
    "unit/gossip/far_codec_test.cc",
    "unit/gossip/far_looks_test.cc",
    "unit/gossip/far_pairs_test.cc",
    "unit/ops/transports/shm_job_test.cc",
    "unit/ops/transports/shm_join_test.cc",
    "unit/ops/transports/shm_test.cc",
    "unit/ops/transports/shm_words_test.cc",
    "unit/partial/arrivals_test.cc",
    "unit/partial/merge_test.cc",
    "unit/partial/rounds_test.cc",
    "unit/replicated/replica_election_test.cc",
    "unit/replicated/replica_test.cc",
    "unit/replicated/settlement_test.cc",
    "unit/train/outer_model_test.cc",
    "unit/train/pass_clock_test.cc",
    "unit/train/round_part_test.cc",
    "unit/train/trainer_handover_test.cc",
    "unit/train/trainer_parts_test.cc",
    "unit/train/trainer_test.cc",
    "unit/transport/guarded_link_test.cc",
    "unit/transport/link_agreement_test.cc",
]

# What stands in a library that is linked as a whole, with sources that have mutants.
UNMUTATED = [
    "//core/api:c_api.h",
    "//core/api:c_api_methods.h",
    "//core/api:c_api_offers.h",
    "//core/api:c_api_pairs_open.h",
    "//core/api:c_api_rounds.h",
    "//core/api:c_api_submit.h",
    "//core/api:c_api_trainer.h",
    "//ops/transports:inproc.cc",
    "//ops/transports:inproc.h",
    "//ops/transports:shm.h",
    "//ops/transports:shm_job.h",
    "//ops/transports:shm_watch.cc",
    "//ops/transports:shm_watch.h",
    "//ops/transports:shm_words.h",
]
