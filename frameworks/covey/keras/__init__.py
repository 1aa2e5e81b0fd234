"""Covey for Keras 3 on TensorFlow, by the names of Horovod's ``horovod.keras``: all names are those
of :mod:`covey.tensorflow.keras`.

Example::

    import covey.keras as hvd
"""

from __future__ import annotations

from typing import Any, List

from covey.keras import callbacks
from covey.ops import absent
from covey.tensorflow import keras as _keras
from covey.tensorflow.keras import *  # noqa: F401,F403  # Those of __all__.

__all__ = list(_keras.__all__)


def __getattr__(name: str) -> Any:
    raise absent(__name__, name, *_keras._NOT_YET)


def __dir__() -> List[str]:
    """The public names."""
    return sorted(__all__)
