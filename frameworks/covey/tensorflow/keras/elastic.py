"""The names of :mod:`covey.keras.elastic`."""

from __future__ import annotations

from covey.keras.elastic import *  # noqa: F401,F403  # Those of __all__.
from covey.keras.elastic import __all__  # noqa: F401
