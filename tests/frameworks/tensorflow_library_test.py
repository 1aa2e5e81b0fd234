"""Goal: the first import of covey.tensorflow compiles its operations where there are none for this
TensorFlow or from these sources: once, whole and with one line, however many ranks import at once.
Where that cannot be, the reason is named with the command that brings what is missing.
Method: ranks import a copy of the package. A program in the place of the compiler waits until all
have come, then takes the operations of the other tests; with --slow one case has the real one."""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from typing import Callable, Dict, List, Optional

from ranks import SEED, Pool, also
from tensorflows import HAS_TENSORFLOW, WHY_NOT, build, with_operations

SIZE = 4
LIMIT_S = 60
NO_TENSORFLOW = "raise ModuleNotFoundError(\"No module named 'tensorflow'\", name='tensorflow')\n"
COMPILER = f"""#!{sys.executable}
import os, shutil, sys
here = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(here, "calls"), "a+") as calls:
    calls.write("call\\n")
    calls.seek(0)
    number = len(calls.readlines())
out = sys.argv[sys.argv.index("-o") + 1]
task = open(os.path.join(here, f"task.{{number}}")).read()
if task == "be killed":
    open(out, "w").write("half of it")
    os.kill(os.getppid(), {int(signal.SIGKILL)})
elif task == "refuse":
    sys.exit("In file included from a.cc:\\na.cc:1:2: error: no such thing\\nmore\\n")
else:
    shutil.copyfile(task, out)
"""

real = ""
"""The operations that the other tests have."""


def setUpModule() -> None:
    global real
    print(f"seed {SEED}")
    if HAS_TENSORFLOW:
        with Pool(1, __file__, with_operations(), init=False) as pool:
            (real,) = pool.call(found)


# ---- Run on ranks -------------------------------------------------------------------------------


def found() -> str:
    """The path of the operations that are there."""
    import tensorflow as tf

    import covey.tensorflow  # noqa: F401  # By hand it makes them.
    from covey import operations_file

    return operations_file.find(tf.version.VERSION) or ""


def imported(folder: str, env: Dict[str, str], unwritable: bool = False) -> str:
    """The outcome of importing the package in `folder`."""
    if folder not in sys.path:
        sys.path.insert(0, folder)
    os.environ.update(env)
    tempfile.tempdir = folder
    import covey
    from covey.cli import build_part

    assert covey.__file__.startswith(folder), covey.__file__
    if unwritable:
        build_part.package_folder = lambda: "/proc/nowhere"
    try:
        import covey.tensorflow as hvd
    except ImportError as error:
        return str(error)
    import tensorflow as tf

    try:
        return f"size {hvd.size_op()} before init"
    except tf.errors.FailedPreconditionError:
        return "loaded"  # An operation has said so.


# ---- The tests ----------------------------------------------------------------------------------


