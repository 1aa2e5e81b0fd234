"""The values of `coveyrun`'s options: what each may be, and what is wrong with another."""

from __future__ import annotations

import argparse
import os
from typing import Sequence

from covey.errors import InvalidArgument
from covey.inject import parse
from covey.launch.environment import OF_EACH_RANK
from covey.launch.hosts import parse as parse_hosts
from covey.launch.preload import modules_of
from covey.launch.spec import Host, LaunchError
from covey.method import check


_MOST_DIGITS = 9


class UsageError(argparse.ArgumentTypeError):
    """A value that an option cannot take."""


def _number(text: str, least: int, what: str) -> int:
    if not text.isdecimal() or len(text) > _MOST_DIGITS or int(text) < least:
        examples = ", ".join(str(least + more) for more in range(3))
        raise UsageError(f"{text or repr(text)} is not {what} ({examples}, ...)")
    return int(text)


def number_of_ranks(text: str) -> int:
    """argparse type of -np."""
    return _number(text, 1, "a number of ranks")


def seconds(text: str) -> int:
    """argparse type of --start-timeout and --elastic-timeout."""
    return _number(text, 1, "a number of seconds")


def count(text: str) -> int:
    """argparse type of --max-restarts and --reset-limit."""
    return _number(text, 0, "a number of times")


def number_of_nodes(text: str) -> int:
    """argparse type of --nodes."""
    return _number(text, 1, "a number of launchers")


def node_number(text: str) -> int:
    """argparse type of --node."""
    return _number(text, 0, "the number of a launcher")


def assignment(text: str) -> str:
    """argparse type of -x: NAME=VALUE, or NAME to pass a variable on (all are passed on)."""
    name, equals, _ = text.partition("=")
    if not name or (not equals and name not in os.environ):
        raise UsageError(f"{text or repr(text)} is not NAME=VALUE")
    if equals and name in OF_EACH_RANK:
        raise UsageError(f"{name} is not for -x: coveyrun sets it, for each rank another one")
    return text


def modules(text: str) -> Sequence[str]:
    """argparse type of --preload."""
    try:
        return modules_of(text)
    except InvalidArgument as error:
        raise UsageError(str(error)) from error


def host_list(text: str) -> Sequence[Host]:
    """argparse type of -H."""
    try:
        return parse_hosts(text)
    except LaunchError as error:
        raise UsageError(str(error)) from error


def port(text: str) -> int:
    """argparse type of --ssh-port."""
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise UsageError(f"{text} is not a port (1 to 65535)")
    return int(text)


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
