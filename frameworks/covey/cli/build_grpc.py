"""The part grpc of `covey build`: the control plane of jobs of several launchers, against the gRPC,
protobuf and OpenSSL of this machine, by their own compilers."""

from __future__ import annotations

import argparse
import glob
import os
import subprocess

from covey.cli.build_part import Part, find_compiler, find_cxx
from covey.launch.spec import LaunchError

_FLAGS = ("-std=c++20", "-O2", "-fPIC", "-fvisibility=hidden", "-w")
_LIBRARIES = ("grpc++", "grpc", "gpr", "absl_synchronization", "protobuf-lite", "ssl", "crypto")
_HEADERS = ("google/protobuf/message_lite.h", "grpcpp/grpcpp.h", "openssl/hmac.h")
_PROGRAMS = ("protoc", "grpc_cpp_plugin")
_ADVICE = (
    "install gRPC, protobuf and OpenSSL with headers and compilers (Debian, Ubuntu: apt-get "
    "install libgrpc++-dev libprotobuf-dev libssl-dev protobuf-compiler protobuf-compiler-grpc)"
)


def describe(arguments: argparse.Namespace, sources: str) -> Part:
    """How to make it from the folder `sources`. Raises LaunchError when something is missing."""
    compiler = find_cxx(arguments.cxx)
    compiler = os.path.abspath(compiler)
    protoc, grpc_cpp_plugin = (
        find_compiler(name, name, f"there is no {name} in PATH: {_ADVICE}") for name in _PROGRAMS
    )
    _check_headers(compiler)
    messages = os.path.join("proto", "control")  # In the folder where commands run.
    files = sorted(glob.glob(os.path.join(sources, "core", "*", "*.cc")))
    # gRPC's headers take longer than what is made of them: one unit reads them once.
    unit = [
        f"{messages}.pb.cc",
        *sorted(glob.glob(os.path.join(sources, "ops", "control", "*.cc"))),
    ]
    flags = [*_FLAGS, "-I.", f"-I{sources}"]
    generate = [
        os.path.abspath(protoc),
        f"--proto_path={sources}",
        "--cpp_out=.",
        "--grpc_out=.",
        f"--plugin=protoc-gen-grpc={os.path.abspath(grpc_cpp_plugin)}",
        f"{messages}.proto",
    ]
    included = [word for file in unit for word in ("-include", file)]
    compiled = [compiler, *flags, *included, "-c", f"{messages}.grpc.pb.cc", "-o", "control.o"]
    libraries = [f"-l{name}" for name in _LIBRARIES]
    links = ["-shared", "-Wl,-z,defs", "-Wl,--as-needed", *libraries]
    return Part(
        "libcovey_grpc.so",
        [compiler, *flags, *files, "control.o", *links],
        "from covey import _native; _native.plugin_check('grpc')",
        "start a job with: coveyrun -np N --nodes 2 --serve HOST:PORT --secret-file FILE python "
        "SCRIPT, and the same with --join for the other node",
        (generate, compiled),
    )


def _check_headers(compiler: str) -> None:
    for header in _HEADERS:
        done = subprocess.run(
            [compiler, "-E", "-x", "c++", "-"],
            input=f"#if !__has_include(<{header}>)\n#error\n#endif\n",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
            check=False,
        )
        if done.returncode != 0:
            raise LaunchError(f"{compiler} finds no {header}: {_ADVICE}")
