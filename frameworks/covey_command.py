"""Where the commands `covey` and `coveyrun` begin: a Ctrl-C during the imports says one line.

A module of its own, because importing anything of the package imports the package first. Until the
handler is set it imports only what Python has imported before: `_signal`, as `signal` takes longer.
"""

import _signal  # type: ignore[import-not-found]
import os
import sys


def _stop(number: int, frame: object) -> None:
    """Nothing has begun that would have to be ended."""
    del frame
    os.write(2, f"{os.path.basename(sys.argv[0])}: interrupted\n".encode("utf-8", "replace"))
    os._exit(128 + number)


# An ignored one stays ignored. covey.cli takes over as soon as it can end well.
if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _stop)


def main() -> int:
    """`covey SUBCOMMAND ...`."""
    from covey.cli import main as run

    return run()


def coveyrun_main() -> int:
    """`coveyrun -np N COMMAND ...`."""
    from covey.cli import coveyrun_main as run

    return run()
