"""The workers of an elastic job on several hosts, as coveyrun speaks to them: by their agents.

Internal.
"""

from __future__ import annotations

import dataclasses
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from covey.launch import book
from covey.launch.arrivals import Arrivals
from covey.launch.discovery import Discovery
from covey.launch.elastic import Elastic
from covey.launch.fleet import Fleet
from covey.launch.hosts import Place
from covey.launch.remote_rank import RemoteRank
from covey.launch.spec import JobSpec


class RemoteWorkers:
    """WorkerOps (elastic.py) by agents."""

    def __init__(
        self,
        fleet: Fleet,
        arrivals: Arrivals,
        discovery: Optional[Discovery],
        add: Callable[[RemoteRank], None],
    ) -> None:
        """Borrows `fleet`, which has started, and owns the others. `add`: a worker is being
        started."""
        self._fleet, self._arrivals, self._discovery = fleet, arrivals, discovery
        self._add, self.lease_s = add, fleet.lease_s
        self._ports: Dict[int, int] = {}  # Of those that ask for a place.

    def hosts(self) -> Sequence[int]:
        """As of WorkerOps."""
        return [place.host for _, place in sorted(self._fleet.places().items())]

    def gone(self) -> Sequence[int]:
        """As of WorkerOps."""
        return self._fleet.gone_places()

    def came(self, now: float) -> Mapping[int, int]:
        """As of WorkerOps."""
        listed = None if self._discovery is None else self._discovery.news(now)
        if listed is not None:
            self._arrivals.want(listed)
        return self._arrivals.take(now)

    def heard(self) -> List[Tuple[int, str]]:
        """As of WorkerOps."""
        found, self._fleet.said = self._fleet.said, []
        self._ports.update((said["number"], int(said["port"])) for said in found if "port" in said)
        return [(said["number"], said["what"]) for said in found]

    def tell(self, number: int, kind: str, **fields: object) -> None:
        """As of WorkerOps."""
        self._fleet.send(number, "tell", number=number, what=kind, fields=fields)

    def admit(self, world: int, seats: Mapping[int, Place]) -> None:
        """As of WorkerOps."""
        text, places = "", self._fleet.places()
        if any(place.local_size != place.size for place in seats.values()):
            addresses = self._fleet.addresses()
            entries = [
                book.Entry(place.lowest, addresses[places[number].host], self._ports[number])
                for number, place in sorted(seats.items(), key=lambda it: it[1].rank)
            ]
            text = book.text_of(book.draw_key(), self._fleet.security, entries)
        self._fleet.begin_world(world)
        of_host: Dict[int, Dict[int, object]] = {}
        for number, place in seats.items():
            of_host.setdefault(place.host, {})[number] = dataclasses.asdict(place)
        for its in of_host.values():
            self._fleet.send(min(its), "world", world=world, places=its, book=text)

    def start(self, number: int) -> None:
        """As of WorkerOps."""
        self._add(self._fleet.more(number))

    def ends(self, number: int) -> None:
        """As of WorkerOps."""
        self._ports.pop(number, None)

    def deadlines(self, now: float) -> List[float]:
        """As of WorkerOps."""
        found = [self._arrivals.deadline(now)]
        if self._discovery is not None:
            found.append(self._discovery.deadline(now))
        return [it for it in found if it is not None]

    def close(self) -> None:
        """As of WorkerOps."""
        self._arrivals.close()
        if self._discovery is not None:
            self._discovery.close()


def elastic_on(
    fleet: Fleet,
    spec: JobSpec,
    add: Callable[[RemoteRank], None],
    say: Callable[[str], None],
) -> Optional[Elastic]:
    """The workers of `fleet`, which has started; None: the job is not elastic. `add`: as of
    RemoteWorkers."""
    if spec.elastic is None:
        return None
    assert spec.plan is not None
    plan, discovery = spec.plan, None
    if plan.script:
        discovery = Discovery(plan.script, plan.slots, [*plan.hosts, *plan.spare], say)
    arrivals = Arrivals(fleet, plan, spec.elastic.most, say)
    return Elastic(spec.elastic, spec.size, RemoteWorkers(fleet, arrivals, discovery, add))
