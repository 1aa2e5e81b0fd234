"""Names of operations in TensorFlow's graphs, and what keeps operations of one name in order.

Every operation takes a *handle* of its stream, a resource. Inside a tf.function TensorFlow keeps
the operations on one resource in the order of the program and leaves those on different resources
alone, so occurrences of one name follow each other and everything else may be in flight at once.
Internal.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Optional, Tuple

import tensorflow as tf

from covey.requests import How
from covey.tensorflow.library import load

operations: Any = load()
"""covey_allreduce and the others of collective_declarations.cc."""

# TensorFlow numbers the graphs of loops and branches through the whole process.
_NUMBER = re.compile(r"_\d+$")
_handles: Dict[Tuple[str, Tuple[int, ...]], Any] = {}


def name_of(how: How, name: Optional[str]) -> str:
    """The stream's name in the core; "" for the ordered stream of unnamed operations.

    Outside of tf.function operations come in the order of the program, so that stream will do.
    Inside they do not: there an operation without a name is named after its place in the graph,
    which is the same on every rank that runs the same program.
    """
    if name is not None:
        return how.stream(name) or ""
    if tf.executing_eagerly():
        return ""
    graph = tf.compat.v1.get_default_graph()
    function = _NUMBER.sub("", getattr(graph, "name", "graph"))
    return how.stream(f"{function}/{graph.unique_name(how.kind_name)}") or ""


def handle_of(stream: str, ranks: Tuple[int, ...]) -> Any:
    """The resource of a stream. Outside of tf.function one for all: the order is given."""
    if tf.executing_eagerly():
        return _handle(_handles, "", ())
    with tf.init_scope():  # A tf.function captures it from outside.
        if tf.executing_eagerly():
            return _handle(_handles, stream, ranks)
        # A graph of a session has its own. A key that is no string is not saved with it.
        kept = tf.compat.v1.get_default_graph().get_collection_ref(("__covey_handles",))
        if not kept:
            kept.append({})
        return _handle(kept[0], stream, ranks)


def _handle(known: Dict[Tuple[str, Tuple[int, ...]], Any], *key: Any) -> Any:
    if key not in known:
        known[key] = operations.covey_stream(stream=f"{key[0]} {key[1]}")
    return known[key]
