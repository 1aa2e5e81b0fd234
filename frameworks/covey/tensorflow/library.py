"""Loads the shared object with Covey's operations for TensorFlow; where there is none for this
version, compiles it first. Internal."""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import Any, Iterator

import tensorflow as tf

from covey import _native  # noqa: F401  # Brings libcovey.so, which the operations need.
from covey import notice, operations_file

_HOW = "run `covey build tensorflow` (in a clone of the sources: tools/setup --with tensorflow)"


def load() -> Any:
    """The operations for the TensorFlow that is here, as functions of a module.

    Raises:
        ImportError: there are none for this version and they cannot be compiled, or they do not
            load; says why and what to do.
    """
    path = operations_file.find(tf.version.VERSION) or _made()
    try:
        return tf.load_op_library(path)
    except (tf.errors.OpError, RuntimeError) as error:
        why = str(getattr(error, "message", error))
        raise ImportError(f"{path} cannot be loaded ({why}): {_HOW}") from error


def _made() -> str:
    """The path of the operations, compiled now. Raises ImportError."""
    from covey.launch.spec import LaunchError  # Seldom needed, as what compiles is.

    version = tf.version.VERSION
    others = operations_file.others()
    there = f" (there is one for {', '.join(others)})" if others else ""
    try:
        return _made_once(version, there)
    except LaunchError as error:
        raise ImportError(
            f"covey.tensorflow needs its operations compiled for TensorFlow {version}, but "
            f"{operations_file.file_name(version)} is in none of "
            f"{', '.join(operations_file.folders())}{there}, and cannot be made now: {error}: "
            f"{_HOW}"
        ) from error


def _made_once(version: str, there: str) -> str:
    """By this process, or by another one meanwhile: the first of a host compiles, the others wait.

    Raises LaunchError, with the reason that the one which compiled had.
    """
    from covey.cli import build_part, build_tensorflow
    from covey.launch.spec import LaunchError

    compiler = build_tensorflow.compiler_of()
    folder = build_part.writable_folder("")
    path = os.path.join(folder, operations_file.file_name(version))
    with _alone(path + ".lock") as verdict:
        if os.path.exists(path):
            return path
        failed = os.pread(verdict, 1 << 16, 0).decode("utf-8", "replace")
        if failed:
            raise LaunchError(failed)
        notice.tell(
            f"covey.tensorflow compiles its operations for TensorFlow {version}{there} into "
            f"{folder}, once: about 15 s"
        )
        flags = tf.sysconfig.get_compile_flags(), tf.sysconfig.get_link_flags()
        installed = build_tensorflow.Installed(version, *flags)
        try:
            build_part.compile_part(build_tensorflow.part_for(installed, compiler), path)
        except LaunchError as error:
            os.pwrite(verdict, _short(error).encode("utf-8", "replace"), 0)
            raise LaunchError(_short(error)) from error
        finally:
            with contextlib.suppress(FileNotFoundError):  # Two compile where there are no locks.
                os.unlink(path + ".lock")  # Those that have it open wait for it; others begin anew.
    return path


def _short(error: Any) -> str:
    """The reason in one line: the first error of the compiler, if that has refused the sources."""
    said = getattr(error, "output", "").splitlines()
    first = next((line for line in said if "error" in line), None)
    return str(error) if first is None else f"the compiler says: {first.strip()}"


@contextlib.contextmanager
def _alone(path: str) -> Iterator[int]:
    """One process of the host at a time is within. Gives the descriptor of the file `path`, which
    is the same file for all that wait for each other.

    The system lets go of the lock of a process that dies. A file system without locks has none.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file
    finally:
        os.close(file)
