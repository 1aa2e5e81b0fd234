"""The shortcut of allreduce: which calls it takes, that they give what the long way gives, and that
it leaves everything else alone. One rank: every result is its input.
"""

from __future__ import annotations

import threading
import unittest
import weakref
from typing import Any

import numpy
import torch
from ranks import SEED

import covey
import covey.torch as hvd
from covey.call_variants import LATER, LATER_IN_PLACE, NOW, NOW_IN_PLACE
from covey.torch.tensors import collectives


def setUpModule() -> None:
    print(f"seed {SEED}")
    covey.init()


def tearDownModule() -> None:
    covey.shutdown()


VARIANTS = (NOW, NOW_IN_PLACE, LATER, LATER_IN_PLACE)


def short(variant: Any, *args: Any, **kwargs: Any) -> Any:
    return collectives.shortcut("allreduce", variant, variant.waits)(args, kwargs)


class ShortcutTest(unittest.TestCase):
    def test_takes_the_usual_calls(self) -> None:
        group = covey.Group([0])
        for variant in VARIANTS:
            for dtype in (torch.float32, torch.bfloat16, torch.int64):
                for shape in ((), (0,), (5,), (2, 3, 4)):
                    given = torch.randint(0, 9, shape).to(dtype)
                    kept = given.clone()
                    for options in ({}, {"name": "a"}, {"op": hvd.Max, "process_set": group}):
                        result = short(variant, given, **options)
                        if not variant.waits:
                            self.assertIsInstance(result, covey.Handle)
                            result = result.wait()
                        self.assertEqual(result is given, variant.in_place)
                        self.assertEqual(result.dtype, dtype)
                        self.assertEqual(result.shape, kept.shape)
                        self.assertTrue(torch.equal(result, kept))

    def test_takes_lists_of_one_dtype(self) -> None:
        for variant in (NOW, NOW_IN_PLACE):
            call = collectives.shortcut("grouped_allreduce", variant, True)
            for dtype in (torch.float32, torch.int64):
                given = [torch.randint(0, 9, shape).to(dtype) for shape in ((2, 3), (), (0,), (7,))]
                kept = [tensor.clone() for tensor in given]
                for listed in (given, tuple(given)):
                    result = call((listed,), {"name": "g", "op": hvd.Sum})
                    self.assertIs(type(result), list)
                    for one, before, after in zip(given, kept, result):
                        self.assertEqual(one is after, variant.in_place)
                        self.assertTrue(torch.equal(before, after))
            mixed = [torch.ones(1), torch.ones(1, dtype=torch.float64)]
            as_wide = [torch.ones(1), torch.ones(1, dtype=torch.int32)]
            strided = [torch.ones(2, 2).t(), 1]
            for unusual in (mixed, as_wide, [], strided, iter(mixed), torch.ones(3)):
                self.assertIsNone(call((unusual,), {}))
        self.assertEqual(hvd.grouped_allreduce(mixed)[1].dtype, torch.float64)
        self.assertEqual(hvd.grouped_allreduce([]), [])

    def test_reads_alike_by_table_and_by_attributes(self) -> None:
        class Asked(torch.Tensor):
            pass

        plain = torch.arange(24, dtype=torch.int32).reshape(2, 3, 4)
        for given in (plain, plain[1:], plain[:, :1, :1], plain[:, 1], plain[..., 0], plain[:0]):
            results = [
                short(NOW, tensor, op=hvd.Sum)
                for tensor in (given, given.as_subclass(Asked), torch.nn.Parameter(given, False))
            ]
            for result in results:
                self.assertEqual(result is None, not given.is_contiguous(), given.stride())
                self.assertTrue(result is None or torch.equal(torch.Tensor(result), given.float()))

    def test_two_threads_may_wait_for_one_handle(self) -> None:
        for _ in range(100):
            handle = hvd.allreduce_async(torch.ones(2000), name="shared")
            results: list[Any] = []
            threads = [
                threading.Thread(target=lambda: results.append(handle.wait())) for _ in range(2)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(len(results), 2)
            self.assertIs(results[0], results[1])
            self.assertTrue(handle.poll())

    def test_two_threads_may_wait_for_one_gather(self) -> None:
        """Its result is made by the first, however long that takes: the other one gets the same."""
        for begin in (hvd.allgather_async, hvd.alltoall_async):
            handle = begin(torch.arange(6.0), name="shared")
            make, made = handle._finish, []
            both, began = threading.Barrier(2), threading.Event()

            def slowly(ended: Any) -> Any:
                made.append(ended)
                began.set()
                if len(made) == 1:
                    both.wait()  # The other thread is about to wait, or waits.
                return make(ended)

            handle._finish = slowly
            results: list[Any] = []
            first = threading.Thread(target=lambda: results.append(handle.wait()))
            first.start()
            began.wait()
            second = threading.Thread(target=lambda: (both.wait(), results.append(handle.wait())))
            second.start()
            first.join()
            second.join()
            self.assertEqual((len(results), len(made)), (2, 1))
            self.assertIs(results[0], results[1])

    def test_a_result_that_could_not_be_made_is_made_by_the_next_wait(self) -> None:
        handle = hvd.allgather_async(torch.arange(6.0), name="failed")
        make = handle._finish

        def fail(_: Any) -> Any:
            handle._finish = make
            raise MemoryError("once")

        handle._finish = fail
        with self.assertRaisesRegex(MemoryError, "once"):
            handle.wait()
        self.assertEqual(handle.wait().tolist(), torch.arange(6.0).tolist())

    def test_tensors_that_are_negated_lazily_are_sent_as_what_they_mean(self) -> None:
        z = torch.arange(4.0).to(torch.complex64) * 1j
        wanted = -torch.arange(4.0)
        base = torch.arange(4.0)
        for given in (torch._neg_view(base), z.conj().imag, z.conj().imag[1:2]):
            want = wanted[-len(given) :] if len(given) == 4 else wanted[1:2]
            self.assertTrue(given.is_neg())
            for variant in VARIANTS:
                self.assertIsNone(short(variant, given))
            results = [
                hvd.allreduce(given, op=hvd.Sum),
                hvd.allreduce_async(given, op=hvd.Max).wait(),
                *hvd.grouped_allreduce([given, torch.ones(1)])[:1],
                hvd.broadcast(given, 0),
                hvd.allgather(given),
                hvd.alltoall(given),
                hvd.reducescatter(given, op=hvd.Sum),
                *hvd.grouped_reducescatter([given], op=hvd.Sum),
            ]
            if covey.size() > 1:
                results.append(hvd.neighbor_allreduce(given))
            for result in results:
                self.assertEqual(torch.Tensor(result).tolist(), want.tolist())
        for function in (hvd.allreduce_, hvd.broadcast_, hvd.grouped_allreduce_):
            under = torch.arange(4.0)
            given = torch._neg_view(under)
            if function is hvd.broadcast_:
                function(given, 0)
            elif function is hvd.grouped_allreduce_:
                function([given], prescale_factor=2.0, op=hvd.Sum)
            else:
                function(given, prescale_factor=2.0, op=hvd.Sum)
            factor = 1.0 if function is hvd.broadcast_ else 2.0
            self.assertEqual(given.tolist(), (wanted * factor).tolist())
            self.assertEqual(under.tolist(), (-wanted * factor).tolist())

    def test_leaves_unusual_calls_alone(self) -> None:
        tensor = torch.ones(4, 4)
        before = covey.stats()["operations"]
        for variant in VARIANTS:
            for args, options in (
                ((), {}),
                ((), {"tensor": tensor}),
                ((tensor, None), {}),
                ((tensor,), {"average": True}),
                ((tensor,), {"prescale_factor": 2.0}),
                ((tensor,), {"name": 3}),
                ((tensor,), {"name": "x" * 1000}),
                ((tensor,), {"name": "a\0b"}),
                ((tensor,), {"op": hvd.Adasum}),
                ((tensor,), {"op": "sum"}),
                ((tensor,), {"process_set": "all"}),
                ((tensor.t()[1:, 1:],), {}),
                ((tensor.to_sparse(),), {}),
                ((tensor.to("meta"),), {}),
                ((tensor.to(torch.complex64),), {}),
                ((numpy.ones(3),), {}),
                (([1.0],), {}),
                ((None,), {}),
            ):
                self.assertIsNone(short(variant, *args, **options), f"{variant} {args} {options}")
        self.assertEqual(covey.stats()["operations"], before)

    def test_an_interrupt_is_no_unusual_call(self) -> None:
        class Interrupted(torch.Tensor):
            def is_neg(self) -> bool:
                raise KeyboardInterrupt

        for variant in VARIANTS:
            with self.assertRaises(KeyboardInterrupt):
                short(variant, torch.ones(3).as_subclass(Interrupted))

    def test_errors_are_those_of_the_long_way(self) -> None:
        for wrong, kind, text in (
            ({"op": hvd.Adasum, "codec": "int8"}, covey.Unsupported, "Adasum"),
            ({"op": 17}, covey.InvalidArgument, "17"),
            ({"process_set": covey.Group([0, 3])}, covey.InvalidArgument, "3"),
        ):
            with self.assertRaisesRegex(kind, text):
                hvd.allreduce_async_(torch.ones(2), **wrong)
        with self.assertRaisesRegex(TypeError, "ndarray"):
            hvd.allreduce_async(numpy.ones(2))  # type: ignore[arg-type]
        with self.assertRaisesRegex(TypeError, "nonsense"):
            hvd.allreduce_async(torch.ones(2), nonsense=1)  # type: ignore[call-arg]

    def test_a_default_device_elsewhere_changes_nothing(self) -> None:
        with torch.device("meta"):
            result = hvd.allreduce(torch.ones(3, device="cpu"))
        self.assertEqual(result.tolist(), [1.0, 1.0, 1.0])

    def test_tensors_live_until_the_end_and_no_longer(self) -> None:
        for function in (hvd.allreduce_async, hvd.allreduce_async_):
            tensor = torch.ones(1000)
            watched = weakref.ref(tensor)
            handle = function(tensor, name="life")
            del tensor
            self.assertTrue(torch.equal(handle.wait(), torch.ones(1000)))
            del handle
            self.assertIsNone(watched())

    def test_refuses_wrong_parts(self) -> None:
        from covey import _native

        with self.assertRaisesRegex(ValueError, "parts"):
            _native.shortcut(0, b"allreduce.", False, True, True, True, ("is_cpu",))
        with self.assertRaises(TypeError):
            _native.Shortcut()


if __name__ == "__main__":
    unittest.main()
