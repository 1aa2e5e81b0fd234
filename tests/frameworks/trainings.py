"""Statistics of an optimizer's trainer, for tests."""

from __future__ import annotations

from typing import Any, Dict, List

from covey.method import GRADIENTS


def counts(optimizer: Any) -> Dict[str, Any]:
    """As covey_trainer_stats; without a trainer there are none."""
    trainer = optimizer._covey_trainer
    return {} if trainer is None else trainer.counts()


def made(optimizer: Any) -> int:
    """The last version that any rank has made."""
    return int(counts(optimizer)["made"])


def missing(optimizer: Any) -> int:
    """How many ranks are not waited for."""
    return sum(times > 0 for times in counts(optimizer).get("missing", ()))


def overdue(optimizer: Any) -> List[int]:
    """By rank: how often it has become so."""
    found: List[int] = counts(optimizer)["overdue"]
    return found


def late(optimizer: Any, index: int) -> int:
    """Versions without a contribution in time of the rank with that index."""
    found = counts(optimizer)
    return int(found["versions"] - found["fresh"][index])


def by(optimizer: Any) -> str:
    """What its trainer exchanges: gradients, models or pairs; empty: there is none."""
    trainer, plan = optimizer._covey_trainer, optimizer._covey_progress.plan
    if trainer is None:
        return ""
    if plan.in_pairs:
        return "pairs"
    return "gradients" if trainer.position.payload == GRADIENTS else "models"
