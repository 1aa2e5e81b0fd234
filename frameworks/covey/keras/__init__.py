"""Covey for Keras 3, by the names of Horovod's ``horovod.keras``.

On TensorFlow (``KERAS_BACKEND=tensorflow``, Keras's default) all names are those of
:mod:`covey.tensorflow.keras`; on torch (``KERAS_BACKEND=torch``), where TensorFlow need not be
installed, those of ``covey.keras.on_torch``.

Example::

    import covey.keras as hvd
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType
from typing import Any, List

from covey.errors import Unsupported

_BACKENDS = {"tensorflow": "covey.tensorflow.keras", "torch": "covey.keras.on_torch"}


def _check(backend: str) -> None:
    if backend not in _BACKENDS:
        raise Unsupported(
            f"Keras runs on {backend} here: covey.keras needs KERAS_BACKEND=tensorflow or "
            "KERAS_BACKEND=torch"
        )


_check(os.environ.get("KERAS_BACKEND") or "tensorflow")  # Before that is imported.
import keras  # noqa: E402

_check(keras.backend.backend())


def names_here() -> ModuleType:
    """The module with the names for Keras's backend. It imports parts of this package, and so is
    imported after it."""
    return importlib.import_module(_BACKENDS[keras.backend.backend()])


def __getattr__(name: str) -> Any:
    if name.startswith("__") and name != "__all__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(names_here(), name)


def __dir__() -> List[str]:
    """The public names."""
    return sorted(names_here().__all__)
