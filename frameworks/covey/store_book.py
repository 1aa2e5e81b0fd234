"""How ranks on several hosts meet by a store of torch.distributed: torchrun's, env://'s. Internal.

Each rank listens, and puts its host and its address into the store. Rank 0 makes of all the job's
book (launch/book.py) and puts that there. So a key lies in the store: what reaches the store can
join the job, as it can join one of torch.distributed. With COVEY_SECRET_FILE the job's key is made
of both, and only ranks that hold the secret join.

    <rank>  at/<rank>   {"host", "address", "port"}, or {"error"}
    0       book        {"book"} (empty: all are on one host), {"refused"} or {"late"}
    <rank>  heard/<rank>
"""

from __future__ import annotations

import contextlib
import json
import socket
from datetime import timedelta
from typing import Any, Dict, List, Mapping, Optional

from covey.errors import InvalidArgument, Timeout, Unsupported, shown
from covey.launch import book, memory, network, reach, secret
from covey.launch.spec import LaunchError

_KEY = "covey/hosts"
_FAREWELL = timedelta(seconds=5)  # So long rank 0 waits for the ranks that it has refused.
_MOST_CHARACTERS = 1000


def meet(store: Any, rank: int, size: int, environ: Mapping[str, str]) -> Optional[Dict[str, Any]]:
    """The settings of this rank; None: all ranks are on one host.

    Raises:
        Unsupported: (a ValueError) a rank cannot listen.
        Timeout: a rank did not come in time.
        InvalidArgument: (a ValueError) what the store says is of no such job.
    """
    from covey.launch.rendezvous_handler import start_timeout_s

    limit = timedelta(seconds=start_timeout_s())
    with contextlib.ExitStack() as unless_met:
        try:
            listener = _listen(environ)
        except LaunchError as error:
            why = f"rank {rank}: {error}"
            store.set(f"{_KEY}/at/{rank}", json.dumps({"error": why}))
        else:
            unless_met.callback(listener.close)
            store.set(f"{_KEY}/at/{rank}", json.dumps(_place(listener)))
        if rank == 0:
            said = _decide(store, size, limit)
            store.set(f"{_KEY}/book", json.dumps(said))
        else:
            said = _content(store.get(f"{_KEY}/book"))
        for kind, raised in (("refused", Unsupported), ("late", Timeout)):
            if kind in said:
                _say_farewell(store, rank, said.get("come", []))
                raise raised(shown(str(said[kind]))[:_MOST_CHARACTERS])
        if not said.get("book"):
            return None
        settings = _settings(_keyed(str(said["book"]), environ), rank, size)
        unless_met.pop_all()
        return {**settings, "listen_fd": listener.detach()}


def _listen(environ: Mapping[str, str]) -> socket.socket:
    """At the address by which this host reaches that of rank 0. Raises LaunchError."""
    (listener,) = reach.listen(network.outward(environ.get("MASTER_ADDR", "")), 1)
    return listener


def _place(listener: socket.socket) -> Dict[str, Any]:
    address, port = listener.getsockname()[:2]
    return {"host": memory.host_id(), "address": address, "port": port}


def _content(said: bytes) -> Dict[str, Any]:
    """The content that a rank has put into the store. A stranger that reaches the store can put
    something else there: nothing in it is evaluated."""
    try:
        content = json.loads(said)
        if isinstance(content, dict):
            return content
    except (ValueError, RecursionError):
        pass
    raise InvalidArgument(
        f"the store at MASTER_ADDR and MASTER_PORT does not say where ranks are, but "
        f"{ascii(said[:80])}: another program uses it, or another version of Covey"
    )


def _decide(store: Any, size: int, limit: timedelta) -> Dict[str, Any]:
    """Rank 0's word for all."""
    keys = [f"{_KEY}/at/{rank}" for rank in range(size)]
    try:
        store.wait(keys, limit)
    except RuntimeError:  # torch's, of a store
        late = [rank for rank, key in enumerate(keys) if not store.check([key])]
        if not late:
            raise
        return {
            "late": f"of {size} ranks {', '.join(map(str, late))} did not come within "
            f"{limit.total_seconds():g} s (COVEY_START_TIMEOUT)",
            "come": [other for other in range(1, size) if other not in late],
        }
    hosts: Dict[str, int] = {}
    entries: List[book.Entry] = []
    for rank, key in enumerate(keys):
        place = _content(store.get(key))
        if "error" in place:
            return {"refused": str(place["error"]), "come": list(range(1, size))}
        lowest = hosts.setdefault(str(place.get("host")), rank)
        entries.append(book.Entry(lowest, str(place.get("address")), int(place.get("port", 0))))
    one_host = len(hosts) == 1
    return {"book": "" if one_host else book.text_of(book.draw_key(), "tls", entries)}


def _say_farewell(store: Any, rank: int, come: List[int]) -> None:
    """The store may be rank 0's: it goes with it, and those that have come are to hear why."""
    with contextlib.suppress(RuntimeError):
        if rank != 0:
            store.set(f"{_KEY}/heard/{rank}", "")
        else:
            store.wait([f"{_KEY}/heard/{other}" for other in come], _FAREWELL)


def _keyed(text: str, environ: Mapping[str, str]) -> str:
    """The book with the job's key. Raises LaunchError."""
    path = environ.get("COVEY_SECRET_FILE")
    if not path:
        return text
    title, key, *rest = text.split("\n")
    drawn = key.partition(" ")[2]
    made = book.derived_key(secret.read(path), drawn)
    return "\n".join([title, f"key {made}", *rest])


def _settings(text: str, rank: int, size: int) -> Dict[str, Any]:
    """The settings by the book. The core reads the book again, and strictly."""
    try:
        lines = [line.split() for line in text.splitlines()[3:]]
        lowest = [int(words[1]) for words in lines]
        hosted = [other for other in range(size) if lowest[other] == lowest[rank]]
        made = book.make(text)
    except (IndexError, ValueError) as error:
        raise InvalidArgument(f"the store does not hold the book of {size} ranks") from error
    return {
        "rank": rank,
        "size": size,
        "local_rank": hosted.index(rank),
        "local_size": len(hosted),
        "shm_fd": -1,
        "summary_fd": -1,
        "book_fd": made,
        "witness_fd": -1,
    }


