"""What ranks do that go from one method to another while one of them stops within that, for the
tests of such switches."""

from __future__ import annotations

import os
import pathlib
import signal
from typing import Any, Callable, List, NamedTuple

import torch
import trainings
from nets import batch_of, loss_of, make_net
from whole_numbers import digest

import covey
import covey.torch as hvd
from covey.torch.trainer.core_trainer import CoreTrainer
from covey.trainer_handle import Verb

# Actions after which ranks wait for all.
AT_THE_END = "the mean of all models, in finish()"
STATE = "the list of what an optimizer keeps"
ROUNDS = "the end of the memory of rounds"
SWITCH = 6  # The step before which the method changes.
_VERBS = {AT_THE_END: Verb.LOAD_MODEL, STATE: Verb.LIST, ROUNDS: Verb.VACATE}


class Crossed(NamedTuple):
    """Of a rank: what it has ended with, and what it was told on the way."""

    model: str
    said: List[str]
    by: str


def _at(rank: int, word: str, do: Callable[[], None]) -> None:
    """Once: that rank does it when it has done that action."""
    finish, act = CoreTrainer.finish, CoreTrainer._do
    is_done: List[bool] = []
    is_finishing: List[bool] = []

    def finish_from(self: Any, strict: bool = True) -> None:
        is_finishing.append(True)
        try:
            finish(self, strict)
        finally:
            is_finishing.pop()

    def act_from(self: Any, *action: Any) -> None:
        act(self, *action)
        is_it = action[0] == _VERBS[word] and (is_finishing or word != AT_THE_END)
        if hvd.rank() == rank and is_it and not is_done:
            is_done.append(True)
            do()

    CoreTrainer.finish = finish_from  # type: ignore[method-assign]
    CoreTrainer._do = act_from  # type: ignore[method-assign]


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def train(
    folder: str, method: str, steps: int, rank: int, word: str, kills: bool, finishes: bool
) -> Crossed:
    """Adam. ``rank`` stops, or dies, after the action named ``word`` (-1: no rank does). A step
    that has not been done since a rank was missing is done again; with ``finishes`` the switch is
    at the end of the last step, and finish() goes on with it."""
    _at(rank, word, die if kills else stop)
    torch.manual_seed(7)
    net = make_net()
    adam = torch.optim.Adam(net.parameters(), lr=0.01)
    optimizer = hvd.DistributedOptimizer(adam, model=net, method=method)
    said: List[str] = []

    def is_done(what: Callable[[], Any]) -> bool:
        try:
            what()
            return True
        except covey.Timeout as missing:
            assert missing.peer_rank == rank, missing
            said.append(str(missing))
            (pathlib.Path(folder) / f"said {hvd.rank()} {finishes}").touch()
            return False

    try:
        _run(net, optimizer, SWITCH if finishes else steps, is_done)
    except covey.Aborted as aborted:
        said.append(str(aborted))
    return Crossed(digest(net.parameters()), said, trainings.by(optimizer))


def _run(net: Any, optimizer: Any, steps: int, is_done: Callable[[Any], bool]) -> None:
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(net, batch_of(step, hvd.rank())).backward()
        while optimizer.version == step:
            is_done(optimizer.step)
    while not is_done(lambda: optimizer.finish(strict=True)):
        pass
