"""argparse with Covey's manners: a mistake is one line, exit code 2, and the nearest right word."""

from __future__ import annotations

import argparse
import re
import sys
from typing import Any, List, NoReturn, Optional, Sequence, Tuple

from covey.cli.say import say
from covey.launch.check import nearest


def package_version() -> str:
    """The version of the installed package."""
    import covey

    return str(getattr(covey, "__version__", "unknown"))


class Parser(argparse.ArgumentParser):
    """Reports one line; suggests flags and subcommands; never guesses from a prefix."""

    def __init__(self, **options: Any) -> None:
        """Takes ArgumentParser's options. `refused`: flags with the reason why they are not."""
        self._refused = options.pop("refused", {})
        options.setdefault("allow_abbrev", False)
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(**options)

    def parse_args(  # type: ignore[override]
        self, args: Optional[Sequence[str]] = None, namespace: Any = None
    ) -> argparse.Namespace:
        """As ArgumentParser's, with a suggestion for each unknown flag."""
        known, unknown = self.parse_known_args(args, namespace)
        if unknown:
            # A subcommand's leftovers end up here: it knows its flags.
            getattr(known, "parser", self).refuse(unknown)
        return known

    def _parse_optional(self, arg_string: str) -> Any:
        """`-i key` in one word is a value, as of --ssh-args, and no flag with one."""
        if re.match(r"-\w ", arg_string):
            return None
        return super()._parse_optional(arg_string)

    def refuse(self, unknown: List[str]) -> NoReturn:
        """Ends with the line for unknown arguments."""
        flag = unknown[0].split("=")[0]
        if flag in self._refused:
            self.error(f"{flag}: {self._refused[flag]}")
        kind = "option" if flag.startswith("-") else "argument"
        self.error(f"unknown {kind} {flag}{nearest(flag, list(self._option_string_actions))}")

    def error(self, message: str) -> NoReturn:
        """One line, exit code 2."""
        choice = re.search(r"(-.*: )?invalid choice: '([^']*)' \(choose from (.*)\)", message)
        if choice:
            option, given, words = choice.group(1), choice.group(2), choice.group(3)
            known = re.findall(r"[\w-]+", words)
            near = nearest(given, known) or f" (there are: {', '.join(known)})"
            message = f"{option or ''}there is no {given or repr(given)}{near}"
        message = re.sub(r"^argument ", "", message).replace("\n", " ")
        say(self.prog, message)
        sys.exit(2)


def split_command(words: Sequence[str]) -> Tuple[str, ...]:
    """The job's command out of argparse's remainder: without a leading `--`."""
    return tuple(words[1:] if words and words[0] == "--" else words)
