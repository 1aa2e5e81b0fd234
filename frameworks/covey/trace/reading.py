"""One rank's trace, as spans by track."""

from __future__ import annotations

import gzip
import json
import os
import re
from typing import Any, Dict, Iterable, List, NamedTuple, Sequence

from covey.errors import InvalidArgument

WAIT, EXCHANGE, PYTHON = "wait for peers", "exchange", "python"
_FILE = re.compile(r"rank\.\d+\.(json|torch\.json(\.gz)?)")


class Span(NamedTuple):
    """Something that lasted: microseconds of its rank's clock."""

    name: str
    begin: float
    end: float


class Trace(NamedTuple):
    """The trace of a rank.

    Attributes:
        rank: of the job.
        unix_us: the wall clock at time 0 of the rank's clock, by its host.
        events: as the file has them.
        spans: by track, in the order of their beginnings.
    """

    rank: int
    unix_us: float
    events: List[Dict[str, Any]]
    spans: Dict[str, List[Span]]


def files(places: Iterable[str]) -> List[str]:
    """The traces in folders, and traces that are named themselves.

    Raises:
        InvalidArgument: a folder has none.
    """
    found: List[str] = []
    for place in places:
        if not os.path.isdir(place):
            found.append(place)
            continue
        inside = [os.path.join(place, name) for name in os.listdir(place) if _FILE.fullmatch(name)]
        if not inside:
            raise InvalidArgument(f"{place} has no trace, rank.N.json: coveyrun --timeline {place}")
        found += sorted(inside)
    return found


def read(path: str) -> Trace:
    """The trace in a file.

    Raises:
        InvalidArgument: it cannot be read, or is none of Covey's.
    """
    return trace_of(path, load(path))


def load(path: str) -> Any:
    """The content of a file: a list of Covey's events, or what another program wrote.

    Raises:
        InvalidArgument: it cannot be read, or is no JSON.
    """
    opened = gzip.open if path.endswith(".gz") else open
    try:
        with opened(path, "rt", encoding="utf-8", errors="replace") as file:
            return _content(file.read())
    except OSError as error:
        raise InvalidArgument(f"{path}: {error.strerror or error}") from error
    except (ValueError, EOFError) as error:
        raise InvalidArgument(
            f"{path} is no trace of Covey: it is no JSON, or was cut in its first events"
        ) from error


def trace_of(path: str, content: Any) -> Trace:
    """The trace that is the content of a file.

    Raises:
        InvalidArgument: it is none of Covey's.
    """
    if not isinstance(content, list) or not all(isinstance(one, dict) for one in content):
        raise InvalidArgument(
            f"{path} is no trace of Covey: it holds no list of events as of coveyrun --timeline"
        )
    if not any(one.get("ph") == "M" and one.get("name") == "clock" for one in content):
        raise InvalidArgument(
            f'{path} is no trace of Covey: its event "clock" is missing; the file was cut before '
            "it, or another program has written it"
        )
    try:
        return _trace(content)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidArgument(f"{path} is no trace of Covey: {error!r}") from error


def _content(text: str) -> Any:
    """A list of events may have lost its end with its process."""
    try:
        return json.loads(text)
    except ValueError:
        return json.loads(text[: text.rindex("},") + 1] + "]")


def _trace(events: List[Dict[str, Any]]) -> Trace:
    told = [one for one in events if one["ph"] == "M"]
    clock = next(one for one in told if one["name"] == "clock")
    tracks = {
        one["tid"]: _track(one["args"]["name"]) for one in told if one["name"] == "thread_name"
    }
    spans: Dict[str, List[Span]] = {}
    for one in events:
        if one["ph"] == "X":
            span = Span(str(one["name"]), float(one["ts"]), float(one["ts"]) + float(one["dur"]))
            spans.setdefault(tracks[one["tid"]], []).append(span)
    for listed in spans.values():
        listed.sort(key=lambda span: span.begin)
    return Trace(int(clock["pid"]), float(clock["args"]["unix_us_of_zero"]), events, spans)


def _track(lane: str) -> str:
    """The track of a lane: "exchange 2" is one of "exchange"."""
    return re.sub(r" \d+$", "", lane)


def occurrences(trace: Trace, track: str = WAIT) -> Dict[Any, Span]:
    """The spans of a track by name and turn: the same key on every rank is the same exchange."""
    turns: Dict[str, int] = {}
    found = {}
    for span in trace.spans.get(track, ()):
        turns[span.name] = turns.get(span.name, -1) + 1
        found[span.name, turns[span.name]] = span
    return found


def union_us(spans: Sequence[Span]) -> float:
    """How long at least one of them lasts; they are in the order of their beginnings."""
    total, until = 0.0, float("-inf")
    for span in spans:
        total += max(0.0, span.end - max(span.begin, until))
        until = max(until, span.end)
    return total
