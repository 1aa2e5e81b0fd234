"""finish() of ranks that do not all come at once: nobody waits in it for longer than max_wait, who
is missing is named, and called again it ends with equal replicas.

Method: files say who may go on; rank 1 gives up before rank 2 comes, and rank 0 begins after that.
"""

from __future__ import annotations

import pathlib
import time
import unittest
from typing import List, Tuple

from even_net import make, step
from ranks import SEED
from watched import Watched
from whole_numbers import digest

import covey
import covey.torch as hvd

METHODS = (
    "eager:admit=solo,max_wait=300ms",
    "allreduce:max_wait=300ms",
    "local:H=2,max_wait=300ms",
    "wagma:S=2,tau=4,max_wait=300ms",
)


def setUpModule() -> None:
    print(f"seed {SEED}")


def finish(folder: str, method: str) -> Tuple[List[str], str]:
    """What finish() said while others were missing, and the digest of the parameters."""
    net, optimizer = make(method)
    for _ in range(4):
        step(net, optimizer, 1.0 + hvd.rank())
    said: List[str] = []

    def mark(what: str) -> None:
        (pathlib.Path(folder) / what).touch()

    def wait_for(what: str) -> None:
        while not (pathlib.Path(folder) / what).exists():
            time.sleep(0.001)  # A poll, as the others' is.

    def try_to_end() -> bool:
        try:
            optimizer.finish()
            return True
        except covey.Timeout as missing:
            said.append(str(missing))
            return False

    if hvd.rank() == 1:
        assert not try_to_end()  # Rank 2 comes only when rank 1 has given up.
        mark("1 has given up")
        wait_for("0 has given up")
    else:
        wait_for("1 has given up")
        if hvd.rank() == 0:
            assert not try_to_end()  # Rank 1 is elsewhere.
            mark("0 has given up")
    while not try_to_end():
        pass
    return said, digest([net.wide, net.small])


class FinishTest(unittest.TestCase):
    def test_nobody_waits_for_one_that_has_given_up(self) -> None:
        for method in METHODS:
            with self.subTest(method), Watched(3, __file__, finish, method) as job:
                results = job.pool.collect()
                self.assertRegex(results[1][0][0], r"rank (0, )?2")
                self.assertIn("rank 1", results[0][0][0])
                self.assertEqual(len({replica for _, replica in results}), 1, results)


if __name__ == "__main__":
    unittest.main()
