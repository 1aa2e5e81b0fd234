"""Looking at the model of a job: see :mod:`covey.keras.mean_model`."""

from __future__ import annotations

from covey.keras.mean_model import consensus

__all__ = ["consensus"]
