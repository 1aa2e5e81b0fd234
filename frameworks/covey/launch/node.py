"""This launcher among the others of a job: how they become one, and its news of the others'
ends. The launcher's loop watches `fileno()` and asks for `failures()`."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import time
from typing import Any, Callable, Dict, List, Optional, Sequence

from covey.errors import CoveyError, shown
from covey.launch import rendezvous_handler, report
from covey.launch.formation import Part
from covey.launch.rendezvous_handler import RendezvousHandler
from covey.launch.spec import LaunchError, Rendezvous

# After so long without news the launcher says what it waits for.
NEWS_S = 2.0
# A rank blames one of another launcher: so long the news of that one is waited for. It takes its
# time to exit; when the connection breaks they come at once.
_CAUSE_S = 10.0
_TAIL_LINES = report.MAX_TRACEBACK_LINES
_TAIL_BYTES = 12000


class Node:
    """One launcher of several. Close it.

    Attributes:
        ended: nothing more comes from the others.
        is_over: another launcher ends the job, or the rendezvous is gone: ranks end, whatever.
    """

    def __init__(
        self,
        rendezvous: Rendezvous,
        slots: int,
        say: Callable[[str], None],
        store_port: Optional[int] = None,
    ) -> None:
        """Begins to look for the others. `store_port`: free, for a store of rank 0. Raises
        LaunchError."""
        try:
            self._handler = RendezvousHandler(rendezvous, slots, store_port)
        except CoveyError as error:
            raise LaunchError(str(error)) from error
        self._say = say
        self._timeout_s = rendezvous.timeout_s
        self._begun_at = time.monotonic()
        self._told = ""
        self._part: Optional[Part] = None
        self.ended = False
        self.is_over = False
        if rendezvous.serve:
            say(_invitation(self._handler.address, rendezvous.secret_file))

    def fileno(self) -> int:
        """Readable when there is news; changes until formed."""
        return self._handler.fileno()

    def meet(self, signals_fd: Optional[int], stopped: Callable[[], bool]) -> Optional[Part]:
        """Waits until all are there. None: `stopped` said so, which is asked when `signals_fd` is
        readable and now and then.

        Raises:
            LaunchError: there will be no job, or the others did not come in time.
        """
        try:
            while True:
                self._part = self._handler.advance()
                waited_s = time.monotonic() - self._begun_at
                if self._part is not None:
                    return self._part
                if waited_s >= self._timeout_s:
                    raise rendezvous_handler.too_late(self._handler, self._timeout_s)
                if waited_s >= NEWS_S and not self._handler.is_forming:
                    limit = f"gives up after {self._timeout_s:g} s (--start-timeout)"
                    self._tell(f"{self._handler.waiting_for}; {limit}")
                wanted = [fd for fd in (self.fileno(), signals_fd) if fd is not None and fd >= 0]
                select.select(wanted, [], [], rendezvous_handler.LOOK_S)
                if stopped():
                    return None
        except CoveyError as error:
            raise LaunchError(str(error)) from error

    def _tell(self, text: str) -> None:
        if text != self._told:
            self._told = text
            self._say(text)

    # ---- While the ranks run -----------------------------------------------------------------

    def failures(self, now: float) -> List[report.Exit]:
        """News since the last call: ranks of others that failed, or are gone with their
        launcher."""
        ends: List[report.Exit] = []
        for event in self._handler.news():
            self.ended = self.ended or event["kind"] == "ended"
            if event["kind"] == "failed":
                ends += _of_report(event["text"], now)
                self.is_over = self.is_over or _ends_all(event["text"])
            elif event["kind"] == "lost":
                ends += _of_loss(event, now)
                self.is_over = self.is_over or all(node["serves"] for node in event["nodes"])
        return ends

    def await_cause(self, ends: Sequence[report.Exit]) -> List[report.Exit]:
        """When ranks here failed only because one of another launcher did: the news of that one."""
        until, more = time.monotonic() + _CAUSE_S, []
        while ends and self._is_cause_missing([*ends, *more]):
            left = until - time.monotonic()
            if left <= 0 or not select.select([self], [], [], left)[0]:
                break
            more += self.failures(time.monotonic())
        return more

    def _is_cause_missing(self, ends: Sequence[report.Exit]) -> bool:
        """Whether each of `ends` blames another rank, and one a rank that is not heard of yet."""
        own = self._own()
        ours = range(own["first_rank"], own["first_rank"] + own["slots"])
        known = {end.rank for end in ends} | set(ours)
        blames = [report.blamed(end) for end in ends]
        return all(blames) and any(ranks - known for ranks in blames)

    def _own(self) -> Dict[str, Any]:
        assert self._part is not None
        return self._part.nodes[self._part.node]

    def tell_failure(self, end: report.Exit, is_over: bool = False) -> None:
        """The others' launchers hear of it, unless this one is cut off: then they have heard so.
        `is_over`: they are to end their ranks even where these keep going."""
        tail = fitting(report.last_words(end)[-_TAIL_LINES:], _TAIL_BYTES)
        fields = {"rank": end.rank, "pid": end.pid, "code": end.code, "tail": tail}
        fields |= {"host": self._own()["host"], "is_over": is_over}
        with contextlib.suppress(CoveyError):
            self._handler.report("failed", json.dumps(fields))

    def tell_signal(self, name: str, code: int) -> None:
        """The others' launchers hear that a signal ends the ranks of this one."""
        if self._part is not None:
            words = [f"its launcher got {name}"]
            first = self._own()["first_rank"]
            end = report.Exit(first, os.getpid(), code, 0.0, None, words)
            self.tell_failure(end, is_over=True)

    def leave(self) -> None:
        """The ranks have ended. The others' may go on: see `ended`."""
        try:
            self.ended = not self._handler.report("left") or self.ended
        except CoveyError:  # The server of the rendezvous has ended, and with it the job.
            self.ended = True

    def who_is_left(self) -> str:
        """For people, when this launcher waits for the others."""
        assert self._part is not None
        others = [node for node in self._part.nodes if node["node"] != self._part.node]
        hosts = sorted({node["host"] for node in others})
        ranks = [r for n in others for r in range(n["first_rank"], n["first_rank"] + n["slots"])]
        return f"waiting for {report.ranks_in_words(ranks)} on {shown(', '.join(hosts))}"

    def close(self) -> None:
        """Leaves. The job's memory goes now: others may have opened it by this process's number."""
        self._handler.close()
        if self._part is not None:
            self._part.close()
            self._part = None


