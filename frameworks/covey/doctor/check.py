"""A check of the doctor: a value. Internal."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Callable, Dict, Iterable, List, Mapping

OK, NOTE, WARNING, FAILED = "ok", "note", "warning", "failed"
STATES = (OK, NOTE, WARNING, FAILED)
_MOST_SHOWN = 8


@dataclass(frozen=True)
class Check:
    """One line.

    Attributes:
        name: of what is looked at; several lines may share it.
        state: ok; note: no job fails by it; warning: a job starts, and may be slow or fail later;
            failed: a job would not start.
        seen: on which hosts what was found.
        step: what to do about it; empty: nothing.
    """

    name: str
    state: str
    seen: str
    step: str = ""

    def as_json(self) -> Dict[str, Any]:
        """For scripts."""
        return asdict(self)


def would_start(checks: Iterable[Check]) -> bool:
    """Whether no check has failed."""
    return all(check.state != FAILED for check in checks)


def by_value(values: Mapping[str, str]) -> str:
    """`values` by host, the hosts of an equal one together.

    Example:
        >>> by_value({"a": "2.1", "b": "2.0", "c": "2.1"})
        '2.1 (a, c), 2.0 (b)'
    """
    hosts: Dict[str, List[str]] = {}
    for host, value in values.items():
        hosts.setdefault(value, []).append(host)
    if len(hosts) == 1:
        return next(iter(hosts))
    return ", ".join(f"{value} ({in_short(names)})" for value, names in hosts.items())


def in_short(names: List[str]) -> str:
    """The names, of many the first."""
    if len(names) <= _MOST_SHOWN:
        return ", ".join(names)
    return f"{', '.join(names[: _MOST_SHOWN - 1])} and {len(names) - _MOST_SHOWN + 1} more"


def per_host(
    facts: Mapping[str, Mapping[str, Any]], value: Callable[[Mapping[str, Any]], str]
) -> Dict[str, str]:
    """The value of each host by its facts, without those that have none."""
    found = {host: value(one) for host, one in facts.items()}
    return {host: text for host, text in found.items() if text}


def in_bytes(number: float) -> str:
    """For people."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if number >= 100 else f"{number:.3g} {unit}"
        number /= 1024
    return f"{number:.3g} TiB"
