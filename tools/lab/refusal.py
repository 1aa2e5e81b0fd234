"""An error for the user: one line with the cause and the next step."""

from __future__ import annotations

SKIPPED = 77  # As of automake: nothing is wrong, but this machine lacks the means.


class Refused(Exception):
    """A command that cannot be done. `status` becomes the exit code."""

    def __init__(self, text: str, status: int = 1) -> None:
        super().__init__(text)
        self.status = status
