"""Traces of a job's ranks: read, put on one clock, merged into one file, and summed up in words.

The core writes one file per rank (core/engine/trace_file.h). Here nothing of the runtime runs.
"""

from __future__ import annotations
