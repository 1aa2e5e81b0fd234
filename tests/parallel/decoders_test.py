"""Goal: whatever a store, a file, a variable or another launcher says, it is taken or refused by
the errors that its readers know; nothing is opened, evaluated or shown that should not be.
Method: valid texts changed at random (fuzz.py)."""

from __future__ import annotations

import json
import os
import tempfile
import unittest
from typing import Dict, List
from unittest import mock

from fuzz import FuzzTestCase
from harness import SECRET

from covey import _native, inject, launched_by, method, objects, rendezvous
from covey.errors import CoveyError
from covey.launch import address_file, formation, memory, network, node, secret
from covey.state import state

_METHODS = (
    b"allreduce:max_wait=2s", b"eager:admit=0.5,grace=0s,log=64",
    b"wagma:group_size=4,sync_every=10", b"local:local_steps=8,codec=int8",
    b"swarm:codec=lattice@8,local_steps=2", b"dpsgd:order=cwa", b"adpsgd:codec=bf16",
    b"eager@100:then=wagma:group_size=2", b"local:warmup=10,then=allreduce",
)
_INJECTED = (
    b"delay:320ms@2", b"slow:10x@1", b"pause:5s:100@rank2", b"pareto:350ms:1.6",
    b"lognormal:550ms:0.55:3s@0.25", b"delay:3000us@1,seed=4", b"random:0ms-200ms+rotate:1ms-2ms",
)


