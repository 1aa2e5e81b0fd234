"""Traces of torch.profiler, which join Covey's trace of their rank.

Both know the wall clock: torch's file by ``baseTimeNanoseconds``, Covey's by its event "clock". So
the events of the profiler are put on the clock of their rank, and go on as the rank's own.
"""

from __future__ import annotations

import os
import re
from typing import Any, Dict, List, NamedTuple

from covey.errors import InvalidArgument
from covey.trace.reading import Trace

_NAME = re.compile(r"rank\.(\d+)\.torch\.json(\.gz)?")
_FIRST = 1_000_000  # Numbers of a rank's threads and processes begin here: Covey's own are small.
_FLOWS = "stf"
_OF_PROCESS = ("process_name", "process_labels", "process_sort_index")


class Profile(NamedTuple):
    """The trace of a rank by torch.profiler; ``base_us``: the wall clock at its time 0."""

    path: str
    rank: int
    base_us: float
    events: List[Dict[str, Any]]


def is_profile(content: Any) -> bool:
    """Whether the content of a file is a trace of torch.profiler."""
    return isinstance(content, dict) and "baseTimeNanoseconds" in content


def read(path: str, content: Dict[str, Any]) -> Profile:
    """The profile in a file. Its rank is that of torch.distributed, or in the file's name.

    Raises:
        InvalidArgument: neither is known, or the events are not torch's.
    """
    named = _NAME.fullmatch(os.path.basename(path))
    told = content.get("distributedInfo", {}).get("rank", named and named.group(1))
    if told is None:
        raise InvalidArgument(
            f"{path} is a trace of torch.profiler and does not say its rank: name it "
            "rank.N.torch.json"
        )
    try:
        base_us = int(content["baseTimeNanoseconds"]) / 1000
        events = [one for one in content["traceEvents"] if "ph" in one]
        return Profile(path, int(told), base_us, events)
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidArgument(f"{path} is no trace of torch.profiler: {error!r}") from error


def joined(trace: Trace, profile: Profile) -> Trace:
    """The rank's trace with the events of its profile.

    Raises:
        InvalidArgument: the profile ended before the trace began.
    """
    later_us = profile.base_us - trace.unix_us
    ends = [one["ts"] + one.get("dur", 0) for one in profile.events if "ts" in one]
    if ends and max(ends) + later_us < 0:
        raise InvalidArgument(
            f"{profile.path} is of another job: it ended before Covey's trace of rank "
            f"{trace.rank} began"
        )
    places = _Places(trace.rank, profile.events)
    moved = [places.moved(one, later_us) for one in profile.events if not places.is_known(one)]
    return trace._replace(events=trace.events + moved)


class _Places:
    """The numbers of processes and threads. The rank's process is that of Covey's lanes; devices
    and the like are processes of their own beside it."""

    def __init__(self, rank: int, events: List[Dict[str, Any]]) -> None:
        self._rank = rank
        self._mine = {
            one["pid"]
            for one in events
            if one["name"] == "process_labels" and one["args"].get("labels") == "CPU"
        }
        self._others: Dict[Any, int] = {}
        self._threads: Dict[Any, int] = {}

    def is_known(self, event: Dict[str, Any]) -> bool:
        """Whether an event says what Covey's trace says of the process."""
        return event["name"] in _OF_PROCESS and event.get("pid") in self._mine

    def moved(self, event: Dict[str, Any], later_us: float) -> Dict[str, Any]:
        """The event on the rank's clock, at its place in the merged trace."""
        process, thread = event.get("pid", ""), event.get("tid", "")
        found = {**event, "tid": self._number(self._threads, (process, thread))}
        if process in self._mine:
            found["pid"] = self._rank
        else:
            number = self._number(self._others, process)
            found["pid"] = (self._rank + 1) * _FIRST + number
        if event["ph"] in _FLOWS and isinstance(event.get("id"), int):
            found["id"] = ((self._rank + 1) << 32) + event["id"]
        if event["ph"] == "M":
            found.pop("ts", None)
            if event["name"] == "process_name":
                name = event["args"].get("name", process)
                found["args"] = {"name": f"rank {self._rank}: {name} {process}"}
        elif "ts" in event:
            found["ts"] = event["ts"] + later_us
        return found

    @staticmethod
    def _number(table: Dict[Any, int], key: Any) -> int:
        return table.setdefault(key, _FIRST + len(table))
