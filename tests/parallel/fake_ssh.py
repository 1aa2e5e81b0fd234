"""A program in ssh's place: it runs what it is told on this machine, so that several agents play
hosts, and fails as ssh does by the name of the host."""

from __future__ import annotations

import pathlib
import stat
import sys
from typing import Tuple

# In ssh's place: notes its arguments, and plays the host that is the last but one of them.
_PROGRAM = """#!{python}
import json, os, resource, sys
*options, host, command = sys.argv[1:]
with open({log!r}, "a") as log:
    log.write(json.dumps([host, options]) + "\\n")

def fail(text, code=255):
    sys.stderr.write(text + "\\n")
    sys.exit(code)

if host == "unknown":
    fail("ssh: Could not resolve hostname unknown: Name or service not known")
if host == "locked":
    fail("Welcome to locked!\\r\\nroot@locked: Permission denied (publickey,password).")
if host == "shut":
    fail("ssh: connect to host shut port 22: Connection refused")
if host == "bare":
    fail("env: /x/python: No such file or directory", 127)
if host == "empty":
    fail("/x/python: No module named covey", 1)
if host == "old":
    print('{{"covey": "hello", "protocol": 1, "version": "0.0.9", "build": "x"}}', flush=True)
    sys.stdin.read()
if host == "silent":
    sys.stdin.read()
if host == "noisy":
    print("Last login: yesterday", flush=True)
    os.environ["NOISE"] = "1"
if host == "own":
    os.environ["COVEY_FLAT_BYTES"] = "1KiB"
if host == "narrow":
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
os.execvp("sh", ["sh", "-c", command])
"""


def write(folder: pathlib.Path) -> Tuple[pathlib.Path, pathlib.Path]:
    """The program, and the file in which it notes a line of JSON for each call: [host, options]."""
    program, log = folder / "ssh", folder / "log"
    program.write_text(_PROGRAM.format(python=sys.executable, log=str(log)), encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program, log
