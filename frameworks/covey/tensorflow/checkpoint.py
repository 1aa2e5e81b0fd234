"""Saving and loading a training: see :mod:`covey.keras.checkpoint`."""

from __future__ import annotations

from covey.keras.checkpoint import load, save

__all__ = ["load", "save"]
