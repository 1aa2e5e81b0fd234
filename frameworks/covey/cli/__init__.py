"""The command line: `covey` and its short form for starting jobs, `coveyrun` (= `covey run`)."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from typing import List, Optional

from covey.cli import run_command
from covey.cli.parser import Parser, package_version
from covey.cli.say import say
from covey.launch.job import EXIT_OUTPUT_CLOSED
from covey.launch.output import discard_output

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def main(argv: Optional[List[str]] = None) -> int:
    """`covey SUBCOMMAND ...`. Returns the exit code; 2 for a mistake on the command line."""
    _open_streams()
    parser = make_covey_parser()
    arguments = parser.parse_args(argv)
    if arguments.subcommand is None:
        parser.print_help()
        return 0
    return _guarded(arguments, "covey")


def make_covey_parser() -> Parser:
    """The parser of `covey`."""
    # coveyrun needs none of them.
    from covey.cli import bench_command, build_command, codecs_command, completion
    from covey.cli import doctor_command, methods_command, trace_command

    parser = Parser(
        prog="covey",
        description="Covey: a communication runtime for distributed training.",
        epilog="covey SUBCOMMAND --help tells more. coveyrun is short for covey run.",
    )
    parser.add_argument("--version", action="version", version=f"covey {package_version()}")
    completion.describe(parser)
    commands = parser.add_subparsers(metavar="SUBCOMMAND", dest="subcommand")
    run_command.add_to(commands)
    doctor_command.add_to(commands)
    bench_command.add_to(commands)
    build_command.add_to(commands)
    methods_command.add_to(commands)
    codecs_command.add_to(commands)
    trace_command.add_to(commands)
    return parser


def coveyrun_main(argv: Optional[List[str]] = None) -> int:
    """`coveyrun -np N COMMAND ...`. Returns the exit code of the job."""
    _open_streams()
    parser = run_command.make_parser("coveyrun")
    return _guarded(parser.parse_args(argv), "coveyrun")


def _guarded(arguments: object, program: str) -> int:
    """Runs the chosen command; a Ctrl-C before the launcher listens, a reader that has enough
    (`covey methods | head`), or a full disk ends without a traceback."""
    try:
        if threading.current_thread() is threading.main_thread():
            if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # Until now: covey_command.
                signal.signal(signal.SIGINT, signal.default_int_handler)
        code = arguments.act(arguments)  # type: ignore[attr-defined]
        sys.stdout.flush()
        return int(code)
    except KeyboardInterrupt:
        say(program, "interrupted")
        return 130
    except BrokenPipeError:
        discard_output()
        return EXIT_OUTPUT_CLOSED
    except OSError as error:
        if error.errno not in _FULL or error.filename is not None:
            raise
        say(program, f"standard output cannot be written: {error.strerror}")
        discard_output()
        return 1


def _open_streams() -> None:
    """For a daemon: nothing else shall get the descriptor of a stream that is closed."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w", encoding="utf-8"))


if __name__ == "__main__":
    sys.exit(main())
