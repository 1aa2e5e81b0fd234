"""The values of `coveyrun`'s options: what each may be, and what is wrong with another."""

from __future__ import annotations

import argparse
import os
import socket
from typing import Sequence

from covey.cli.horovod import REFUSED
from covey.errors import InvalidArgument
from covey.inject import parse
from covey.launch.preload import modules_of
from covey.method import check


class UsageError(argparse.ArgumentTypeError):
    """A value that an option cannot take."""


def number_of_ranks(text: str) -> int:
    """argparse type of -np."""
    if not text.isdigit() or int(text) < 1:
        raise UsageError(f"{text} is not a number of ranks (1, 2, 3, ...)")
    return int(text)


def seconds(text: str) -> int:
    """argparse type of --start-timeout."""
    if not text.isdigit() or int(text) < 1:
        raise UsageError(f"{text} is not a number of seconds (1, 2, 3, ...)")
    return int(text)


def number_of_nodes(text: str) -> int:
    """argparse type of --nodes."""
    if not text.isdigit() or int(text) < 1:
        raise UsageError(f"{text} is not a number of launchers (1, 2, 3, ...)")
    return int(text)


def node_number(text: str) -> int:
    """argparse type of --node."""
    if not text.isdigit():
        raise UsageError(f"{text} is not the number of a launcher (0, 1, 2, ...)")
    return int(text)


def assignment(text: str) -> str:
    """argparse type of -x: NAME=VALUE, or NAME to pass a variable on (all are passed on)."""
    name, equals, _ = text.partition("=")
    if not name or (not equals and name not in os.environ):
        raise UsageError(f"{text} is not NAME=VALUE")
    return text


def modules(text: str) -> Sequence[str]:
    """argparse type of --preload."""
    try:
        return modules_of(text)
    except InvalidArgument as error:
        raise UsageError(str(error)) from error


def local_hosts(text: str) -> int:
    """argparse type of -H: the slots on this host; any other host is refused."""
    slots = 0
    for part in text.split(","):
        host, _, count = part.partition(":")
        if host not in ("localhost", "127.0.0.1", "::1", socket.gethostname()):
            raise UsageError(f"{host}: {REFUSED['--hostfile']}")
        slots += number_of_ranks(count or "1")
    return slots


def method(text: str) -> str:
    """argparse type of --method."""
    try:
        check(text)
    except InvalidArgument as error:
        raise UsageError(str(error)) from error
    return text


def injection(text: str) -> str:
    """argparse type of --inject."""
    try:
        parse(text)
    except InvalidArgument as error:
        raise UsageError(str(error)) from error
    return text
