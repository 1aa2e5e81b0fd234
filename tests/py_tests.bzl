"""Finds the tests in Python: a file with the right name in the right folder is one; nothing is
registered."""

load(":tables.bzl", "longest_prefix", "unique")

_OF_CUDA = [
    "//ops/devices:cuda_header",
    "//ops/devices:cuda_kernels",
]

_OF_WHEEL = [
    "//:readme",
    "//:wheel",
    "//examples",
]

# Data of Python tests, besides that of all tests of their folder.
_PY_DATA = {
    "frameworks/c10d_streams": ["//tests/plugins"],
    "frameworks/card": ["//tests/plugins"],
    "frameworks/cuda": ["//tests/plugins"],
    "frameworks/help": [
        "//examples",
        ":tensorflow_operations",
    ],
    "frameworks/keras": [":tensorflow_operations"],
    "frameworks/mirror": ["//tests/plugins"],
    "frameworks/mixed": [":tensorflow_operations"],
    "frameworks/old_checkpoints": [":checkpoints"],
    "frameworks/plugin": ["//tests/plugins"],
    "frameworks/tensorflow": [":tensorflow_operations"],
    "golden/cuda": _OF_CUDA,
    "golden/libcovey": [
        "//:libcovey.so",
        "//core/api:covey.h",
        "//core/api:covey_control.h",
        "//core/api:covey_methods.h",
        "//core/api:covey_neighbors.h",
        "//core/api:covey_rounds.h",
        "//core/api:covey_trainer.h",
        "//core/api:covey_values.h",
        "//core/api:covey_waiting.h",
        "//frameworks:binaries",
        "//ops/control:plugin",
    ],
    "golden/nccl": _OF_CUDA,
    "golden/readme_wheel": _OF_WHEEL,
    "golden/wheel": _OF_WHEEL,
    "parallel/address_file": ["//ops/control:plugin"],
    "parallel/as_horovod": [":tensorflow_operations"],
    "parallel/attacks": ["//ops/control:plugin"],
    "parallel/examples": [":tensorflow_operations"],
    "parallel/joined": ["//ops/control:plugin"],
    "parallel/keras": [":tensorflow_operations"],
    "parallel/load_order": ["//ops/control:plugin"],
    "parallel/mpi": [
        "//frameworks:covey/plugins/mpi_link.c",
        "//ops/control:plugin",
    ],
    "parallel/readme": ["//ops/control:plugin"],
    "parallel/rendezvous": ["//ops/control:plugin"],
    "parallel/tensorflow": [":tensorflow_operations"],
}

# The part of the catalogue that a Python test uses (covey_with of BUILD). With "collectives" the
# method is allreduce, and there is no codec; with "methods" there are all methods, and no codec;
# with "nothing" the package is not there. "all", as any other test has it, is libcovey.so as it
# is shipped, with plug-ins and what `covey build` compiles; "hosts" is that without the codecs. A
# test that uses more than it has finds no such method, codec or plug-in.
_PY_OPS = {name: ops for ops, names in {
    "all": [
        "frameworks/keras_torch",
        "frameworks/method_codec",
        "frameworks/mirror_codec",
        "frameworks/mixed_codec",
        "frameworks/optimizer_rules",
        "frameworks/tensorflow_neighbors",
        "frameworks/tensorflow_scripts",
        "frameworks/tensorflow_trainer",
        "parallel/experiments_codec",
    ],
    "collectives": [
        "frameworks/bench_native",
        "frameworks/c10d",
        "frameworks/collectives",
        "frameworks/copies",
        "frameworks/ddp_torch",
        "frameworks/dropped",
        "frameworks/elastic",
        "frameworks/groups",
        "frameworks/join",
        "frameworks/life",
        "frameworks/loggers",
        "frameworks/mismatch",
        "frameworks/optimizer",
        "frameworks/overlap",
        "frameworks/scatter",
        "frameworks/shared_memory",
        "frameworks/shortcut",
        "frameworks/state",
        "frameworks/surface",
        "frameworks/sync_batch_norm",
        "frameworks/tensorflow_collectives",
        "frameworks/tensorflow_elastic",
        "frameworks/tensorflow_errors",
        "frameworks/tensorflow",
        "frameworks/topology",
        "frameworks/typing",
        "frameworks/wrong_kinds",
        "parallel/address_file",
        "parallel/attacks",
        "parallel/horovod_variables",
        "parallel/hosts",
        "parallel/joined",
        "parallel/launch_parts",
        "parallel/launcher_endings",
        "parallel/leftovers",
        "parallel/memory",
        "parallel/operations",
        "parallel/place",
        "parallel/preload",
        "parallel/runtime_endings",
        "parallel/tensorflow_peers",
        "parallel/torch_decoders",
        "parallel/torchrun",
        "parallel/trace",
        "parallel/where",
    ],
    "hosts": [
        "frameworks/c10d_streams",
        "frameworks/mirror",
        "frameworks/mixed",
        "parallel/bench",
        "parallel/elastic_hosts",
        "parallel/experiments",
        "parallel/joined_hosts",
        "parallel/load_order",
        "parallel/rendezvous",
    ],
    "nothing": ["golden"],
    "methods": [
        "frameworks/adasum",
        "frameworks/check_nan",
        "frameworks/clip",
        "frameworks/consensus_faults",
        "frameworks/crossing",
        "frameworks/ddp",
        "frameworks/dpsgd",
        "frameworks/equal_start",
        "frameworks/exactly_once",
        "frameworks/finish",
        "frameworks/helping",
        "frameworks/hypers",
        "frameworks/inject",
        "frameworks/keras",
        "frameworks/late_progress",
        "frameworks/layout",
        "frameworks/max_wait",
        "frameworks/method",
        "frameworks/numpy_consensus",
        "frameworks/numpy_diloco",
        "frameworks/overflow",
        "frameworks/pairs",
        "frameworks/results",
        "frameworks/round",
        "frameworks/rounds",
        "frameworks/save_elsewhere",
        "frameworks/save_faults",
        "frameworks/skip_ahead",
        "frameworks/snapshots",
        "frameworks/switch",
        "frameworks/tensorflow_adasum",
        "frameworks/tensorflow_consensus",
        "frameworks/tensorflow_layers",
        "frameworks/tensorflow_library",
        "frameworks/tensorflow_local",
        "frameworks/tensorflow_save",
        "frameworks/tensorflow_state",
        "frameworks/tensorflow_training",
        "frameworks/trainer_state",
        "frameworks/unchanged",
        "frameworks/wagma",
        "frameworks/warmup",
        "frameworks/written",
        "parallel/as_horovod",
        "parallel/by_method",
        "parallel/check_nan",
        "parallel/examples",
        "parallel/keep_going",
        "parallel/keras_faults",
        "parallel/launcher_output",
        "parallel/method_choice",
        "parallel/mpi",
        "parallel/one_script",
        "parallel/run_function",
        "parallel/stop_and_go",
        "parallel/summary",
        "parallel/trainers",
    ],
}.items() for name in names}

