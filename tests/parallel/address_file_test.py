"""Goal: `--serve file:PATH` and `--join file:PATH` in a folder that others can write to do no harm:
links are not followed, files of others are neither overwritten nor believed.
Method: the functions, with what others may have put there; one launcher as a user starts it."""

from __future__ import annotations

import os
import tempfile
import unittest
from unittest import mock

from harness import PLUGIN, PLUGIN_FOLDER, WHY_NO_PLUGIN, run_launcher

from covey.launch import address_file
from covey.launch.spec import LaunchError

ADDRESS = "127.0.0.1:29500"


class FileTestCase(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.path = os.path.join(self.folder, "address")
        self.precious = os.path.join(self.folder, "precious.txt")
        self.put(self.precious, "precious")

    def put(self, path: str, text: str) -> None:
        with open(path, "w", encoding="ascii") as file:
            file.write(text)

    def content(self, path: str) -> str:
        with open(path, encoding="ascii") as file:
            return file.read()

    def check_refused(self, words: str) -> None:
        for call in (address_file.read, lambda path: address_file.write(path, ADDRESS)):
            with self.assertRaisesRegex(LaunchError, words):
                call(self.path)
        self.assertEqual(self.content(self.precious), "precious")
        self.assertLessEqual(set(os.listdir(self.folder)), {"address", "precious.txt"})


class AddressFileTest(FileTestCase):
    def test_it_is_written_read_and_removed(self) -> None:
        self.assertEqual(address_file.read(self.path), "")
        for address in (ADDRESS, "node1:1", "[::1]:65535"):
            made = address_file.write(self.path, address)
            self.assertEqual(address_file.read(self.path), address)
            self.assertEqual(os.stat(self.path).st_mode & 0o777, 0o600)
        self.put(self.path, "")
        self.assertEqual(address_file.read(self.path), "")
        address_file.remove(self.path, made)
        self.assertEqual(os.listdir(self.folder), ["precious.txt"])

    def test_another_jobs_file_is_not_removed(self) -> None:
        first = address_file.write(self.path, ADDRESS)
        address_file.write(self.path, "127.0.0.1:1")
        address_file.remove(self.path, first)
        address_file.remove(self.path, None)
        self.assertEqual(address_file.read(self.path), "127.0.0.1:1")

    def test_a_link_is_not_followed(self) -> None:
        for target in (self.precious, os.path.join(self.folder, "nothing")):
            os.symlink(target, self.path)
            self.check_refused("symbolic link")
            os.unlink(self.path)

    def test_a_link_in_the_place_of_the_part_is_not_followed(self) -> None:
        with mock.patch("secrets.token_hex", return_value="guessed"):
            os.symlink(self.precious, f"{self.path}.guessed")
            with self.assertRaisesRegex(LaunchError, "File exists"):
                address_file.write(self.path, ADDRESS)
        self.assertEqual(self.content(self.precious), "precious")

    def test_what_is_no_address_is_left_alone(self) -> None:
        for text in ("precious", "a b:1", "127.0.0.1:29500\nmore", "x" * 100_000):
            self.put(self.path, text)
            self.check_refused("does not hold an address")
            self.assertEqual(self.content(self.path), text)

    def test_a_file_of_another_user_is_neither_believed_nor_overwritten(self) -> None:
        address_file.write(self.path, ADDRESS)
        with mock.patch("os.geteuid", return_value=os.geteuid() + 1):
            self.check_refused("belongs to user")
        self.assertEqual(self.content(self.path), ADDRESS)

    def test_a_pipe_does_not_stop_it(self) -> None:
        os.mkfifo(self.path)
        self.check_refused("is not a file")


@unittest.skipUnless(PLUGIN, WHY_NO_PLUGIN)
class LauncherTest(FileTestCase):
    def test_a_launcher_does_not_write_through_a_link(self) -> None:
        os.symlink(self.precious, self.path)
        secret = ["--secret-file", os.path.join(self.folder, "secret")]
        for way in (["--serve", f"file:{self.path}", "--nodes", "2"],
                    ["--join", f"file:{self.path}"]):
            words = ["-np", "1", *way, *secret, "true"]
            code, out, err = run_launcher(words, env={"COVEY_PLUGIN_PATH": PLUGIN_FOLDER})
            self.assertEqual((code, out, len(err)), (2, [], 1), err)
            self.assertIn(f"{self.path}: it is a symbolic link", err[0])
        self.assertEqual(self.content(self.precious), "precious")


if __name__ == "__main__":
    unittest.main()
