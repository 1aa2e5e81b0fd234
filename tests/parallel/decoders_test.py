"""Goal: whatever a store, an address file or another launcher says, it is taken or refused by the
errors that its readers know; nothing is opened, evaluated or shown that should not be.
Method: valid texts changed at random from a seed that is printed; FUZZ_SEED repeats a run,
FUZZ_ROUNDS makes a longer one."""

from __future__ import annotations

import json
import os
import random
import tempfile
import unittest
from typing import Callable

import harness  # noqa: F401  # makes `covey` importable in a source tree

from covey import _native, rendezvous
from covey.errors import CoveyError
from covey.launch import address_file, memory, node
from covey.state import state

SEED = int(os.environ.get("FUZZ_SEED", "20261124"))
ROUNDS = int(os.environ.get("FUZZ_ROUNDS", "2000"))
_BITS = (b"", b"\x00", b"\xff\xfe", b"..", b"/", b"-1", b"1e999", b"null", b"[", b'"', b"\\u0000",
         b"99999999999999999999", b"{}", b"\x1b[2J", b"\n", b" ", b"9" * 5000)


class DecodersTest(unittest.TestCase):
    def setUp(self) -> None:
        print(f"FUZZ_SEED={SEED}", flush=True)
        self.random = random.Random(SEED)
        self.addCleanup(setattr, state, "meeting", None)

    def changed(self, valid: bytes) -> bytes:
        data = valid
        for _ in range(self.random.randint(1, 3)):
            begin = self.random.randrange(len(data) + 1)
            end = min(len(data), begin + self.random.choice((0, 1, 1, 5, 40)))
            data = data[:begin] + self.random.choice(_BITS) + data[end:]
        return data

    def run_on(self, valid: bytes, one: Callable[[bytes], None]) -> None:
        for _ in range(ROUNDS):
            one(self.changed(valid))

    def test_entries_of_the_store(self) -> None:
        job = _native.job_create(2)
        self.addCleanup(os.close, job)
        said = {"memory": memory.place_of(job), "host": memory.host_id()}

        def one(data: bytes) -> None:
            try:
                place, host = rendezvous._told(data)
                if host == memory.host_id():
                    opened = memory.open_told(place)
                    self.assertTrue(os.path.sameopenfile(opened, job))
                    os.close(opened)
            except CoveyError as error:
                self.assertTrue(str(error).isprintable())

        self.run_on(json.dumps(said).encode(), one)

    def test_reports_of_other_launchers(self) -> None:
        fields = {"rank": 1, "pid": 2, "code": 3, "tail": ["Traceback", "x"], "host": "a"}

        def one(data: bytes) -> None:
            for end in node._of_report(data.decode("utf-8", "replace"), 0.0):
                for text in (*end.stderr_tail, end.host, end.lost):
                    self.assertTrue(text.replace("\t", "").isprintable())

        self.run_on(json.dumps(fields).encode(), one)

    def test_address_files(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "address")

            def one(data: bytes) -> None:
                with open(path, "wb") as file:
                    file.write(data)
                try:
                    self.assertTrue(address_file.read(path).isprintable())
                except CoveyError as error:
                    self.assertTrue(str(error).isprintable())

            self.run_on(b"127.0.0.1:29500", one)


if __name__ == "__main__":
    unittest.main()