# The module that the process of a Python test imports first, where that is not torch.
_PY_FIRST = {
    "frameworks/bench_native": "none",
    "frameworks/dropped": "none",
    "frameworks/help": "tensorflow",
    "frameworks/keras": "tensorflow",
    "frameworks/life": "none",
    "frameworks/loggers": "none",
    "frameworks/mixed": "tensorflow",
    "frameworks/numpy_consensus": "none",
    "frameworks/plugin": "none",
    "frameworks/tensorflow": "tensorflow",
    "frameworks/topology": "none",
    "frameworks/trainer_state": "none",
}

# Tests that start whole jobs in a folder of quick tests; /sys/fs/cgroup, where processes can be
# limited, is read only in a sandbox.
_PY_TAGS = {
    "golden/readme_wheel_test.py": ["processes"],
    "golden/wheel_grpc_test.py": ["processes"],
    "golden/wheel_test.py": ["processes"],
    "parallel/attacks_test.py": ["no-sandbox"],
}

def py_tests(folder, deps = [], data = [], tags = [], together = {}, **kwargs):
    """One py_test for each `*_test.py` (unittest) under `folder`; other files there are shared.

    `together`: what a test's process imports first -> how many of such tests, which use the same of
    the catalogue, are one target, see together.py. Those targets run by `//...`; the test alone
    then runs by its name only."""
    helpers = native.glob([folder + "/**/*.py"], exclude = ["**/*_test.py"])
    groups = {}
    for path in native.glob([folder + "/**/*_test.py"]):
        name = path[:-len(".py")]
        own = _PY_DATA.get(longest_prefix(path, _PY_DATA), [])
        ops = py_ops(path)
        if together:
            first = _PY_FIRST.get(longest_prefix(path, _PY_FIRST), "torch")
            groups.setdefault((first, ops), []).append((path, own))
        native.py_test(
            name = name,
            srcs = [path, "runner.py", "lean/sitecustomize.py"] + helpers,
            main = "runner.py",
            args = [native.package_name() + "/" + path],
            data = data + own,
            deps = deps + covey_for(ops),
            python_version = "PY3",
            tags = ["python"] + tags + _PY_TAGS.get(path, []) + (["manual"] if together else []),
            **kwargs
        )
    for (first, ops), tests in groups.items():
        count = (len(tests) + together[first] - 1) // together[first]
        for number in range(count):
            mine = tests[number::count]
            paths = [path for path, _ in mine]
            native.py_test(
                name = "%s/with_%s_%s_%d" % (folder, first, ops, number + 1),
                srcs = paths + ["runner.py", "together.py", "lean/sitecustomize.py"] + helpers,
                main = "together.py",
                args = [first] + [native.package_name() + "/" + path for path in paths],
                data = unique(data + [label for _, own in mine for label in own]),
                deps = deps + covey_for(ops),
                python_version = "PY3",
                tags = ["python"] + tags,
                timeout = "eternal",  # Each file has a limit of its own.
                **kwargs
            )

def py_ops(path):
    """The part of the catalogue that a test uses, a name of _PY_OPS."""
    return _PY_OPS.get(longest_prefix(path, _PY_OPS), "all")

def covey_for(ops):
    """The package with it."""
    if ops == "nothing":
        return []
    return ["//frameworks:covey" if ops == "all" else ":covey_for_" + ops]

def cluster_tests(**kwargs):
    """One py_test for each `cluster_*test.py`. A sandbox forbids mounts; the tool and the guide are
    read where they lie. All but the small one need `tools/test --cluster`."""
    helpers = ["parallel/elastic_program.py", "parallel/operations.py"]
    shared = native.glob(["cluster_*.py"]) + helpers
    for path in native.glob(["cluster_*test.py"]):
        name = path[:-len(".py")]
        native.py_test(
            name = name,
            srcs = ["runner.py", "lean/sitecustomize.py"] + shared,
            main = "runner.py",
            args = [native.package_name() + "/" + path],
            python_version = "PY3",
            tags = ["cpu:2", "external", "no-sandbox", "processes", "python"] +
                   ([] if name == "cluster_small_test" else ["cluster"]),
            **kwargs
        )
