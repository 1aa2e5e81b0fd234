"""One trainer of the core: what it says of itself. Internal."""

from __future__ import annotations

import json
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

from covey import _native


class Position(NamedTuple):
    """covey_position of core/api/covey_trainer.h."""

    version: int
    step: int
    may_differ: int
    begin: int
    own_steps: int
    has_state: int
    step_ns: int
    published: int
    of_all: int
    payload: int
    catches_up: int
    is_over: int
    planned: int
    is_open: int


IN_STEP, IN_FINISH = 1, 2
"""Of ``Position.is_open``."""


class Verb:
    """covey_verb of core/api/covey_trainer.h."""

    COLLECT_GRADIENTS, COLLECT_MODEL, UPDATE, LOAD_MODEL, DONE, PACK, UNPACK = range(1, 8)
    LIST, TAKE, VACATE = range(8, 11)


class Seen(NamedTuple):
    """covey_seen of core/api/covey_trainer.h.

    Attributes:
        state: WHOLE, NOTHING, CHANGING, CLOSED, LOST or ASKED.
        step: in rounds: that its model was published as; 0: none yet.
        is_superseded: in rounds: an average of all has come after it.
        version: how many updates it had done.
    """

    state: int
    step: int
    is_superseded: int
    version: int


WHOLE, NOTHING, CHANGING, CLOSED, LOST, ASKED = range(6)
"""covey_seen_state."""


class TrainerHandle:
    """See the module, and ``core/api/covey_trainer.h``. ``trainer``: its number; 0: not open."""

    def __init__(self, num_spans: int, trainer: int = 0) -> None:
        self._trainer = trainer
        self._num_spans = num_spans
        self._num_hypers = 0

    @property
    def number(self) -> int:
        """The core's."""
        return self._trainer

    @property
    def position(self) -> Position:
        """Between two steps: where this rank is."""
        return Position(*_native.trainer_position(self._trainer))

    def restore(self, position: Position) -> None:
        """This rank is where ``position`` says."""
        _native.trainer_restore(self._trainer, tuple(position))

    def counts(self) -> Dict[str, Any]:
        """As ``covey_trainer_stats``."""
        counts: Dict[str, Any] = json.loads(_native.trainer_stats(self._trainer))
        return counts

    def spans(self, of_model: bool) -> Tuple[int, ...]:
        """Where they lie now, by span: gradients, or the model."""
        return _native.trainer_spans(self._trainer, self._num_spans, of_model)

    def look(self, rank: int, to: Sequence[int] = ()) -> Seen:
        """A rank as others see it; its model is copied to these addresses, by span, if any."""
        return Seen(*_native.trainer_peek(self._trainer, rank, tuple(to) or None))

    def show(self, model: Sequence[int]) -> None:
        """Between two steps: where this rank's model is copied for others, they see the one at
        these addresses, by span, until its next step."""
        _native.trainer_show(self._trainer, tuple(model))

    def hide(self) -> None:
        """Other ranks see nothing of this one any more."""
        _native.trainer_hide(self._trainer)

    def arrays(self) -> List[Tuple[str, int, int]]:
        """Between two steps: what the method replicates on all ranks: names, addresses, bytes."""
        return _native.trainer_state(self._trainer)

    def _perform(self) -> None:
        """Does what the core asks for until its call is over."""
        while True:
            action: Any = _native.trainer_next(self._trainer, self._num_hypers)
            if action[0] == Verb.DONE:
                return
            try:
                self._do(*action)
            except BaseException:
                _native.trainer_ack(self._trainer, action[1], False)
                raise
            _native.trainer_ack(self._trainer, action[1], True)

    def _do(
        self, verb: int, _: int, hypers: Tuple[float, ...], image: int, length: int, own: int,
        scale: float,
    ) -> None:
        """One action: ``covey_action`` of core/api/covey_trainer.h."""
        raise NotImplementedError