def waited_for(look: Callable[[], Optional[int]], missing: str) -> int:
    """The first that `look` finds; a poll with a hard limit."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        seen = look()
        if seen is not None:
            return seen
        assert time.monotonic() < deadline, missing
        time.sleep(0.001)


class Place:
    """A copy of the package without operations, a compiler and a home; removed with the test."""

    def __init__(self, test: unittest.TestCase) -> None:
        import covey

        made = tempfile.TemporaryDirectory()
        test.addCleanup(made.cleanup)
        self.folder = pathlib.Path(made.name).resolve()
        self.package = self.folder / "covey"
        left_out = shutil.ignore_patterns("libcovey_*", "__pycache__")
        shutil.copytree(pathlib.Path(covey.__file__).parent, self.package, ignore=left_out)
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        (self.bin / "g++").write_text(COMPILER, encoding="ascii")
        (self.bin / "g++").chmod(0o755)
        for call in range(1, 4):
            os.mkfifo(self.bin / f"task.{call}")
        self.env = {"PATH": str(self.bin), "XDG_DATA_HOME": str(self.folder / "home")}

    def give(self, task: str, call: int = 1) -> None:
        """To the compiler, when it is called for that time."""
        pipe = waited_for(lambda: self._opened(call), f"nothing compiles for the {call}. time")
        os.write(pipe, task.encode())
        os.close(pipe)

    def _opened(self, call: int) -> Optional[int]:
        try:
            return os.open(self.bin / f"task.{call}", os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            return None  # It is not yet read.

    def calls(self) -> int:
        """How often it was called."""
        path = self.bin / "calls"
        return path.read_text(encoding="ascii").count("call") if path.exists() else 0

    def operations(self, folder: str = "covey") -> List[str]:
        """Files that the package did not come with."""
        there = os.listdir(self.folder / folder)
        return [name for name in there if "covey_tensorflow" in name]

    def wait_for(self, pool: Pool) -> None:
        """Until each rank has opened the lock: the others are to be in time."""
        for process in pool.processes:
            waited_for(lambda: self._has_lock(process.pid) or None, "a rank does not wait")

    def _has_lock(self, pid: int) -> bool:
        for descriptor in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            try:
                if os.readlink(descriptor).endswith(".so.lock"):
                    return True
            except FileNotFoundError:
                pass  # Closed meanwhile.
        return False


@unittest.skipUnless(HAS_TENSORFLOW, WHY_NOT)
class FirstImportTest(unittest.TestCase):
    def setUp(self) -> None:
        self.place = Place(self)

    def pool(self, size: int) -> Pool:
        made = Pool(size, __file__, init=False)
        self.addCleanup(made.close)
        return made

    def lines(self, pool: Pool) -> List[str]:
        """The lines of all ranks about the operations."""
        said = "".join(pool.stderr(rank) for rank in range(pool.size))
        return [line for line in said.splitlines() if "operations" in line]

    def check_made(self, pool: Pool, *words: str) -> None:
        """The operations of the next import were made, once, with one line."""
        (line,) = self.lines(pool)
        for word in ("covey: covey.tensorflow compiles", "once", "about 15 s", *words):
            self.assertIn(word, line)
        self.assertEqual(self.place.calls(), 1)

    def test_of_all_ranks_one_compiles_and_the_others_wait(self) -> None:
        pool = self.pool(SIZE)
        pool.send(imported, str(self.place.folder), self.place.env)
        self.place.wait_for(pool)
        self.place.give(real)
        self.assertEqual(pool.collect(LIMIT_S), ["loaded"] * SIZE)
        self.check_made(pool, str(self.place.package), "for TensorFlow 2")
        self.assertEqual(self.place.operations(), [os.path.basename(real)])

    def test_operations_for_another_version_and_from_other_sources(self) -> None:
        folder = self.place.package
        other = "libcovey_tensorflow_1.2.3_00000000.so"
        (folder / other).write_text("", encoding="ascii")
        shutil.copyfile(real, folder / os.path.basename(real))
        source = folder / "plugins" / "frameworks" / "tensorflow" / "place.cc"
        source.write_text(source.read_text("utf-8") + "// More.\n", encoding="utf-8")
        pool = self.pool(1)
        pool.send(imported, str(self.place.folder), self.place.env)
        self.place.give(real)
        self.assertEqual(pool.collect(LIMIT_S), ["loaded"])
        self.check_made(pool, "(there is one for 1.2.3, 2.")
        self.assertEqual(len(set(self.place.operations()) - {other, os.path.basename(real)}), 1)

    def test_a_killed_rank_leaves_nothing_and_another_one_compiles(self) -> None:
        pool = self.pool(SIZE)
        pool.send(imported, str(self.place.folder), self.place.env)
        self.place.wait_for(pool)
        self.place.give("be killed")
        self.place.give(real, 2)
        ends = pool.collect(LIMIT_S, may_end=True)
        self.assertEqual((ends.count("loaded"), ends.count(None)), (SIZE - 1, 1))
        self.assertEqual((self.place.calls(), len(self.lines(pool))), (2, 2))
        self.assertEqual(self.place.operations(), [os.path.basename(real)])

    def test_a_compiler_that_refuses_is_asked_once_and_by_the_next_import(self) -> None:
        pool = self.pool(SIZE)
        pool.send(imported, str(self.place.folder), self.place.env)
        self.place.wait_for(pool)
        self.place.give("refuse")
        for text in pool.collect(LIMIT_S):
            for word in ("needs its operations", "a.cc:1:2: error: no such thing: run `covey"):
                self.assertIn(word, text)
            self.assertNotIn("\n", text)
        self.assertEqual((self.place.calls(), self.place.operations()), (1, []))
        pool.send(imported, str(self.place.folder), self.place.env)
        self.place.give(real, 2)
        self.assertEqual(pool.collect(LIMIT_S), ["loaded"] * SIZE)
        self.assertEqual(self.place.calls(), 2)

    def test_without_a_compiler(self) -> None:
        other = self.place.package / "libcovey_tensorflow_1.2.3.so"
        other.write_text("", encoding="ascii")
        env = {**self.place.env, "PATH": "/nowhere"}
        (text,) = self.pool(1).call(imported, str(self.place.folder), env)
        for word in ("there is one for 1.2.3", "no g++ in PATH", "apt-get install g++",
                     str(self.place.package), "covey build tensorflow", "tools/setup"):
            self.assertIn(word, text)

    def test_a_package_that_cannot_be_written(self) -> None:
        pool = self.pool(1)
        nowhere = {**self.place.env, "XDG_DATA_HOME": "/proc/nowhere"}
        (text,) = pool.call(imported, str(self.place.folder), nowhere, True)
        wanted = "neither /proc/nowhere nor /proc/nowhere/covey/plugins can be written"
        self.assertIn(wanted, text)
        pool.send(imported, str(self.place.folder), self.place.env, True)
        self.place.give(real)
        self.assertEqual(pool.collect(LIMIT_S), ["loaded"])
        self.check_made(pool, "home/covey/plugins")
        self.assertEqual(self.place.operations("home/covey/plugins"), [os.path.basename(real)])
        again = self.pool(1).call(
            imported, str(self.place.folder), self.place.env, timeout=LIMIT_S
        )
        self.assertEqual((again, self.place.calls()), (["loaded"], 1))

    def test_operations_that_do_not_load(self) -> None:
        name = os.path.basename(real)
        (self.place.package / name).write_text("no object", encoding="ascii")
        (text,) = self.pool(1).call(imported, str(self.place.folder), self.place.env)
        for word in (name, "cannot be loaded", "covey build tensorflow"):
            self.assertIn(word, text)

    @unittest.skipUnless(also(1), "it compiles for 10 s, as `covey build` has: tools/test --slow")
    def test_with_the_compiler_of_this_machine(self) -> None:
        pool = self.pool(1)
        env = {**self.place.env, "PATH": os.environ["PATH"]}
        self.assertEqual(pool.call(imported, str(self.place.folder), env), ["loaded"])
        self.assertEqual(self.place.operations(), [os.path.basename(real)])


class BuildTest(unittest.TestCase):
    def setUp(self) -> None:
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.folder = made.name

    @unittest.skipUnless(HAS_TENSORFLOW, WHY_NOT)
    def test_it_says_what_it_does(self) -> None:
        place = Place(self)
        compiler = str(place.bin / "g++")
        os.unlink(place.bin / "task.1")
        (place.bin / "task.1").write_text(real, encoding="ascii")  # Read at any time.
        done = build(self.folder, more=["--cxx", compiler])
        self.assertEqual(done.returncode, 0, done.stderr)
        path = os.path.join(self.folder, os.path.basename(real))
        self.assertIn(f"{compiler} makes {path}\n", done.stdout)
        self.assertRegex(done.stdout, r"done, and it loads \(\d+\.\d s\)\n")
        self.assertIn(f"export COVEY_PLUGIN_PATH={self.folder}\n", done.stdout)

    def test_without_tensorflow(self) -> None:
        pathlib.Path(self.folder, "tensorflow.py").write_text(NO_TENSORFLOW, encoding="ascii")
        path = os.pathsep.join([self.folder, *(path for path in sys.path if path)])
        done = subprocess.run(
            [sys.executable, "-c", "import covey.tensorflow"],
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        text = done.stderr.strip().rpartition("\n")[2]
        for word in ("not installed", "pip install tensorflow-cpu", "tools/setup"):
            self.assertIn(word, text)

    def test_build_without_tensorflow_or_compiler(self) -> None:
        pathlib.Path(self.folder, "tensorflow.py").write_text(NO_TENSORFLOW, encoding="ascii")
        for arguments, word in (
            ([], "pip install tensorflow-cpu"),
            (["--cxx", "/nowhere/c++"], "there is no program /nowhere/c++"),
        ):
            done = build(self.folder, self.folder, arguments)
            self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)
            self.assertIn(word, done.stderr)


if __name__ == "__main__":
    unittest.main()
