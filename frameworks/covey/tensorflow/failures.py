"""TensorFlow's errors that were Covey's, as Covey's. Internal."""

from __future__ import annotations

import contextlib
from typing import Iterator, Optional

import tensorflow as tf

from covey.errors import CoveyError, from_code

_PAYLOAD = b"covey"  # Of frameworks/tensorflow/translation.h.


def original(error: Optional[BaseException]) -> Optional[CoveyError]:
    """The error that an operation of Covey's has failed with; None: it was another operation. A
    session raises TensorFlow's error again, without what belongs to it."""
    while isinstance(error, tf.errors.OpError):
        payload = (error.experimental_payloads or {}).get(_PAYLOAD)
        if payload is not None:
            code, peer, message = payload.decode("utf-8", "replace").split(" ", 2)
            return from_code(int(code), int(peer), message)
        error = error.__context__
    return None


@contextlib.contextmanager
def as_covey() -> Iterator[None]:
    """Within it Covey's errors are raised in place of TensorFlow's."""
    try:
        yield
    except tf.errors.OpError as error:
        found = original(error)
        if found is None:
            raise
        raise found from error
