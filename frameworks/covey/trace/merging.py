"""One file of all ranks' traces, on one clock, for ui.perfetto.dev."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

from covey.errors import InvalidArgument
from covey.trace import profiles
from covey.trace.clocks import Clock, set_by_exchanges
from covey.trace.reading import Span, Trace, load, trace_of

NAME = "trace.json"


class Merged(NamedTuple):
    """The ranks' traces, with times in microseconds from the first event of all, and the clocks by
    which they were set."""

    traces: List[Trace]
    clocks: List[Clock]


def merged(paths: Sequence[str]) -> Merged:
    """The traces in these files, one of each rank, with those of torch.profiler.

    Raises:
        InvalidArgument: a file is no trace, or two are of one rank, or one of torch.profiler is of
            no rank with a trace, or of another job.
    """
    traces = _with_profiles([(path, load(path)) for path in paths])
    clocks = set_by_exchanges(traces)
    of_rank = {rank: clock for clock in clocks for rank in clock.ranks}
    begins = [
        of_rank[trace.rank].shared(one["ts"])
        for trace in traces
        for one in trace.events
        if "ts" in one
    ]
    zero = min(begins, default=0.0)
    return Merged([_moved(trace, of_rank[trace.rank], zero) for trace in traces], clocks)


def _with_profiles(contents: Sequence[Tuple[str, Any]]) -> List[Trace]:
    """The ranks' traces in their order, of files and their contents."""
    traces: Dict[int, Trace] = {}
    for path, content in contents:
        if profiles.is_profile(content):
            continue
        trace = trace_of(path, content)
        if trace.rank in traces:
            raise InvalidArgument(f"two traces are of rank {trace.rank}: they are of two jobs")
        traces[trace.rank] = trace
    for path, content in contents:
        if profiles.is_profile(content):
            profile = profiles.read(path, content)
            if profile.rank not in traces:
                raise InvalidArgument(
                    f"{path} is of rank {profile.rank}, and no trace of Covey is: coveyrun "
                    "--timeline makes them"
                )
            traces[profile.rank] = profiles.joined(traces[profile.rank], profile)
    return [traces[rank] for rank in sorted(traces)]


def _moved(trace: Trace, clock: Clock, zero: float) -> Trace:
    events: List[Dict[str, Any]] = []
    for one in trace.events:
        at = {"ts": round(clock.shared(one["ts"]) - zero, 3)} if "ts" in one else {}
        events.append({**one, **at})
    spans = {
        track: [
            Span(one.name, clock.shared(one.begin) - zero, clock.shared(one.end) - zero)
            for one in listed
        ]
        for track, listed in trace.spans.items()
    }
    return trace._replace(events=events, spans=spans, unix_us=trace.unix_us + zero)


def write(found: Merged, path: str) -> None:
    """Writes them, whole or not at all.

    Raises:
        InvalidArgument: the file cannot be written.
    """
    part = f"{path}.{os.getpid()}.part"
    clock_of_first = True
    try:
        with open(part, "w", encoding="utf-8") as file:
            file.write("[")
            separator = "\n"
            for trace in found.traces:
                for one in trace.events:
                    if one["name"] == "clock" and not clock_of_first:
                        continue
                    if one["name"] == "clock":
                        clock_of_first = False
                        one = {**one, "args": {"unix_us_of_zero": round(trace.unix_us)}}
                    file.write(separator + json.dumps(one, separators=(",", ":")))
                    separator = ",\n"
            file.write("\n]\n")
        os.replace(part, path)
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be written: {error.strerror}") from error
