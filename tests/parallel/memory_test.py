"""Goal: whoever writes to the store where ranks meet can neither make a rank open something that is
not its user's memory of a job, nor hand it anything that is evaluated.
Method: a store whose content the test says, and descriptors of this process; the user's number is
replaced where another user's is needed, so that no other account has to exist."""

from __future__ import annotations

import json
import os
import pickle
import tempfile
import unittest
from typing import Any
from unittest import mock

import harness  # noqa: F401  # makes `covey` importable in a source tree

from covey import _native, rendezvous
from covey.errors import CoveyError, InvalidArgument, Unsupported
from covey.launch import memory
from covey.state import state

evaluated = []


class Evil:
    def __reduce__(self) -> Any:
        return evaluated.append, ("by the victim",)


class Store:
    """Of torch.distributed, as far as `meet` uses it; keeps what was set, or hands out `said`."""

    def __init__(self, said: bytes = b"") -> None:
        self.said = said

    def set(self, key: str, value: str) -> None:
        del key
        self.said = value.encode()

    def get(self, key: str) -> bytes:
        del key
        return self.said


class MemoryTestCase(unittest.TestCase):
    def setUp(self) -> None:
        self.job = _native.job_create(2)
        self.addCleanup(os.close, self.job)
        self.addCleanup(setattr, state, "rendezvous_settings", None)
        self.name = memory.place_of(self.job).split()[2]

    def descriptor(self, opened: int) -> int:
        self.addCleanup(os.close, opened)
        return opened

    def said(self, descriptor: object, name: str = "", process: object = None) -> str:
        return f"{process or os.getpid()} {descriptor} {name or self.name}"

    def check_refused(self, place: str, *words: str) -> None:
        for word in words or ("",):
            with self.assertRaisesRegex(InvalidArgument, word):
                memory.open_told(place)


class OpenTest(MemoryTestCase):
    def test_who_made_it_tells_where_it_is(self) -> None:
        opened = self.descriptor(memory.open_told(memory.place_of(self.job)))
        self.assertTrue(os.path.sameopenfile(opened, self.job))

    def test_what_is_no_place_is_refused(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            evil = os.path.join(folder, "evil")
            with open(evil, "w", encoding="ascii") as file:
                file.write("whatever")
            for place in (
                f"..{evil} {self.job} {self.name}",
                f"{os.getpid()} ../../..{evil} {self.name}",
                f"self {self.job} {self.name}",
                f"{os.getpid()} {self.job}",
                f"{os.getpid()} {self.job} {self.name} ",
                f"{os.getpid()} {self.job} {self.name}\n",
                f"{os.getpid()} -1 {self.name}",
                f"{os.getpid()} ٣ {self.name}",
                f"{os.getpid()} {self.job} covey-summary",
                "",
                "1" * 100000,
            ):
                self.check_refused(place, "does not say where the job's memory is")

    def test_a_file_a_pipe_and_other_memory_are_not_opened(self) -> None:
        reading, writing = os.pipe()
        kept = [self.descriptor(fd) for fd in (reading, writing)]
        kept.append(self.descriptor(os.memfd_create("covey")))
        kept.append(self.descriptor(_native.job_create(2)))  # another job's
        with tempfile.NamedTemporaryFile() as file:
            for fd in (*kept, file.fileno()):
                with mock.patch("os.open", side_effect=os.open) as opens:
                    self.check_refused(self.said(fd), "not the job's memory")
                self.assertEqual([call.args[1] & os.O_RDWR for call in opens.mock_calls], [0])

    def test_memory_of_another_user_is_not_joined(self) -> None:
        owner = os.geteuid()
        with mock.patch("os.geteuid", return_value=owner + 1):
            self.check_refused(self.said(self.job), f"belongs to user {owner}")

    def test_a_process_that_is_not_there_is_named(self) -> None:
        self.check_refused(self.said(7, process=4194305), "descriptor 7 of process 4194305")
        self.check_refused(self.said(99999), f"descriptor 99999 of process {os.getpid()}")


class StoreTest(MemoryTestCase):
    def test_the_ranks_meet(self) -> None:
        store = Store()
        fds = [self.descriptor(rendezvous._memory(store, rank, 2)) for rank in range(2)]
        self.assertTrue(os.path.sameopenfile(*fds))

    def test_nothing_in_the_store_is_evaluated_or_opened(self) -> None:
        place = memory.place_of(self.job)
        host = memory.host_id()
        for said in (
            pickle.dumps(Evil()),
            b"",
            b"\xff\xfe",
            b"[" * 100000,
            b"7",
            b"null",
            place.encode(),
            f"../tmp/evil real {host}".encode(),
            json.dumps({"memory": place}).encode(),
            json.dumps({"memory": [place], "host": host}).encode(),
            json.dumps({"memory": "../tmp/evil real x", "host": host}).encode(),
            json.dumps({"memory": place.replace("-", "-0"), "host": host}).encode(),
        ):
            with self.assertRaises(InvalidArgument, msg=said[:40]):
                rendezvous.meet(Store(said), 1, 2)
            self.assertIsNone(state.rendezvous_settings)
        self.assertEqual(evaluated, [])

    def test_another_host_is_named(self) -> None:
        said = {"memory": memory.place_of(self.job), "host": "elsewhere 1"}
        with self.assertRaisesRegex(Unsupported, "several hosts"):
            rendezvous.meet(Store(json.dumps(said).encode()), 1, 2)
        self.assertTrue(issubclass(Unsupported, CoveyError))


if __name__ == "__main__":
    unittest.main()
