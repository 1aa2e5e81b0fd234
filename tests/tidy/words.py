"""Calls, words and constructs that are not used here, each with what to use instead."""

from __future__ import annotations

import re
from typing import Iterator, NamedTuple, Tuple

from tidy import source
from tidy.source import Finding


class Ban(NamedTuple):
    """`pattern` is not used below `places` except in files whose path starts with one of `free`."""

    rule: str
    pattern: str
    places: Tuple[str, ...]
    free: Tuple[str, ...]
    instead: str


_ENGINE = ("core/", "ops/")
_ALL_CPP = ("core/", "ops/", "frameworks/", "tests/", "examples/")
# User threads meet Covey's in the first row; each of the others guards one thing by one lock.
_THREADED = (
    "core/api/session", "core/api/runtime_handle.", "core/base/arena.", "core/base/handle_table.",
    "core/base/older_glibc.", "core/engine/engine.", "core/engine/far_window.",
    "core/engine/stall.", "core/engine/tensor_queue.", "core/engine/timeline.",
    "core/engine/trainer_driver", "core/engine/trainer_window.", "core/gossip/gossip_port.",
    "core/gossip/hosts_port.", "core/gossip/pairs_port.", "core/partial/rounds_port.",
    "core/partial/shared_port.", "core/replicated/channel_waiters.",
    "core/replicated/replica_port.", "core/transport/descriptor_bell.", "ops/control/grpc_",
    "ops/devices/cuda/cuda_device.", "ops/devices/cuda/nccl_", "ops/transports/inproc.",
    "ops/transports/tcp/lane.", "ops/transports/tcp/worker.",
)
_PURE = ("core/agree/", "core/partial/", "core/replicated/", "core/gossip/", "core/method/",
         "core/plan/", "core/train/")

BANS = (
    Ban("getenv", r"\b(?:secure_)?getenv\s*\(", _ENGINE, ("core/base/config_sources.cc",),
        "only core/base/config_sources.cc reads the environment: add a field to Config"),
    Ban("environ", r"\benviron\b", _ENGINE, ("core/base/config_sources.cc", "core/api/c_api"),
        "the C API hands the environment to core/base/config_sources.cc: add a field to Config"),
    Ban("shared_ptr", r"\bstd::(?:shared_ptr|make_shared|weak_ptr)\b", ("core/",),
        ("core/base/log.cc",),
        "one owner holds a unique_ptr, others a reference with a sentence on its lifetime"),
    Ban("exception", r"\bthrow\b|\btry\s*\{|\bcatch\s*\(", _ENGINE,
        ("core/api/c_api.cc", "core/engine/timeline.cc", "core/base/log.cc"),
        "return a Status; exceptions of a library are caught where it is called"),
    Ban("sleep", r"\b(?:sleep|usleep|nanosleep|clock_nanosleep)\s*\(|\bsleep_(?:for|until)\b",
        _ENGINE, (), "wait for an event, or return the next deadline to the engine"),
    Ban("print", r"(?<!\w)(?:std::)?(?:printf|fprintf|vfprintf|puts|fputs|perror)\s*\("
        r"|\bstd::(?:cout|cerr|clog)\b", _ENGINE, ("core/base/log.cc", "core/base/check.cc"),
        "use core/base/log.h"),
    Ban("unbounded", r"\b(?:strcpy|strcat|sprintf|vsprintf|gets|strtok|alloca)\s*\(", _ALL_CPP, (),
        "use std::string, std::format-like code of base, or snprintf"),
    Ban("clock", r"\bsystem_clock\b|\b(?:steady|high_resolution)_clock\b|::now\s*\(\s*\)"
        r"|\b(?:clock_gettime|gettimeofday)\s*\(|\btime\s*\(\s*(?:NULL|nullptr)\s*\)", _ENGINE,
        ("core/base/clock.cc", "core/base/older_glibc.cc"),
        "take the time as an argument, or read core/base/clock.h"),
    Ban("thread",
        r"\bstd::(?:j?thread|(?:recursive_|shared_|timed_)*mutex|condition_variable\w*"
        r"|lock_guard|unique_lock|scoped_lock|async|future|promise)\b"
        r"|\bpthread_(?:create|mutex)\w*", _ENGINE, _THREADED,
        "threads and locks live in " + ", ".join(_THREADED) + ": hand them work"),
    Ban("pure", r"\bstd::atomic\w*\b|\bthread_local\b", _PURE,
        ("core/gossip/gossip_port.", "core/partial/rounds_port.",
         "core/replicated/channel_waiters.", "core/replicated/replica_port."),
        "it runs on one thread: no atomics"),
    Ban("random", r"\b(?:std::random_device|std::mt19937\w*|s?rand|random|drand48)\b\s*[({]",
        _ENGINE, ("core/base/rng",), "draw from core/base/rng.h, seeded by the configuration"),
    Ban("feature #if", r"^[ \t]*#[ \t]*(?:el)?if(?:n?def)?\b"
        r"(?!\s+(?:__cplusplus|NDEBUG|COVEY_\w+_H_)\b)", _ENGINE, ("core/base/processor.h",),
        "choose a file in BUILD, or a value at run time"),
    Ban("macro",
        r"^[ \t]*#[ \t]*define[ \t]+(?!CHECK|DCHECK|LOG|RETURN_IF_ERROR|COVEY_)\w+\(", _ENGINE, (),
        "write a function; macros are CHECK, LOG and RETURN_IF_ERROR"),
)

