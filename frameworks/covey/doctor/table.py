"""The checks for people and for scripts. Internal."""

from __future__ import annotations

import json
from typing import List, Sequence

from covey.doctor.check import FAILED, STATES, Check, would_start
from covey.doctor.visit import Findings
from covey.errors import shown


def lines(checks: Sequence[Check]) -> List[str]:
    """A line of each check: state, name, findings, next step; the last says whether a job would
    start."""
    wide = max(len(check.name) for check in checks)
    state_wide = max(map(len, STATES))
    found = []
    for check in checks:
        text = f"{check.seen}: {check.step}" if check.step else check.seen
        found.append(f"{check.state:<{state_wide}}  {check.name:<{wide}}  {shown(text)}")
    failed = sum(check.state == FAILED for check in checks)
    if failed:
        checks_have = "1 check has" if failed == 1 else f"{failed} checks have"
        found.append(f"A job would not start: {checks_have} failed.")
    else:
        found.append("A job would start.")
    return found


def as_json(found: Findings, checks: Sequence[Check]) -> str:
    """The checks, and the facts behind them."""
    return json.dumps(
        {
            "would_start": would_start(checks),
            "checks": [check.as_json() for check in checks],
            "hosts": {
                host: {"ranks": found.ranks[host], "address": found.addresses.get(host), **facts}
                for host, facts in found.facts.items()
            },
            "pairs": [{"from": a, "to": b, **one} for (a, b), one in found.pairs.items()],
        },
        indent=2,
    )
