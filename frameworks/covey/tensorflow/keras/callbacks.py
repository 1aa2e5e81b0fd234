"""The callbacks of :mod:`covey.keras.callbacks`."""

from __future__ import annotations

from covey.keras.callbacks import *  # noqa: F401,F403  # Those of __all__.
from covey.keras.callbacks import __all__  # noqa: F401
