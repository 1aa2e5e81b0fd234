"""Finds the tests: a file with the right name in the right folder is one; nothing is registered."""

load("@covey_grpc//:has.bzl", "HAS_GRPC")
load("@covey_openssl//:has.bzl", "HAS_OPENSSL")
load("@covey_ucx//:has.bzl", "HAS_UCX")
load(":mutants_of_code.bzl", "BODIES")

# What a C++ test of this folder links. The longest prefix counts; a short list keeps an unfinished
# room from breaking the tests of another.
_CC_DEPS = {
    "": [
        "//core/api:c_api",
        "//core/api:session",
        "//ops",
    ],
    "contract/cuda": [
        "//core/api:c_api",
        "//ops",
        "//tests/plugins:fake_cuda",
    ],
    "contract/cuda_launch": [
        "//core/device:interfaces",
        "//ops/devices:cuda_launch",
        "//ops/kernels",
        "//tests/plugins:fake_cuda",
    ],
    "contract/fuzz/control": [
        "//ops/control:grpc",
        "//proto:control",
    ],
    "contract/nccl": [
        "//core/api:c_api",
        "//ops",
        "//tests/plugins:fake_cuda",
    ],
    "contract/control": [
        "//ops/control:grpc",
        "//proto:control",
    ],
    "sim": [
        "//core/api:session",
        "//ops",
        ":simulator",
    ],
    "unit/agree": [],
    "unit/base": [],
    "unit/base/find_object": ["//core/base:older_glibc"],
    "unit/base/older_glibc": ["//core/base:older_glibc"],
    "unit/ops/algorithms": [
        "//core/plan",
        "//ops/algorithms",
    ],
    "unit/ops/codecs": [
        "//core/run:codec",
        "//ops/codecs",
        "//ops/kernels",
    ],
    "unit/ops/control": ["//ops/control:rendezvous"],
    "unit/ops/control/challenge": ["//ops/control:challenge"],
    "unit/ops/control/identity": ["//ops/control:challenge"],
    "unit/ops/devices": [
        "//core/device:interfaces",
        "//ops/devices:cuda_loops",
        "//ops/kernels",
        "//tests/plugins:host_kernels",
    ],
    "unit/method": ["//core/method"],
    "unit/ops/kernels": ["//ops/kernels"],
    "unit/ops/methods": [
        "//core/method",
        "//ops/methods",
    ],
    "unit/ops/transports": [
        "//core/transport:interfaces",
        "//ops/transports",
    ],
    "unit/ops/transports/tcp": [
        "//core/transport",
        "//ops/transports:tcp_entry",
    ],
    "unit/ops/transports/ucx": [
        "//core/transport",
        "//ops/transports:tcp_entry",
        "//ops/transports:ucx_entry",
    ],
    "unit/plan": ["//ops/algorithms"],
    "unit/transport/peer_book": ["//core/transport:interfaces"],
    "unit/run": [
        "//core/plan",
        "//ops/kernels",
    ],
}

# What a C++ test reads at run time.
_CC_DATA = {
    "contract/cuda_test.cc": [
        "//ops/devices:libcovey_cuda.so",
        "//tests/plugins:driver/libcuda.so.1",
    ],
    "contract/cuda_auto_test.cc": [
        "//tests/plugins:cuda/libcovey_cuda.so",
        "//tests/plugins:driver/libcuda.so.1",
        "//tests/plugins:nccl/libnccl.so.2",
    ],
    "contract/cuda_ipc_test.cc": [
        "//tests/plugins:cuda/libcovey_cuda.so",
        "//tests/plugins:driver/libcuda.so.1",
    ],
    "contract/cuda_launch_test.cc": ["//tests/plugins:driver/libcuda.so.1"],
    "contract/nccl_test.cc": [
        "//ops/devices:libcovey_cuda.so",
        "//tests/plugins:driver/libcuda.so.1",
        "//tests/plugins:nccl/libnccl.so.2",
    ],
    "contract/nccl_stuck_test.cc": [
        "//ops/devices:libcovey_cuda.so",
        "//tests/plugins:driver/libcuda.so.1",
        "//tests/plugins:nccl/libnccl.so.2",
    ],
    "contract/nccl_torn_test.cc": [
        "//ops/devices:libcovey_cuda.so",
        "//tests/plugins:driver/libcuda.so.1",
        "//tests/plugins:nccl_torn/libnccl.so.2",
    ],
    "unit/transport/plugin_test.cc": ["//tests/plugins"],
}

# What Python tests read at run time, besides what all of their folder do.
_PY_DATA = {
    "frameworks/help": [
        "//examples",
        ":tensorflow_operations",
    ],
    "frameworks/keras": [":tensorflow_operations"],
    "frameworks/mixed": [":tensorflow_operations"],
    "frameworks/tensorflow": [":tensorflow_operations"],
    "parallel/as_horovod": [":tensorflow_operations"],
    "parallel/examples": [":tensorflow_operations"],
    "parallel/keras": [":tensorflow_operations"],
    "parallel/tensorflow": [":tensorflow_operations"],
}

# What the process of a Python test imports first, where that is not torch.
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

# Texts that C++ tests of a folder read.
_CC_TEXTS = {
    "sim": [
        "sim/*.txt",
        "golden/transcripts/*.txt",
    ],
}

# Tests of what only a machine with gRPC builds.
_CC_OF_GRPC = [
    "contract/control_test.cc",
    "contract/fuzz/control_test.cc",
    "unit/ops/control/challenge_test.cc",
    "unit/ops/control/identity_test.cc",
]

# Tests of what only a machine with OpenSSL's static libraries builds.
_CC_OF_OPENSSL = "unit/ops/transports/tcp/"

