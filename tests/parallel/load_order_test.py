"""Goal: the control plane's gRPC lives in one process with torch and with other copies of gRPC and
protobuf, whichever comes first.
Method: a process per order loads all, becomes a job of one node over the network, and uses the
others afterwards. What is not installed is left out; torch always is."""

from __future__ import annotations

import importlib.util
import itertools
import os
import subprocess
import sys
import tempfile
import unittest

from harness import PLUGIN, PLUGIN_FOLDER, SECRET, WHY_NO_PLUGIN, environment

# torch's compiler is left out: it is Python, and loads no library.
WHOLE = os.environ.get("TEST_SLOW", "0")
# Each: import it, and use it.
PARTS = {
    "torch": "import torch; assert torch.ones(3).sum() == 3",
    "tensorflow": "import tensorflow as tf; assert int(tf.reduce_sum(tf.ones(3))) == 3",
    "grpc": "import grpc; grpc.insecure_channel('127.0.0.1:1').close()",
    "google.protobuf": "from google.protobuf import struct_pb2 as s; s.Struct()['a'] = 1",
}
CONTROL = """
import covey
from covey.launch.rendezvous_handler import RendezvousHandler
from covey.launch.spec import Rendezvous
import select, sys
handler = RendezvousHandler(Rendezvous("127.0.0.1:0", sys.argv[1], serve=True, nodes=1), slots=3)
part = None
while part is None:
    assert select.select([handler], [], [], 60)[0], handler.waiting_for
    part = handler.advance()
assert [place.rank for place in part.places] == [0, 1, 2]
handler.report("left")
while not handler.has_ended():
    assert select.select([handler], [], [], 60)[0]
handler.close()
"""


def installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


@unittest.skipUnless(PLUGIN, WHY_NO_PLUGIN)
class LoadOrderTest(unittest.TestCase):
    def check(self, *parts: str) -> None:
        code = "\n".join([*parts, *parts, "print('fine')"])
        with tempfile.TemporaryDirectory() as folder:
            secret = os.path.join(folder, "secret")
            with open(os.open(secret, os.O_CREAT | os.O_WRONLY, 0o600), "wb") as file:
                file.write(SECRET.encode())
            done = subprocess.run(
                [sys.executable, "-c", code, secret],
                env=environment(
                    COVEY_PLUGIN_PATH=PLUGIN_FOLDER, OMP_NUM_THREADS="1", TEST_WHOLE_TORCH=WHOLE
                ),
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
        self.assertEqual((done.returncode, done.stdout), (0, "fine\n"), done.stderr)

    def test_in_either_order(self) -> None:
        names = [name for name in PARTS if installed(name)]
        print("beside", names)
        for name in names:
            for order in itertools.permutations([CONTROL, PARTS[name]]):
                with self.subTest(name=name, control_first=order[0] == CONTROL):
                    self.check(*order)
        self.check(CONTROL, *(PARTS[name] for name in names))


if __name__ == "__main__":
    unittest.main()
