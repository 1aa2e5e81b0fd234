"""The pages of the guide for those who come from Horovod and from torch.distributed."""

from __future__ import annotations

import itertools
from typing import Dict, Iterable, List

from covey.as_horovod import variables
from covey.cli import horovod
from covey.cli.horovod import REFUSED
from tools.reference import c10d, migration, symbols

_BY = "Made of the code by `tools/pages`; tests run the lines and the calls, and compare the names."


def horovod_page() -> str:
    """Line by line, then name by name. Needs torch and TensorFlow."""
    lines = [
        "# Horovod 0.28.1 and Covey",
        "",
        _BY,
        "",
        "See [coming from Horovod]" "(../coming-from-horovod.md) for what differs in the whole.",
        "",
        "## Line by line",
    ]
    lines += _line_by_line("Horovod", migration.HOROVOD)
    for module, found in itertools.groupby(symbols.symbols(), lambda one: one.module):
        lines += ["", f"## horovod.{module}", "", f"| name | `covey.{module}` | |", "|---|---|---|"]
        lines += [_verdict_row(symbols.verdict(one)) for one in found]
    return "\n".join([*lines, *_variables(), *_flags()]) + "\n"


def _variables() -> List[str]:
    lines = ["", "## Variables", "", "`coveyrun` acts by them; other launchers leave them alone. A"]
    lines += ["`COVEY_*` variable that is set, and a flag, win.", "", "| variable | |", "|---|---|"]
    by_fate: Dict[str, List[str]] = {}
    for name, known in variables.VARIABLES.items():
        if known.fate == variables.MAPPED:
            lines.append(f"| `{name}` | becomes `{known.told}` |")
        else:
            by_fate.setdefault(f"{known.fate}: {known.told}", []).append(f"`{name}`")
    lines += [f"| {', '.join(names)} | {told} |" for told, names in by_fate.items()]
    return [*lines, f"| {', '.join(f'`{name}`' for name in variables.PLACES)} | set for ranks |"]


def _flags() -> List[str]:
    lines = ["", "## Flags of horovodrun", "", "| flag | `coveyrun` |", "|---|---|"]
    own = {flag.name: horovod.variable_of(flag) for flag in horovod.FLAGS}
    for flag in symbols.flags():
        if flag in own:
            lines.append(f"| `{flag}` | as `{own[flag]}` |")
        else:
            lines.append(
                f"| `{flag}` | {f'refused: {REFUSED[flag]}' if flag in REFUSED else 'yes'} |"
            )
    return lines


def torch_page() -> str:
    """DistributedDataParallel line by line, then the functions of torch.distributed."""
    lines = ["# torch.distributed and Covey", "", _BY, "", "## From DistributedDataParallel", ""]
    lines += [
        "The left column runs unchanged too, with the backend `covey` in the place of `gloo`:"
    ]
    lines += ["[clusters](../clusters.md#torchdistributed)."]
    lines += _line_by_line("torch.distributed", migration.DDP)
    lines += ["", "## Functions, with the backend `covey`", "", "| function | | call |"]
    lines += ["|---|---|---|"]
    lines += [
        f"| `{row.name}` | {row.answer}{': ' + row.remark if row.remark else ''} |"
        f" `{row.call}` |"
        for row in c10d.rows()
    ]
    asks = ", ".join(f"`{name}`" for name in c10d.OF_TORCH)
    lines += ["", f"These ask torch, and no backend: {asks}."]
    return "\n".join(lines) + "\n"


def _line_by_line(other: str, rows: Iterable[migration.Row]) -> List[str]:
    lines = ["", f"| purpose | {other} | Covey |", "|---|---|---|"]
    for row in rows:
        before, after = (f"`{code}`" if code else "" for code in (row.before, row.after))
        lines.append(f"| {row.purpose} | {before} | {after} |")
    return lines


def _verdict_row(verdict: symbols.Verdict) -> str:
    return f"| `{verdict.symbol.name}` | {verdict.answer} | {verdict.how} |"
