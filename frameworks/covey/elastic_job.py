"""The place of this process in an elastic job, which coveyrun tells it each time. Internal.

See ``launch/worlds.py`` for what a world is. A rank learns that others wait for it by a message,
which it looks for when it commits a state.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional

from covey import _native
from covey.errors import Aborted, InvalidArgument, Unsupported
from covey.launch import door
from covey.launched_by import OF_TORCHRUN, check_passed_on
from covey.state import state

_DESCRIPTOR = "COVEY_ELASTIC_FD"
_NONE = {"book_fd": -1, "listen_fd": -1, "witness_fd": -1}  # Of a world on one host.


class _Lost(NamedTuple):
    """Ranks whose host is lost. `until`: these are seen to be lost here, or are given up."""

    ranks: List[int]
    until: float


class ElasticJob:
    """This process's way to coveyrun.

    Attributes:
        is_called: other ranks wait until this one asks for a place.
        world: the number of the world that it is in, from 0; -1: none.
        is_inside: whether the function of `elastic.run` is being called.
        is_over: there is no place in another world.
    """

    def __init__(self, fd: int) -> None:
        """Raises InvalidArgument (a ValueError): that descriptor is no such way."""
        try:
            self._door = door.inherited(fd)
        except OSError as error:
            raise InvalidArgument(f"{_DESCRIPTOR}={fd}: {error.strerror}") from error
        self.is_called = self.is_inside = self.is_over = False
        self.world = -1
        self._lost: Optional[_Lost] = None
        self._thread = 0  # Which has asked for the place.

    def look(self) -> bool:
        """Whether other ranks wait for this one. Does not wait."""
        self._door.socket.setblocking(False)
        try:
            said = self._door.receive()
            while said is not None:
                self._take(said)
                said = self._door.receive()
        finally:
            self._door.socket.setblocking(True)
        return self.is_called

    def _take(self, said: door.Said) -> None:
        if said.kind == "come":
            self.is_called = True
        elif said.kind == "lost" and said.fields["world"] == self.world:
            until = time.monotonic() + float(said.fields["after_s"])
            self._lost = _Lost(list(said.fields["ranks"]), until)

    def check(self) -> None:
        """A thread that waits in the core calls it every 50 ms.

        Raises:
            Aborted: coveyrun has lost the host of ranks that this one may wait for, and its system
                still answers: the processes are frozen, or coveyrun has no way to it. Each wait in
                this world ends so.
        """
        if threading.get_ident() != self._thread:
            return
        self.look()
        if self._lost is None or time.monotonic() < self._lost.until:
            return
        unseen = sorted(set(self._lost.ranks) - set(_native.lost_ranks()))
        if unseen:
            from covey.launch.report import ranks_in_words

            raise Aborted(f"the host of {ranks_in_words(unseen)} is lost, says coveyrun")

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """Within it the function of `elastic.run` is being called."""
        self.is_inside = True
        try:
            yield
        finally:
            self.is_inside = False

    def tell_ready(self) -> None:
        """This rank has the state that all ranks of its world have."""
        self._door.send("ready")

    def join(self) -> Dict[str, object]:
        """Waits for a place in the next world: settings for the core.

        Raises:
            Aborted: there will be none; says why.
        """
        from covey.launch.environment import place_variables
        from covey.launch.hosts import Place

        self._thread, self._lost = threading.get_ident(), None
        self._door.send("ask")
        while True:
            said = self._door.receive()
            self.is_over = said is None or said.kind == "over"
            if said is None:
                raise Aborted("coveyrun, which tells ranks their places, is gone")
            if said.kind == "over":
                raise Aborted(f"this rank gets no place in another world: {said.fields['why']}")
            if said.kind == "world":
                break
        place = Place(**said.fields["place"])
        self.is_called, self.world = False, int(said.fields["world"])
        os.environ.pop("GROUP_RANK", None)  # On one host there is none.
        os.environ.update(place_variables(place))
        return {
            "rank": place.rank,
            "size": place.size,
            "local_rank": place.local_rank,
            "local_size": place.local_size,
            **_NONE,
            **said.fds,
        }


def is_one(environ: Mapping[str, str]) -> bool:
    """Whether coveyrun has started this process as a rank of an elastic job."""
    return _DESCRIPTOR in environ and OF_TORCHRUN not in environ


def came_later() -> bool:
    """Whether this process is in another world than the first: a training goes on there."""
    return state.elastic is not None and state.elastic.world > 0


def check_none(environ: Mapping[str, str], what: str) -> None:
    """`what` cannot go on with other ranks.

    Raises:
        Unsupported: (a ValueError) in an elastic job.
    """
    if is_one(environ):
        raise Unsupported(
            f"{what} has the same ranks as long as it lives: in an elastic job (coveyrun --min-np) "
            "there is none; torchrun --max-restarts starts ranks again"
        )


def check_inside(what: str) -> None:
    """`what` ends when the ranks change, so that each call of the function makes one.

    Raises:
        Unsupported: (a ValueError) in an elastic job, but not in the function of `elastic.run`.
    """
    if state.elastic is not None and not state.elastic.is_inside:
        raise Unsupported(
            f"in an elastic job (coveyrun --min-np) {what} is made within the function of "
            "elastic.run: its exchanges end when ranks come or go"
        )


def join(environ: Mapping[str, str]) -> Dict[str, object]:
    """Settings for the core: a place in the next world.

    Raises:
        InvalidArgument: (a ValueError) the variable names no such way.
        Aborted: there will be no place; says why.
    """
    if state.elastic is None:
        check_passed_on(environ, _DESCRIPTOR)
        state.elastic = ElasticJob(int(environ[_DESCRIPTOR]))
    state.rendezvous_settings = state.elastic.join()
    return state.rendezvous_settings
