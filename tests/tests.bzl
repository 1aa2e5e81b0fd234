"""Finds the tests in C++: a file with the right name in the right folder is one; nothing is
registered."""

load("@covey_grpc//:has.bzl", "HAS_GRPC")
load("@covey_openssl//:has.bzl", "HAS_OPENSSL")
load("@covey_ucx//:has.bzl", "HAS_UCX")
load(":mutants_of_code.bzl", "BODIES")
load(":tables.bzl", "longest_prefix", "unique")

_OF_ALL = [
    "//core/api:c_api",
    "//core/api:session",
    "//ops",
]

# The same without codecs, and without algorithms that only such a test asks for.
_OF_METHODS = [
    "//core/api:c_api",
    "//core/api:session",
    "//ops:for_methods",
    "//ops/transports",
]

# Libraries that each test under a simulated clock links.
_SIMULATED = [
    "//core/api:session",
    "//ops/kernels",
    ":simulator",
]

# What a C++ test of this folder links. The longest prefix counts; a short list keeps an unfinished
# room from breaking the tests of another.
_CC_DEPS = {
    "": _OF_ALL,
    "contract": _OF_METHODS,
    "contract/codec": _OF_ALL,
    "contract/collectives": _OF_ALL,
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
    "contract/fuzz": _OF_ALL,
    "contract/fuzz/control": [
        "//ops/control:grpc",
        "//proto:control",
    ],
    "contract/hosts_pairs": _OF_ALL,
    "contract/method": _OF_ALL,
    "contract/methods": _OF_ALL,
    "contract/neighbors": _OF_ALL,
    "contract/nccl": [
        "//core/api:c_api",
        "//ops",
        "//tests/plugins:fake_cuda",
    ],
    "contract/control": [
        "//ops/control:grpc",
        "//proto:control",
    ],
    "contract/trainer": _OF_ALL,
    "sim": _SIMULATED + ["//ops"],
    "sim/host_costs": _SIMULATED,
    "sim/host_models": _SIMULATED,
    "sim/host_pairs": _SIMULATED + ["//ops/codecs"],
    "sim/host_silence": _SIMULATED,
    "sim/host_trainer_pairs": _SIMULATED + [
        "//ops/codecs",
        "//ops/methods",
    ],
    "sim/host_trainers": _SIMULATED + [
        "//ops/codecs",
        "//ops/methods",
    ],
    "sim/hosts": _SIMULATED,
    "sim/models": _SIMULATED,
    "sim/pairs": _SIMULATED + ["//ops/codecs"],
    "sim/plans": _SIMULATED + ["//ops/methods"],
    "sim/rounds": _SIMULATED,
    "sim/trainer_pairs": _SIMULATED + [
        "//ops/codecs",
        "//ops/methods",
    ],
    "sim/trainers": _SIMULATED + [
        "//ops/codecs",
        "//ops/methods",
    ],
    "sim/windows": _SIMULATED,
    "sim/witness": _SIMULATED,
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

# Tests that link libraries of this machine's processor only: --config=aarch64 leaves them out.
_CC_OF_THIS_PROCESSOR = [
    "contract/control_test.cc",
    "contract/fuzz/control_test.cc",
    _CC_OF_UCX,
]

# A test through gRPC's own threads, which the sanitizers do not know: tools/check leaves it out.
_CC_TAGS = {"contract/control_test.cc": ["grpc"]}

# Tests that run in parts, at once on as many cores.
_CC_SHARDS = {"sim/swarm_test": 2}

_ALWAYS = [
    "//core/base",
    "//core/api:header",
    "//tools/bazel:gtest_main",
    ":prelude",
]

_PRELUDE = ["-include", "$(GENDIR)/tests/prelude.h", "-Winvalid-pch"]

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
        prefix = longest_prefix(path, _CC_DEPS)
        room = prefix.split("/")[-1] if prefix.startswith("unit/") else ""
        own = ["//core/" + room] if room in ["agree", "base", "plan", "run"] else []
        srcs = [path] + [h for h in helpers if _near(h, path)]
        deps = unique(_CC_DEPS[prefix] + own + _ALWAYS)
        own_tags = _CC_TAGS.get(path, tags)
        if any([path.startswith(one) for one in _CC_OF_THIS_PROCESSOR]):
            own_tags = own_tags + ["this-processor"]
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
            tags = own_tags,
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
