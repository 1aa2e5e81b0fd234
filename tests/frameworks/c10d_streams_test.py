"""torch.distributed over Covey with tensors on CUDA: a result is there for the stream that waits.

Method: the late CUDA (late_cuda.py), where what no stream or event orders happens too late.
"""

from __future__ import annotations

import unittest
from unittest import mock

import late_cuda  # noqa: F401  Before covey.torch.
from c10d_streams import on_streams
from ranks import SharedPool

pools = SharedPool(__file__)


def tearDownModule() -> None:
    pools.close()


def unordered() -> int:
    """How many calls come to wrong numbers where a wait orders no streams."""
    from covey.torch.c10d.call_stream import CallStream

    with mock.patch.object(CallStream, "join", lambda _: None):
        return len(on_streams())


class StreamsTest(unittest.TestCase):
    def test_a_result_is_there_for_the_stream_that_waits(self) -> None:
        self.assertEqual(pools(2).call(on_streams), [[]] * 2)

    def test_without_an_order_numbers_are_wrong(self) -> None:
        for count in pools(2).call(unordered):
            self.assertGreater(count, 0)


if __name__ == "__main__":
    unittest.main()
