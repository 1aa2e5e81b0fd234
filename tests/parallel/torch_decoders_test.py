"""Goal: a snapshot or a checkpoint that was changed is refused by an error of Covey's, and then
nothing of it has been taken over. Method: valid ones changed at random (fuzz.py)."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import pathlib
import tempfile
import unittest
from typing import Dict

import harness  # noqa: F401  # makes `covey` importable in a source tree
import torch
from fuzz import FuzzTestCase

from covey import checkpoint_folder
from covey.errors import CoveyError
from covey.torch import plain
from covey.torch.trainer.snapshot import State


class Trained:
    """A model after a step, and its state."""

    def __init__(self) -> None:
        self.net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
        self.optimizer = torch.optim.Adam(self.net.parameters())
        self.net(torch.randn(8, 4)).sum().backward()
        self.optimizer.step()
        self.state = State(self.optimizer, self.net)

    def image(self) -> bytes:
        return b"".join(
            bytes(piece.reshape(-1).view(torch.uint8).numpy()) for piece in self.state.pack()
        )


class SnapshotsTest(FuzzTestCase):
    def test_headers(self) -> None:
        giver, taker = Trained(), Trained()
        valid = giver.image()
        taker.state.unpack(torch.frombuffer(bytearray(valid), dtype=torch.uint8))
        self.assertEqual(taker.image(), valid)
        length = 8 + int.from_bytes(valid[:8], "little")
        tensors = valid[-(-length // 64) * 64 :]
        before = taker.image()

        def one(data: bytes) -> None:
            nonlocal before
            text = data[: self.random.choice((len(data), len(data), 3))]
            if self.random.random() < 0.8:
                text = len(text).to_bytes(8, "little") + text
            image = text.ljust(-(-len(text) // 64) * 64) + tensors
            try:
                taker.state.unpack(torch.frombuffer(bytearray(image), dtype=torch.uint8))
                before = taker.image()
            except CoveyError as error:
                self.assertTrue(str(error).isprintable())
                self.assertEqual(taker.image(), before)

        self.run_on([valid[8:length]], one, rounds=700)

    def test_what_no_header_may_say(self) -> None:
        taker = Trained()
        valid = taker.image()
        length = 8 + int.from_bytes(valid[:8], "little")
        header, tensors = json.loads(valid[8:length]), valid[-(-length // 64) * 64 :]
        entry = header["parameters"][0]
        for wrong in (["load", [4, 4]], ["float32", [4, -4]], ["float32", [True]], {}, None, [[]],
                      ["float64", [4, 4]], ["float32", [1 << 40, 1 << 40]],
                      ["float32", [4, 4], "x"]):
            header["parameters"][0] = wrong
            text = json.dumps(header).encode()
            text = len(text).to_bytes(8, "little") + text
            image = text.ljust(-(-len(text) // 64) * 64) + tensors
            with self.assertRaisesRegex(CoveyError, "is none of this job"):
                taker.state.unpack(torch.frombuffer(bytearray(image), dtype=torch.uint8))
            self.assertEqual(taker.image(), valid)
        self.assertEqual(entry, ["float32", [4, 4]])


class CheckpointsTest(FuzzTestCase):
    def setUp(self) -> None:
        super().setUp()
        kept = tempfile.TemporaryDirectory()
        self.addCleanup(kept.cleanup)
        self.path = pathlib.Path(kept.name) / "checkpoint"
        part = checkpoint_folder.begin(self.path)
        content = {"weight": torch.ones(3), "steps": 7}
        dump = functools.partial(torch.save, content)
        files = {plain.MODEL: tuple(checkpoint_folder.write(part, plain.MODEL, dump))}
        manifest = {"format": checkpoint_folder.FORMAT, "size": 1, "files": files}
        checkpoint_folder.commit(part, self.path, manifest)

    def read(self) -> None:
        where = checkpoint_folder.find(self.path)
        manifest = checkpoint_folder.read_manifest(where)
        checkpoint_folder.check(where, plain.MODEL, manifest.get("files", {}))
        plain.read(where, plain.MODEL, manifest.get("files", {}))

    def changes(self, name: str, hashes_again: bool, rounds: int) -> None:
        self.read()
        changed, manifest_path = self.path / name, self.path / checkpoint_folder.MANIFEST
        files: Dict[pathlib.Path, bytes] = {
            path: path.read_bytes() for path in (changed, manifest_path)
        }

        def one(data: bytes) -> None:
            for path, content in files.items():
                path.write_bytes(content)
            changed.write_bytes(data)
            if hashes_again:
                with contextlib.suppress(ValueError, AttributeError, TypeError, RecursionError):
                    manifest = json.loads(manifest_path.read_bytes())
                    manifest.pop("sha256", None)
                    if name == plain.MODEL:
                        manifest["files"][name] = [len(data), hashlib.sha256(data).hexdigest()]
                    manifest["sha256"] = checkpoint_folder._hash_of(manifest)
                    manifest_path.write_text(json.dumps(manifest), encoding="utf-8")
            try:
                self.read()
            except CoveyError as error:
                self.assertTrue(str(error).isprintable(), ascii(str(error)))

        self.run_on([files[changed]], one, rounds)

    def test_manifests(self) -> None:
        self.changes(checkpoint_folder.MANIFEST, False, 500)

    def test_manifests_with_their_hash(self) -> None:
        self.changes(checkpoint_folder.MANIFEST, True, 500)

    def test_files_with_their_hash(self) -> None:
        self.changes(plain.MODEL, True, 300)

    def test_a_pipe_is_no_file(self) -> None:
        os.unlink(self.path / plain.MODEL)
        os.mkfifo(self.path / plain.MODEL)
        with self.assertRaisesRegex(CoveyError, "model.pt is cut short"):
            self.read()


if __name__ == "__main__":
    unittest.main()
