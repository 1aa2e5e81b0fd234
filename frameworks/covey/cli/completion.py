"""Completion of `covey` and `coveyrun` in bash and zsh, made of their parsers.

`eval "$(coveyrun --completion bash)"` in ~/.bashrc, or with zsh in ~/.zshrc, completes both.
"""

from __future__ import annotations

import argparse
import shlex
from typing import Any, Dict, Iterator, List, NamedTuple

from covey.inject import KINDS
from covey.method import methods

SHELLS = ("bash", "zsh")
_FILES, _FOLDERS = ("FILE", "PATH", "PROGRAM"), ("DIR",)

# The words before the one at the cursor: flags with their values, and covey's subcommand; at the
# job's command it ends, and leaves the rest to the shell. Then the value of a flag, or words.
_BASH = """_covey() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} program=${{1##*/}} key= flag= at=1 this
  COMPREPLY=()
  while [ $at -lt $COMP_CWORD ]; do
    this=${{COMP_WORDS[at]}}
    at=$((at + 1))
    case "$program:$key $this" in
      {takes})
        flag=$this
        [ $at -lt $COMP_CWORD ] || break
        at=$((at + 1))
        flag= ;;
      *" -"*) ;;
      "covey: "*) key=$this ;;
      *)
        compopt -o default 2>/dev/null || COMPREPLY=($(compgen -f -- "$word"))
        return ;;
    esac
  done
  case "$program:$key $flag" in
{values}
    *" -"*) return ;;
  esac
  case "$program:$key" in
{words}
  esac
}}
complete -F _covey covey coveyrun
"""
_ZSH = "autoload -Uz bashcompinit && bashcompinit\n"


class Flag(NamedTuple):
    """A flag of a command: "covey:run --method", whether it takes a value, and what completes
    that."""

    where: str
    name: str
    takes: bool
    value: str


def script(shell: str) -> str:
    """The lines for a shell, one of SHELLS, which completes by bash's rules in zsh too."""
    from covey.cli import make_covey_parser
    from covey.cli.run_command import make_parser

    commands: Dict[str, argparse.ArgumentParser] = {
        "coveyrun:": make_parser("coveyrun"),
        "covey:": make_covey_parser(),
    }
    for name, parser in _subcommands(commands["covey:"]).items():
        commands[f"covey:{name}"] = parser
    flags = [flag for where, parser in commands.items() for flag in _flags(where, parser)]
    text = _BASH.format(
        takes="|".join(_pattern(flag) for flag in flags if flag.takes),
        values="\n".join(
            f'    {_pattern(flag)}) COMPREPLY=($(compgen {flag.value} -- "$word")); return ;;'
            for flag in flags
            if flag.value
        ),
        words="\n".join(_words(where, parser) for where, parser in commands.items()),
    )
    return _ZSH + text if shell == "zsh" else text


def _pattern(flag: Flag) -> str:
    return shlex.quote(f"{flag.where} {flag.name}")


def _subcommands(parser: argparse.ArgumentParser) -> Dict[str, argparse.ArgumentParser]:
    found: Dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found.update(action.choices)
    return found


def _flags(where: str, parser: argparse.ArgumentParser) -> Iterator[Flag]:
    for action in parser._actions:
        for name in action.option_strings:
            yield Flag(where, name, action.nargs != 0, _value(action))


def _value(action: Any) -> str:
    """Arguments of compgen for the value of a flag; empty: nothing is known of it."""
    if action.choices:
        return f"-W {shlex.quote(' '.join(map(str, action.choices)))}"
    if action.dest == "method":
        return f"-W {shlex.quote(' '.join(one['name'] for one in methods()))}"
    if action.dest == "inject":
        return f"-W {shlex.quote(' '.join(KINDS))}"
    kind = str(action.metavar)
    return "-f" if kind in _FILES else "-d" if kind in _FOLDERS else ""


def _words(where: str, parser: argparse.ArgumentParser) -> str:
    """The words that are neither a flag's value nor the job's command."""
    shown: List[str] = [*_subcommands(parser)]
    for action in parser._actions:
        if not action.option_strings and not isinstance(action, argparse._SubParsersAction):
            shown += map(str, action.choices or ())
        elif action.help != argparse.SUPPRESS:
            shown += [name for name in action.option_strings if name.startswith("--")]
    runs = any(action.nargs == argparse.REMAINDER for action in parser._actions)
    more = ' $([[ $word = -* ]] || compgen -c -- "$word")' if runs else ""
    return (
        f"    {shlex.quote(where)}) COMPREPLY=($(compgen -W {shlex.quote(' '.join(shown))}"
        f' -- "$word"){more}) ;;'
    )


class Completion(argparse.Action):
    """--completion SHELL: prints the script, and that is all."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        print(script(values), end="")
        parser.exit()


def describe(parser: argparse.ArgumentParser) -> None:
    """Adds the flag."""
    parser.add_argument(
        "--completion",
        action=Completion,
        choices=SHELLS,
        help='completes both commands: eval "$(coveyrun --completion bash)" in ~/.bashrc',
    )
