"""The workers of an elastic job on several hosts, as coveyrun speaks to them: by their agents.

Internal.
"""

from __future__ import annotations

import dataclasses
from typing import Callable, Dict, List, Mapping, Sequence, Tuple

from covey.launch import book
from covey.launch.fleet import Fleet, RemoteRank
from covey.launch.hosts import Place


class OnHosts:
    """Ways (elastic.py) by agents."""

    def __init__(self, fleet: Fleet, add: Callable[[RemoteRank], None]) -> None:
        """Borrows `fleet`, which has started. `add`: a worker is being started."""
        self._fleet, self._add = fleet, add
        self._ports: Dict[int, int] = {}  # Of those that ask for a place.

    def hosts(self) -> Sequence[int]:
        """As of Ways."""
        return self._fleet.hosts_of_places()

    def lost(self) -> Sequence[int]:
        """As of Ways."""
        return self._fleet.lost_places()

    def heard(self) -> List[Tuple[int, str]]:
        """As of Ways."""
        found, self._fleet.said = self._fleet.said, []
        self._ports.update((said["rank"], int(said["port"])) for said in found if "port" in said)
        return [(said["rank"], said["what"]) for said in found]

    def tell(self, number: int, kind: str, **fields: object) -> None:
        """As of Ways."""
        self._fleet.send(number, "tell", rank=number, what=kind, fields=fields)

    def admit(self, world: int, seats: Mapping[int, Place]) -> None:
        """As of Ways."""
        text = ""
        if any(place.local_size != place.size for place in seats.values()):
            addresses = self._fleet.addresses_of_places()
            entries = [
                book.Entry(place.lowest, addresses[number], self._ports[number])
                for number, place in sorted(seats.items(), key=lambda it: it[1].rank)
            ]
            text = book.text_of(book.draw_key(), self._fleet.security, entries)
        self._fleet.begin_world(world)
        of_host: Dict[int, Dict[str, object]] = {}
        for number, place in seats.items():
            of_host.setdefault(place.host, {})[number] = dataclasses.asdict(place)
        for places in of_host.values():
            self._fleet.send(min(places), "world", world=world, places=places, book=text)

    def start(self, number: int) -> None:
        """As of Ways."""
        self._add(self._fleet.more(number))

    def ends(self, number: int) -> None:
        """As of Ways."""
        self._ports.pop(number, None)

    def close(self) -> None:
        """As of Ways."""