# Split, so that this file does not hold the words it looks for.
_UNFINISHED = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X)\b")
_MACHINE = re.compile(
    r"(?<![\w.])/(?:wo" r"rk|fa" r"rm|ro" r"ot|ho" r"me/[a-z]|Us" r"ers)/|/tm" r"p/[a-z]+_"
)


def banned() -> Iterator[Finding]:
    """Uses of what BANS forbids."""
    for path in source.files(*source.CPP):
        for ban in BANS:
            if not path.startswith(ban.places) or path.startswith(ban.free):
                continue
            text = source.code(path)
            for match in re.finditer(ban.pattern, text, re.MULTILINE):
                yield Finding(ban.rule, path, source.line_of(text, match.start()),
                              f"{' '.join(match.group().split())} is not used here: {ban.instead}")


# Process-wide state that may exist, and how much of it. Everything else belongs to a Runtime.
MUTABLE_ALLOWED = {
    "core/api/c_api.cc": 1,  # the default runtime
    "core/base/log.cc": 1,  # the log's sink and level
    "core/base/codec_descriptor.cc": 1,  # a catalogue, filled before main
    "core/plan/algorithm.cc": 1,  # likewise
    "core/method/method_text.cc": 1,  # likewise
    "ops/transports/mpi/mpi_link.c": 1,  # MPI is the process's, too
}

_CONSTANT = re.compile(r"\b(?:const|constexpr|consteval|using|typedef|friend|static_assert|operator"
                       r"|template|concept|extern|enum|struct|class|union|namespace|return)\b")
_VARIABLE = re.compile(r"^(?:(?:static|inline|thread_local|constinit)\s+)*"
                       r"[\w:]+(?:<[^;{}]*>)?[\s*&]+[\w:]+"
                       r"(?:\[[^\]]*\])?\s*(?:=[^;]*|\{[^;]*\})?$", re.DOTALL)
_STATIC = re.compile(r"(?:^|[;{}])\s*((?:static|thread_local)\s[^;(){}=]*?\w+\s*(?:\[[^\]]*\]\s*)?"
                     r"(?:=|;|\{|\([^)]*\)\s*;))", re.MULTILINE)


def _namespace_scope(path: str) -> str:
    """The code of a file with everything inside functions and types blanked."""
    kept = source.code(path).split("\n")
    for block in source.blocks(path):
        if block.kind != "namespace" and all(kind == "namespace" for kind in block.outer):
            for number in range(block.head_line, block.last_line + 1):
                kept[number - 1] = ""
    return "\n".join("" if line.lstrip().startswith("#") else line for line in kept)


def _mutable_in(path: str) -> Iterator[int]:
    """Lines that hold variables of static storage which can change."""
    scope = _namespace_scope(path)
    begin = 0
    for match in re.finditer(r"[;{}]", scope):
        words = scope[begin:match.start()].strip()
        if match.group() == ";" and words and "(" not in words and not _CONSTANT.search(words):
            if _VARIABLE.match(words):
                yield source.line_of(scope, match.start())
        begin = match.end()
    text = source.code(path)
    for block in source.blocks(path):
        words = block.head.rstrip("= ")  # int kinds[] = { ...
        if block.kind == "other" and all(kind == "namespace" for kind in block.outer):
            if _VARIABLE.match(words) and not _CONSTANT.search(words):
                yield block.head_line
        if block.kind == "function":
            body = "\n".join(text.split("\n")[block.first_line - 1 : block.last_line])
            for match in _STATIC.finditer(body):
                words = match.group(1)
                if not re.search(r"\bconst(?:expr)?\b", words):
                    yield block.first_line + body.count("\n", 0, match.start(1))


def mutable_state() -> Iterator[Finding]:
    """Process-wide variables beyond those allowed: several runtimes live in one process."""
    for path in source.files(*source.CPP):
        if not path.startswith(_ENGINE):
            continue
        found = sorted(set(_mutable_in(path)))
        for line in found[MUTABLE_ALLOWED.get(path, 0) :]:
            yield Finding("process-wide state", path, line,
                          "a variable that every runtime of the process shares: make it a member")


def marks() -> Iterator[Finding]:
    """Unfinished marks and folders of somebody's machine, in any text file."""
    for path in source.files():
        for number, line in enumerate(source.lines(path), 1):
            if _UNFINISHED.search(line):
                yield Finding("unfinished", path, number, "finish it, or open an issue and name it")
            if _MACHINE.search(line):
                yield Finding("machine path", path, number,
                              "a folder of one machine: derive it, or take it as an argument")


def framework_imports() -> Iterator[Finding]:
    """Python: `import covey` must not bring a framework along."""
    for path in source.files(".py"):
        parts = path.split("/")
        if parts[:2] != ["frameworks", "covey"] or len(parts) < 3:
            continue
        if parts[2] in ("torch", "tensorflow", "keras", "numpy.py", "numpy_trainer.py",
                        "numpy_consensus.py", "bench", "lightning.py"):
            continue
        for number, line in enumerate(source.lines(path), 1):
            if re.match(r"(?:import|from)\s+(?:torch|tensorflow|keras|numpy)\b", line):
                yield Finding("framework", path, number,
                              "import it inside the function that needs it")
