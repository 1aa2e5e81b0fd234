"""What tests that feed changed texts to decoders share: a seed that is printed, so many rounds or
seconds, and changes at random. FUZZ_SEED repeats a run, FUZZ_SECONDS makes one as long as one likes
(tools/fuzz)."""

from __future__ import annotations

import os
import random
import time
import unittest
from typing import Callable, Sequence

SEED = int(os.environ.get("FUZZ_SEED") or "20261124")
SECONDS = float(os.environ.get("FUZZ_SECONDS") or "0")
_BITS = (b"", b"\x00", b"\xff\xfe", b"..", b"/", b"-1", b"1e999", b"null", b"[", b'"', b"\\u0000",
         b"99999999999999999999", b"{}", b"\x1b[2J", b"\n", b" ", b"9" * 5000, b"=", b":", b",",
         b"@", b"\xc2\xb2", b"inf", b"nan")


class FuzzTestCase(unittest.TestCase):
    def setUp(self) -> None:
        print(f"FUZZ_SEED={SEED}", flush=True)
        self.random = random.Random(SEED)

    def changed(self, valid: bytes, most: int = 3) -> bytes:
        data = valid
        for _ in range(self.random.randint(1, most)):
            begin = self.random.randrange(len(data) + 1)
            end = min(len(data), begin + self.random.choice((0, 1, 1, 5, 40)))
            data = data[:begin] + self.random.choice(_BITS) + data[end:]
        return data

    def run_on(
        self, valid: Sequence[bytes], one: Callable[[bytes], None], rounds: int = 1000
    ) -> None:
        """Calls ``one`` with texts that are nearly one of ``valid``: so many times, or for
        FUZZ_SECONDS."""
        until, number = time.monotonic() + SECONDS, 0
        while time.monotonic() < until if SECONDS else number < rounds:
            number += 1
            data = self.changed(self.random.choice(valid))
            try:
                one(data)
            except BaseException:
                print(f"fed: {ascii(data[:2000])}", flush=True)
                raise
