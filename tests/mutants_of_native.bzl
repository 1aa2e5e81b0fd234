"""Mutants of the C extension."""

load(":mutants.bzl", "mutated_sources")

# Which tests are to fail stands in the texts (mutants/native/mutants_test.py).
NATIVE_MUTANTS = {
    "native_buffers_hold_no_memory": (["frameworks/native/memory.c"], None),
    "native_dropped_tensors_are_let_go": (["frameworks/native/handle.c"], None),
    "native_ended_tensors_are_kept": (["frameworks/native/handle.c"], None),
    "native_failed_finish_is_forgotten": (["frameworks/native/handle.c"], None),
    "native_handles_of_an_earlier_runtime_are_used": (["frameworks/native/handle.c"], None),
    "native_interrupts_are_cleared": (["frameworks/native/shortcut.c"], None),
    "native_lists_of_two_types_are_taken": (["frameworks/native/shortcut.c"], None),
    "native_memory_is_never_given_back": (["frameworks/native/memory.c"], None),
    "native_negated_are_sent_as_they_lie": (["frameworks/native/shortcut.c"], None),
    "native_names_seen_are_refused": (["frameworks/native/dropped.c"], None),
    "native_orphans_are_kept": (["frameworks/native/dropped.c"], None),
    "native_ranks_are_cut_to_32_bits": (["frameworks/native/module.c"], None),
    "native_repeated_names_are_taken": (["frameworks/native/dropped.c"], None),
    "native_shutdown_is_no_abort": (["frameworks/native/handle.c"], None),
    "native_shutdown_keeps_orphans": (["frameworks/native/module.c"], None),
    "native_strided_tensors_are_taken": (["frameworks/native/dlpack.c"], None),
    "native_submitted_keeps_nothing": (["frameworks/native/submit.c"], None),
    "native_texts_are_cut": (["frameworks/native/module.c"], None),
    "native_too_many_dimensions_are_taken": (["frameworks/native/submit.c"], None),
    "native_two_threads_finish": (["frameworks/native/handle.c"], None),
    "native_types_are_told_by_bits_alone": (["frameworks/native/dlpack.c"], None),
    "native_unknown_names_are_taken": (["frameworks/native/shortcut.c"], None),
}

# The rest of its sources.
NATIVE_UNMUTATED = [
    "//frameworks:native/bench.c",
    "//frameworks:native/control.c",
    "//frameworks:native/errors.c",
    "//frameworks:native/methods.c",
    "//frameworks:native/neighbors.c",
    "//frameworks:native/trainer.c",
    "//frameworks:native/trainer_state.c",
    "//frameworks:native/tuples.c",
    "//frameworks:native/values.c",
    "//frameworks:native/waiting.c",
    "//frameworks:native/native.h",
]

def native_mutant_test(folder, srcs, **kwargs):
    """A test of the C extension with all mutants of NATIVE_MUTANTS, see folder/mutants_test.py."""
    native.genrule(
        name = folder + "/switches",
        testonly = True,
        outs = [folder + "/switches.c"],
        cmd = "$(location :mutate) $@ --switches " + " ".join(NATIVE_MUTANTS.keys()),
        tools = [":mutate"],
    )
    native.cc_binary(
        name = folder + "/_native.abi3.so",
        testonly = True,
        srcs = mutated_sources(folder, NATIVE_MUTANTS) + NATIVE_UNMUTATED +
               [folder + "/switches.c"],
        additional_linker_inputs = ["//frameworks:covey/libcovey.so"],
        copts = [
            "-DPy_LIMITED_API=0x03090000",
            "-w",
        ],
        linkopts = [
            "$(location //frameworks:covey/libcovey.so)",
            "-Wl,-rpath,'$$ORIGIN'",
            "-static-libgcc",
        ],
        linkshared = True,
        deps = [
            "//core/api:header",
            "@covey_python//:headers",
        ],
    )
    native.py_test(
        name = folder + "/mutants_test",
        srcs = [folder + "/mutants_test.py", "runner.py", "lean/sitecustomize.py"] + srcs,
        args = ["tests/%s/mutants_test.py" % folder],
        data = [folder + "/_native.abi3.so"] + native.glob([folder + "/*.txt"]),
        main = "runner.py",
        python_version = "PY3",
        deps = [":covey_for_methods"],
        **kwargs
    )
