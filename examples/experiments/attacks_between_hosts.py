"""Attacks of strangers on the ports of a job's ranks on several hosts, from a third host:

    tools/cluster run 3 -- python examples/experiments/attacks_between_hosts.py [SECONDS]

A job of four ranks on two hosts is attacked for SECONDS (30) by each kind of stranger. For the
first third the last rank is not there, so the ports of the others are open. Then it comes, and the
ranks add up 64 KiB in a loop. A row has the time in which the job formed once the last rank was
there, the pace under attack and after it, and the threads and the peak memory of the largest rank.
The first row has no attack. The attacker shares the cores, which the paces show, too.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import random
import selectors
import shlex
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from typing import Callable, Dict, List, Sequence, Tuple

RATE = 200  # connections a second
KEPT = 500  # of those that stay open
ME = pathlib.Path(__file__).absolute()


def rank(folder: str) -> None:
    """Adds up until the folder has a file `stop`; tells its book, then its steps and its size."""
    import numpy

    import covey

    place = pathlib.Path(folder) / os.environ["RANK"]
    place.with_suffix(".book").write_bytes(os.pread(int(os.environ["COVEY_BOOK_FD"]), 1 << 20, 0))
    while os.environ["RANK"] == "3" and not (pathlib.Path(folder) / "go").exists():
        time.sleep(0.01)
    covey.init()
    ones, steps, told = numpy.ones(1 << 14, "float32"), 0, 0.0
    stop = numpy.zeros(1, "int32")
    while not stop[0]:
        covey.allreduce(ones, op=covey.Sum, name="x")
        steps += 1
        if steps % 200 == 0:
            own = numpy.array([(pathlib.Path(folder) / "stop").exists()], "int32")
            stop = covey.allreduce(own, op=covey.Max, name="stop")
        if time.monotonic() - told > 0.2:
            told = time.monotonic()
            lines = pathlib.Path("/proc/self/status").read_text(encoding="ascii").splitlines()
            status = dict(line.split(":", 1) for line in lines)
            row = [told, steps, int(status["Threads"]), int(status["VmHWM"].split()[0]) // 1024]
            place.with_suffix(".new").write_text(json.dumps(row), encoding="ascii")
            place.with_suffix(".new").rename(place.with_suffix(".row"))
    covey.shutdown()


def greeting() -> bytes:
    """A ClientHello of TLS 1.3 without a key of any job."""
    out = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), out).do_handshake()
    return out.read()


def attack(ports: Sequence[Tuple[str, int]], seconds: float, first: Callable[[], bytes]) -> str:
    """Opens connections, sends `first()`, and holds them until the other side closes them."""
    selector, kept, count, closed = selectors.DefaultSelector(), 0, 0, 0
    end, due = time.monotonic() + seconds, time.monotonic()
    while time.monotonic() < end:
        if kept < KEPT and time.monotonic() >= due:
            due += 1 / RATE
            with contextlib.suppress(OSError):
                one = socket.create_connection(ports[count % len(ports)], 1)
                one.setblocking(False)
                selector.register(one, selectors.EVENT_READ)
                kept += 1
                one.send(first())
            count += 1
        for key, _ in selector.select(max(0.0, due - time.monotonic()) if kept < KEPT else 0.05):
            try:
                over = not key.fileobj.recv(4096)
            except OSError:
                over = True
            if over:
                selector.unregister(key.fileobj)
                key.fileobj.close()
                kept, closed = kept - 1, closed + 1
    return f"{count} connections, {closed} closed by the ranks"


def worker(book: str, own_rank: int) -> "subprocess.Popen[bytes]":
    """A rank of Covey with this book."""
    text = os.memfd_create("book", 0)
    os.write(text, book.encode())
    listener = socket.create_server(("0.0.0.0", 0))
    size = len(book.splitlines()) - 3
    env = {**os.environ, "COVEY_RANK": str(own_rank), "COVEY_SIZE": str(size),
           "COVEY_BOOK_FD": str(text), "COVEY_LISTEN_FD": str(listener.fileno()),
           "COVEY_LEASE": "3600s", "COVEY_START_TIMEOUT": "7200s"}
    code = "import covey; covey.init()"
    with listener:
        return subprocess.Popen([sys.executable, "-c", code], env=env, stderr=subprocess.DEVNULL,
                                pass_fds=[text, listener.fileno()])


def recorded(book: str) -> bytes:
    """The greeting of a rank of the job, as one who listens to the network hears it."""
    with socket.create_server(("127.0.0.1", 0)) as fake:
        fake.settimeout(30)
        head, count = book.splitlines()[:3], len(book.splitlines()) - 3
        lines = head + [f"{r} {r} 127.0.0.1 {fake.getsockname()[1]}" for r in range(count)]
        process = worker("\n".join(lines) + "\n", count - 1)
        try:
            came, _ = fake.accept()
            came.settimeout(10)
            with came:
                return came.recv(65536)
        finally:
            process.kill()
            process.wait()


def attacker(folder: str, kind: str, seconds: float) -> None:
    """One attack on all ports of the job."""
    book = (pathlib.Path(folder) / "0.book").read_text(encoding="ascii")
    entries = [line.split() for line in book.splitlines()[3:]]
    ports = [(entry[2], int(entry[3])) for entry in entries]
    random.seed(1)
    if kind == "none":
        time.sleep(seconds)
        return
    if kind == "another job's worker":
        title, _, security = book.splitlines()[:3]
        head = [title, "key " + "5a" * 32, security]
        lines = [" ".join([n, n, *where]) for n, _, *where in entries]
        processes = [worker("\n".join(head + lines) + "\n", number) for number in range(len(ports))]
        time.sleep(seconds)
        for process in processes:
            assert process.poll() is None, "a worker has ended by itself"
            process.kill()
            process.wait()
        print(f"{len(processes)} workers, dialing again and again")
        return
    hello = greeting()
    again = recorded(book) if kind == "replayed greetings" else b""
    contents: Dict[str, Callable[[], bytes]] = {
        "random bytes": lambda: random.randbytes(4096),
        "silent connections": lambda: b"",
        "half greetings": lambda: hello[: len(hello) // 2],
        "TLS without the key": lambda: hello,
        "replayed greetings": lambda: again,
    }
    print(attack(ports, seconds, contents[kind]))


KINDS = ("none", "random bytes", "silent connections", "half greetings", "TLS without the key",
         "replayed greetings", "another job's worker")


def rows(folder: pathlib.Path) -> List[List[float]]:
    return [json.loads((folder / f"{r}.row").read_text(encoding="ascii")) for r in range(4)]


def pace(folder: pathlib.Path, seconds: float) -> float:
    begin = end = rows(folder)[0]
    time.sleep(seconds)
    while end == begin:  # On a busy machine a row may be late.
        time.sleep(0.02)
        end = rows(folder)[0]
    return (end[1] - begin[1]) / (end[0] - begin[0])


def wait_for(job: "subprocess.Popen[bytes]", files: Sequence[pathlib.Path]) -> None:
    while not all(file.exists() for file in files):
        assert job.poll() is None, "the job has ended"
        time.sleep(0.02)


def measured(folder: pathlib.Path, kind: str, seconds: float, hosts: Sequence[str]) -> str:
    """One job under one attack, as a row."""
    a, b, c = hosts
    run = "import sys; from covey.cli import coveyrun_main as m; sys.exit(m())"
    job = subprocess.Popen([sys.executable, "-c", run, "--quiet", "-H", f"{a}:2,{b}:2",
                            sys.executable, str(ME), "--rank", str(folder)])
    command = ["ssh", c, "env", f"PYTHONPATH={os.pathsep.join(filter(None, sys.path))}",
               sys.executable, str(ME), "--attack", str(folder), shlex.quote(kind), str(seconds)]
    try:
        wait_for(job, [folder / f"{r}.book" for r in range(4)])
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
            time.sleep(seconds / 3)
            (folder / "go").touch()
            begun = time.monotonic()
            wait_for(job, [folder / f"{r}.row" for r in range(4)])
            formed = time.monotonic() - begun
            under = pace(folder, seconds / 2)
            said = other.communicate()[0].strip()
            assert other.returncode == 0, f"{kind}: the attack has failed"
        after = pace(folder, seconds / 4)
        threads, peak = (max(int(row[i]) for row in rows(folder)) for i in (2, 3))
        return (f"{kind:22} formed in {formed:5.2f} s  {under:6.0f} {after:6.0f} steps/s  "
                f"{threads} threads  {peak} MiB  {said}")
    finally:
        (folder / "go").touch()
        (folder / "stop").touch()
        code = job.wait(60)
        assert code == 0, f"{kind}: the job ended with {code}"


def main(seconds: float) -> None:
    hosts = os.environ["LAB_CLUSTER_HOSTS"].split(",")[:3]
    for kind in KINDS:
        with tempfile.TemporaryDirectory() as name:
            print(measured(pathlib.Path(name), kind, seconds, hosts), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        rank(sys.argv[2])
    elif sys.argv[1:2] == ["--attack"]:
        attacker(sys.argv[2], sys.argv[3], float(sys.argv[4]))
    else:
        main(float(sys.argv[1]) if len(sys.argv) > 1 else 30.0)