# Tests of what only a machine with UCX builds; they take tcp's plug-in, too.
_CC_OF_UCX = "unit/ops/transports/ucx/"

# A test through gRPC's own threads, which the sanitizers do not know: tools/check leaves it out.
_CC_TAGS = {"contract/control_test.cc": ["grpc"]}

# What starts whole jobs in a folder of quick tests; /sys/fs/cgroup, where processes can be limited,
# is read only in a sandbox.
_PY_TAGS = {
    "golden/readme_wheel_test.py": ["processes"],
    "golden/wheel_grpc_test.py": ["processes"],
    "golden/wheel_test.py": ["processes"],
    "parallel/attacks_test.py": ["no-sandbox"],
}

# Tests that run in parts, at once on as many cores.
_CC_SHARDS = {"sim/swarm_test": 2}

_ALWAYS = [
    "//core/base",
    "//core/api:header",
    "//tools/bazel:gtest_main",
    ":prelude",
]

_PRELUDE = ["-include", "$(GENDIR)/tests/prelude.h", "-Winvalid-pch"]

def _prefix(path, table):
    best = ""
    for prefix in table:
        if len(prefix) > len(best) and path[:len(prefix) + 1] in [prefix + "/", prefix + "_"]:
            best = prefix
    return best

def cc_tests(folder, tags, **kwargs):
    """One cc_test for each `*_test.cc` (GoogleTest) under `folder`; other files are shared."""
    helpers = native.glob([folder + "/**/*.h", folder + "/**/*.cc"], exclude = ["**/*_test.cc"])
    for path in native.glob([folder + "/**/*_test.cc"]):
        if path in _CC_OF_GRPC and not HAS_GRPC:
            continue
        if path.startswith(_CC_OF_OPENSSL) and not HAS_OPENSSL:
            continue
        if path.startswith(_CC_OF_UCX) and not (HAS_UCX and HAS_OPENSSL):
            continue
        prefix = _prefix(path, _CC_DEPS)
        room = prefix.split("/")[-1] if prefix.startswith("unit/") else ""
        own = ["//core/" + room] if room in ["agree", "base", "plan", "run"] else []
        srcs = [path] + [h for h in helpers if _near(h, path)]
        deps = _deps(_CC_DEPS[prefix] + own + _ALWAYS)
        if path in BODIES:
            deps = [":" + _shared_body(path, srcs, deps)] + deps
            srcs = []
        native.cc_test(
            name = path[:-len(".cc")],
            srcs = srcs,
            copts = _PRELUDE,
            data = _CC_DATA.get(path, []) + native.glob(_CC_TEXTS.get(folder, [])),
            linkstatic = True,
            shard_count = _CC_SHARDS.get(path[:-len(".cc")], 0),
            deps = deps,
            tags = _CC_TAGS.get(path, tags),
            **kwargs
        )

def _shared_body(path, srcs, deps):
    """A test that mutants_test holds too, compiled once for both. Returns the library's name; the
    file is NAME_archive, which brings none of what the test links."""
    name = path[:-len(".cc")] + "_body"
    native.cc_library(
        name = name,
        testonly = True,
        srcs = srcs,
        copts = _PRELUDE,
        alwayslink = True,
        linkstatic = True,
        deps = deps,
    )
    native.filegroup(
        name = name + "_archive",
        testonly = True,
        srcs = [name],
    )
    return name

def _near(helper, path):
    return path.startswith(helper.rpartition("/")[0] + "/")

def py_tests(folder, deps = [], data = [], tags = [], together = {}, **kwargs):
    """One py_test for each `*_test.py` (unittest) under `folder`; other files there are shared.

    `together`: what a test's process imports first -> into how many targets such tests are put, see
    together.py. Those targets run by `//...`; the test alone then runs by its name only."""
    helpers = native.glob([folder + "/**/*.py"], exclude = ["**/*_test.py"])
    groups = {}
    for path in native.glob([folder + "/**/*_test.py"]):
        name = path[:-len(".py")]
        own = _PY_DATA.get(_prefix(path, _PY_DATA), [])
        if together:
            first = _PY_FIRST.get(_prefix(path, _PY_FIRST), "torch")
            groups.setdefault(first, []).append((path, own))
        native.py_test(
            name = name,
            srcs = [path, "runner.py", "lean/sitecustomize.py"] + helpers,
            main = "runner.py",
            args = [native.package_name() + "/" + path],
            data = data + own,
            deps = deps,
            python_version = "PY3",
            tags = ["python"] + tags + _PY_TAGS.get(path, []) + (["manual"] if together else []),
            **kwargs
        )
    for first, tests in groups.items():
        count = together[first]
        for number in range(count):
            mine = tests[number::count]
            paths = [path for path, _ in mine]
            native.py_test(
                name = "%s/with_%s_%d" % (folder, first, number + 1),
                srcs = paths + ["runner.py", "together.py", "lean/sitecustomize.py"] + helpers,
                main = "together.py",
                args = [first] + [native.package_name() + "/" + path for path in paths],
                data = _deps(data + [label for _, own in mine for label in own]),
                deps = deps,
                python_version = "PY3",
                tags = ["python"] + tags,
                timeout = "eternal",  # Each file has a limit of its own.
                **kwargs
            )

def cluster_tests(**kwargs):
    """One py_test for each `cluster_*test.py`. A sandbox forbids mounts; the tool and the guide are
    read where they lie. All but the small one need `tools/test --cluster`."""
    shared = native.glob(["cluster_*.py"]) + ["parallel/operations.py"]
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

def _deps(names):
    return list({name: None for name in names}.keys())
