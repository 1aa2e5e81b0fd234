"""Who may include whom: the map of README.md as a table. Bazel's visibility says it by target."""

from __future__ import annotations

import re
from typing import Dict, Iterator, List, Set, Tuple

from tidy import source
from tidy.source import Finding

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"]+)"|<([^>]+)>)', re.MULTILINE)

# Of the C API: core/api/covey_PART.h.
PARTS = ("control", "methods", "neighbors", "pairs", "rounds", "trainer", "values", "waiting",
         "window")

# Folder or file -> what it may include besides its own folder. The longest name counts.
ALLOWED: Dict[str, Tuple[str, ...]] = {
    "core/base": (),
    "core/plan": ("core/base",),
    "core/transport": ("core/base",),
    "core/agree": ("core/base",),
    "core/method": ("core/base", "core/plan/topology.h"),
    "core/device": ("core/base", "core/transport"),
    "core/partial": ("core/base", "core/plan/host_rounds.h", "core/transport"),
    "core/replicated": ("core/base", "core/partial", "core/transport"),
    "core/run": ("core/base", "core/device", "core/plan/schedule.h", "core/transport"),
    "core/gossip": ("core/base", "core/partial/layout.h", "core/partial/rounds_port.h",
                    "core/plan/topology.h", "core/replicated/channel_mux.h",
                    "core/replicated/channel_waiters.h", "core/replicated/outbox.h",
                    "core/replicated/private_blocks.h", "core/run/codec.h",
                    "core/run/reference_codec.h", "core/transport"),
    "core/engine": ("core/agree", "core/base", "core/gossip/pairs_port.h",
                    "core/partial/rounds_port.h", "core/plan/selector.h",
                    "core/replicated/channel_mux.h", "core/run", "core/train", "core/transport"),
    "core/train": ("core/base", "core/method", "core/plan/topology.h"),
    "core/api": ("core",),
    "core/api/covey.h": (),
    **{f"core/api/covey_{part}.h": ("core/api/covey.h",) for part in PARTS},
    "ops/algorithms": ("core/base", "core/plan/algorithm.h", "core/plan/schedule.h"),
    "ops/codecs": ("core/base", "core/run/codec.h", "core/run/reference_codec.h"),
    "ops/control": ("core/base", "core/transport/control.h", "proto"),
    "ops/devices": ("core/base", "core/device/covey_circuits.h", "core/device/covey_device.h",
                    "core/device/device.h"),
    "ops/kernels": ("core/base",),
    "ops/methods": ("core/base", "core/method/method.h", "core/method/shared_parameters.h"),
    "ops/transports": ("core/base", "core/transport/covey_link.h", "core/transport/peer_book.h",
                       "core/transport/shared_atomics.h", "core/transport/transport.h"),
    "frameworks/bench": (),
    "frameworks/native": ("core/api/covey.h", *(f"core/api/covey_{part}.h" for part in PARTS)),
    "frameworks/tensorflow": (
        "core/api/covey.h",
        "core/api/covey_neighbors.h",
        "core/api/covey_trainer.h",
    ),
}

# Headers of libraries -> the files that may include them.
_BORDERS = {
    "spdlog/": ("core/base/log.cc",),
    "mpi.h": ("ops/transports/mpi",),
    "ucp/": ("ops/transports/ucx",),
    "uct/": ("ops/transports/ucx",),
    "nccl.h": ("ops/devices/cuda/",),
    "cuda": ("ops/devices/cuda/",),
    "grpc": ("ops/control/grpc", "tests/contract/control"),
    "openssl/": ("ops/control/", "ops/transports/tcp/", "tests/unit/ops/control/"),
    "Python.h": ("frameworks/native/",),
    "tensorflow/": ("frameworks/tensorflow/",),
    "oneapi/": ("frameworks/bench/",),
}


def includes(path: str) -> Iterator[Tuple[int, str, bool]]:
    """(line, name, quoted) of every #include."""
    text = source.read(path)
    for match in _INCLUDE.finditer(text):
        quoted = match.group(1) is not None
        yield source.line_of(text, match.start()), match.group(1) or match.group(2), quoted


def _is_own(name: str) -> bool:
    return name.split("/")[0] in source.TOP_FOLDERS


def _below(name: str, place: str) -> bool:
    return name == place or name.startswith(place + "/")


def _rule_for(path: str) -> str:
    return max((place for place in ALLOWED if _below(path, place)), key=len, default="")


def direction() -> Iterator[Finding]:
    """Includes that go against the direction of the layers."""
    for path in source.files(*source.CPP):
        place = _rule_for(path)
        if not place:
            continue
        allowed = ALLOWED[place] + (() if place == path else (path.rpartition("/")[0],))
        for line, name, _ in includes(path):
            if _is_own(name) and not any(_below(name, other) for other in allowed):
                what = ", ".join(ALLOWED[place]) or "nothing"
                yield Finding("include", path, line, f"{place} may include {what}, not {name}: "
                              "move what is shared down to core/base, or hand it in as a value")


def borders() -> Iterator[Finding]:
    """Libraries included where they are not meant to be."""
    for path in source.files(*source.CPP):
        for line, name, _ in includes(path):
            for header, places in _BORDERS.items():
                if name.startswith(header) and not path.startswith(places):
                    yield Finding("border", path, line, f"only {', '.join(places)} may include "
                                  f"{name}: use what that file offers")


def paths() -> Iterator[Finding]:
    """Includes of our headers that are not written from the root of the tree, or do not exist."""
    for path in source.files(*source.CPP):
        for line, name, quoted in includes(path):
            # Generated: of a protocol, or a source with its mutants.
            mutated = source.ROOT / name.partition("/mutants/")[2]
            if (source.ROOT / name).exists() or name.endswith(".pb.h") or mutated.is_file():
                continue
            if quoted and "/" not in name:
                yield Finding("path", path, line, f"write the full path of {name} from the root")
            elif _is_own(name):
                yield Finding("path", path, line, f"there is no {name}")


def circle(graph: Dict[str, Set[str]]) -> List[str]:
    """Nodes that reach each other, in their order, or nothing."""
    done: Set[str] = set()

    def visit(node: str, path: List[str]) -> List[str]:
        if node in path:
            return path[path.index(node) :]
        if node in done:
            return []
        for other in sorted(graph.get(node, ())):
            found = visit(other, [*path, node])
            if found:
                return found
        done.add(node)
        return []

    return next((found for node in sorted(graph) for found in [visit(node, [])] if found), [])


def cycles() -> Iterator[Finding]:
    """Headers that include each other in a circle."""
    found = circle({path: {name for _, name, _ in includes(path) if _is_own(name)}
                    for path in source.files(*source.CPP)})
    if found:
        yield Finding("cycle", found[0], 1, " -> ".join([*found, found[0]])
                      + ": move what both need to a third")
