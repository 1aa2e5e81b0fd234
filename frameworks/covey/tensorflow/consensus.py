"""Looking at the model of a job: see :mod:`covey.keras.consensus`."""

from __future__ import annotations

from covey.keras.consensus import consensus

__all__ = ["consensus"]
