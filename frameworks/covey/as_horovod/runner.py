"""Horovod's ``horovod.runner``: ``run(function)`` on several ranks of this host."""

from __future__ import annotations

from covey import run

__all__ = ["run"]