def _invitation(address: str, secret_file: str) -> str:
    warning = rendezvous_handler.everywhere(address)
    if not warning:
        join = f"--join {address} --secret-file {secret_file}"
        return f"serving the rendezvous at {address}; the others: {join}"
    port = address.rpartition(":")[2]
    join = f"--join {socket.gethostname()}:{port} --secret-file {secret_file}"
    return f"serving the rendezvous at {address}; {warning}; the others: {join}"


def fitting(lines: Sequence[str], limit_bytes: int) -> List[str]:
    """The last of `lines` that have room, as JSON, in `limit_bytes`."""
    kept: List[str] = []
    for line in reversed(lines):
        limit_bytes -= len(json.dumps(line)) + 2
        if limit_bytes < 0:
            break
        kept.append(line)
    return kept[::-1]


def _of_report(text: str, now: float) -> List[report.Exit]:
    try:
        fields = json.loads(text)
        return [
            report.Exit(
                rank=int(fields["rank"]),
                pid=int(fields["pid"]),
                code=int(fields["code"]),
                at=now,
                traceback_at=None,
                stderr_tail=[shown(str(line)) for line in fields["tail"]],
                host=shown(str(fields["host"])),
            )
        ]
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        # Of a launcher that is no launcher of ours.
        return [report.Exit(-1, -1, 1, now, None, [], lost="a node told of a failure in vain")]


def _ends_all(text: str) -> bool:
    """Whether that failure ends the ranks of all launchers, even if they keep going."""
    with contextlib.suppress(ValueError, AttributeError, RecursionError):
        return json.loads(text).get("is_over") is not False
    return True


def _of_loss(event: dict, now: float) -> List[report.Exit]:
    """Each rank of the node that is gone; the loss of the rendezvous itself when none is known."""
    text = shown(event["text"])
    if not event["nodes"]:
        return [report.Exit(-1, -1, 1, now, None, [], lost=text)]
    (node,) = event["nodes"]
    ranks = range(node["first_rank"], node["first_rank"] + node["slots"])
    end = (node["process"], 1, now, None, [])
    return [report.Exit(rank, *end, host=shown(node["host"]), lost=text) for rank in ranks]