class DecodersTest(FuzzTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.addCleanup(setattr, state, "rendezvous_settings", None)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

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

        self.run_on([json.dumps(said).encode()], one)

    def test_words_of_the_store(self) -> None:
        class Store:
            """As one in which a stranger has written."""

            said: dict = {}

            def set(self, key: str, value: str) -> None:
                pass

            def wait(self, keys: list, limit: object) -> None:
                pass

            def get(self, key: str) -> bytes:
                return self.said.get(key.rpartition("/")[2], b"")

        def one(data: bytes) -> None:
            for rank, key in ((1, "verdict"), (0, "1")):
                store = Store()
                store.said = {key: data}
                try:
                    rendezvous._agree(store, rank, 2)
                    self.assertEqual(data, b"")
                except CoveyError as error:
                    self.assertTrue(str(error).replace("\t", "").isprintable())
                    self.assertLess(len(str(error)), 1100)

        self.run_on([b"rank 1 cannot join the job: \x1b]0;x\x07"], one)

    def test_reports_of_other_launchers(self) -> None:
        fields = {"rank": 1, "pid": 2, "code": 3, "tail": ["Traceback", "x"], "host": "a"}

        def one(data: bytes) -> None:
            for end in node._of_report(data.decode("utf-8", "replace"), 0.0):
                for text in (*end.stderr_tail, end.host, end.lost):
                    self.assertTrue(text.replace("\t", "").isprintable())

        self.run_on([json.dumps(fields).encode()], one)

    def formation(self) -> formation.Formation:
        """Of node 1, the second of three on two hosts. Tries no connections."""
        nodes = [
            {"node": n, "slots": 2, "first_rank": 2 * n, "host": f"h{host}", "host_id": host}
            for n, host in enumerate("aba")
        ]
        view = {"node": 1, "text": "drawn", "nodes": nodes}
        networks = formation.own_networks("b", "", "")
        own = formation.Own(formation.Terms(), networks, 29500)
        return formation.Formation(view, own, SECRET.encode())

    def test_texts_that_nodes_share(self) -> None:
        here = network.HostNetworks("a", "m", [network.Address("lo", "127.0.0.1", 8)])
        first = formation.Own(formation.Terms(), here, 29500).text("1 2 covey-0")
        rounds = (first, '{"ports": [4, 5, 6]}', '{"failures": []}')
        bad = '{"failures": [[0, "no answer"]]}'

        def one(data: bytes) -> None:
            changed = data.decode("utf-8", "replace")
            at = self.random.randrange(3)
            subject = self.formation()
            try:
                subject.begin()
                for number, text in enumerate(rounds):
                    texts: List[str] = [text, changed if number == at else text, text]
                    more = subject.take(texts)
                    self.assertLess(len(more), 16384)
                self.assertIsNotNone(subject.part)
                self.assertNotIn("\0", subject.part.book)
            except CoveyError as error:
                self.assertTrue(str(error).replace("\t", "").isprintable(), ascii(str(error)))
                self.assertLess(len(str(error)), 5000)
            finally:
                subject.close()

        socketless = mock.Mock(**{"getsockname.return_value": ("127.0.0.1", 4)})
        listen = mock.patch.object(formation.reach, "listen", lambda at, n: [socketless] * n)
        with listen, mock.patch.object(formation.reach, "failures", lambda addresses: {}):
            self.run_on([text.encode() for text in (*rounds, bad)], one, rounds=2000)

    def of_file(self, data: bytes, read: object) -> object:
        path = os.path.join(self.folder, "file")
        with open(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as file:
            file.write(data)
        try:
            return read(path)  # type: ignore[operator]
        except CoveyError as error:
            self.assertTrue(str(error).isprintable())
            return None

    def test_address_files(self) -> None:
        def one(data: bytes) -> None:
            self.assertTrue(str(self.of_file(data, address_file.read)).isprintable())

        self.run_on([b"127.0.0.1:29500"], one)

    def test_secret_files(self) -> None:
        def one(data: bytes) -> None:
            taken = self.of_file(data, secret.read)
            if taken is not None:
                self.assertEqual(taken, data.strip())
                self.assertGreaterEqual(len(set(taken)), 8)
                self.assertGreaterEqual(len(taken), 43)

        self.run_on([SECRET.encode(), b"nn0k8MG4WjNi1PGge8jpVU8NOhxnsp6IQPXWx6sTkuQ=\n"], one)
        self.assertEqual(self.of_file(SECRET.encode() + b"\n", secret.read), SECRET.encode())
        for weak in (b"0123456789abcdef" * 4, b"abcdefgh" * 6, SECRET[:-1].encode(), b"a" * 64):
            self.assertIsNone(self.of_file(weak, secret.read), weak)

    def test_texts_of_methods(self) -> None:
        def one(data: bytes) -> None:
            for text in (data.decode("utf-8", "surrogateescape"), data.decode("latin-1")):
                try:
                    method.check(text)
                    self.assertTrue(method.full_text(text))
                except CoveyError as error:
                    self.assertTrue(str(error).replace("\n", "").isprintable(), ascii(text))
                    self.assertEqual(method.full_text(text), "")

        self.run_on(_METHODS, one)

    def test_texts_of_what_is_injected(self) -> None:
        def one(data: bytes) -> None:
            text = data.decode("utf-8", "surrogateescape")
            try:
                delay = inject.parse(text).delay(3, 1, 4)
                self.assertTrue(0 <= delay.seconds < float("inf"), ascii(text))
                self.assertTrue(0 <= delay.times < float("inf"), ascii(text))
            except CoveyError as error:
                self.assertTrue(str(error).isprintable(), ascii(text))

        self.run_on(_INJECTED, one)

    def test_variables_that_say_who_meets_whom(self) -> None:
        names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_WORLD_SIZE",
                 "COVEY_RANK", "COVEY_SIZE", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS")

        def environ_of_host(environ: Dict[str, str]) -> Dict[str, str]:
            told = environ.get("LOCAL_WORLD_SIZE", "")
            return {"LOCAL_WORLD_SIZE": told} if told and "\0" not in told else {}

        def one(data: bytes) -> None:
            environ = {name: "2" for name in names if self.random.random() < 0.7}
            environ[self.random.choice(names)] = data.decode("utf-8", "surrogateescape")
            launched_by.under_coveyrun(environ)
            launched_by.by_torchrun(environ)
            try:
                rank, size = launched_by.place_of(environ)
                self.assertTrue(0 <= rank < size)
                none = mock.patch("torch.distributed.TCPStore", side_effect=RuntimeError("none"))
                with none, mock.patch.dict(os.environ, environ_of_host(environ), clear=True):
                    rendezvous.meet_by_variables(environ)
            except CoveyError as error:
                self.assertTrue(str(error).replace("\t", "").isprintable(), ascii(str(error)))

        self.run_on([b"1", b"0", b"29500"], one, rounds=500)

    def test_lengths_of_objects(self) -> None:
        def one(data: bytes) -> None:
            length = int.from_bytes(data[:8].ljust(8, b"\xff"), "little")
            if length <= 1 << 20 or length >= 1 << 47:  # What lies between may well have room.
                try:
                    self.assertEqual(len(objects._room(length, 0)), length)
                except CoveyError as error:
                    self.assertIn(f"{length} bytes", str(error))

        self.run_on([(300).to_bytes(8, "little")], one)


if __name__ == "__main__":
    unittest.main()
