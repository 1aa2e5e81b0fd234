"""A job of one rank, without launcher: the surface, its errors, and the life of memory."""

from __future__ import annotations

import gc
import json
import inspect
import subprocess
import sys
import unittest
import weakref
from typing import Any

import numpy
import torch
from ranks import SEED

import covey
import covey.numpy
import covey.torch as hvd
from covey import _native

ARENA_BYTES = 64 << 20


def setUpModule() -> None:
    print(f"seed {SEED}")
    covey.init(settings={"arena_bytes": ARENA_BYTES})


def tearDownModule() -> None:
    covey.shutdown()


class SingleTest(unittest.TestCase):
    def test_place(self) -> None:
        self.assertEqual((hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size()), (0, 1, 0, 1))
        self.assertEqual((hvd.cross_rank(), hvd.cross_size()), (0, 1))
        self.assertIsInstance(covey.stats()["operations"], int)
        self.assertIn("start_timeout", [knob["name"] for knob in covey.knobs()])

    def test_importing_covey_imports_no_framework(self) -> None:
        code = (
            "import covey, sys; assert not {'torch', 'numpy'} & set(sys.modules);"
            "covey.init(); covey.barrier(); covey.broadcast_object(3);"
            "assert not {'torch', 'numpy'} & set(sys.modules)"
        )
        subprocess.run([sys.executable, "-c", code], check=True, timeout=60)

    def test_all_names_exist_and_are_documented(self) -> None:
        for module in (covey, hvd, covey.numpy):
            for name in module.__all__:
                thing = getattr(module, name)
                if inspect.isroutine(thing) or inspect.isclass(thing):
                    self.assertTrue(thing.__doc__, f"{module.__name__}.{name}")

    def test_sums_that_repeat_go_the_shorter_way(self) -> None:
        for name in ("loss", None):
            before = covey.stats()["repeats"]
            for step in range(100):
                self.assertEqual(hvd.allreduce(torch.tensor(float(step)), name=name).item(), step)
            self.assertGreater(covey.stats()["repeats"] - before, 10)

    def test_operations_give_the_tensor(self) -> None:
        for tensor in (torch.arange(6.0).view(2, 3), numpy.arange(6.0).reshape(2, 3)):
            kind = type(tensor)
            for result in (
                covey.allreduce(tensor),
                covey.allreduce(tensor, "x", covey.Product),
                covey.synchronize(covey.allreduce_async(tensor)),
                covey.grouped_allreduce([tensor])[0],
                covey.synchronize(covey.grouped_allreduce_async([tensor]))[0],
                covey.broadcast(tensor, 0),
                covey.synchronize(covey.broadcast_async(tensor, 0)),
                covey.allgather(tensor),
                covey.synchronize(covey.allgather_async(tensor)),
                covey.grouped_allgather([tensor])[0],
                covey.synchronize(covey.grouped_allgather_async([tensor]))[0],
            ):
                self.assertIs(type(result), kind)
                self.assertTrue((result == tensor).all())
                self.assertIsNot(result, tensor)
            for result in (
                covey.allreduce_(tensor),
                covey.synchronize(covey.allreduce_async_(tensor)),
                covey.grouped_allreduce_([tensor])[0],
                covey.synchronize(covey.grouped_allreduce_async_([tensor]))[0],
                covey.broadcast_(tensor, 0),
                covey.synchronize(covey.broadcast_async_(tensor, 0)),
            ):
                self.assertIs(result, tensor)
        scaled = covey.allreduce(torch.ones(2), prescale_factor=3.0, postscale_factor=0.5)
        self.assertEqual(scaled.tolist(), [1.5, 1.5])

    def test_one_rank_in_place(self) -> None:
        for dtype in (torch.float32, torch.float16, torch.int64, torch.uint8):
            wanted = (torch.arange(500_000) % 7).to(dtype)
            tensor = wanted.clone()
            covey.broadcast_(tensor, 0)
            covey.allreduce_(tensor, op=covey.Max)
            covey.allreduce_(tensor, op=covey.Sum)
            self.assertTrue(torch.equal(tensor, wanted), dtype)
            self.assertTrue(torch.equal(covey.allgather(tensor), wanted), dtype)
        tensor = torch.full((500_000,), 3.0)
        covey.allreduce_(tensor, prescale_factor=0.5)
        self.assertTrue(torch.equal(tensor, torch.full_like(tensor, 1.5)))
        covey.allreduce_(tensor, op=covey.Sum, postscale_factor=4.0)
        self.assertTrue(torch.equal(tensor, torch.full_like(tensor, 6.0)))

    def test_numpy_strides_scalars_and_empty(self) -> None:
        array = numpy.arange(24, dtype=numpy.float32).reshape(4, 6)
        view = array[::2, 1::2]
        self.assertIs(covey.allreduce_(view, op=covey.Sum, prescale_factor=2.0), view)
        self.assertEqual(array[0, 1], 2.0)
        self.assertEqual(array[1, 1], 7.0)
        self.assertEqual(covey.allreduce(numpy.float64(3.5)).shape, ())
        self.assertEqual(covey.allgather(numpy.empty((0, 3))).shape, (0, 3))
        big = covey.allgather(numpy.ones(1_000_000))
        big += 1
        frozen = numpy.ones(3)
        frozen.flags.writeable = False
        with self.assertRaises(ValueError):
            covey.allreduce_(frozen)
        with self.assertRaises(ValueError):
            covey.allreduce(numpy.ones(3, dtype=">f4"))
        with self.assertRaises(ValueError):
            covey.allreduce(numpy.array(["text"]))

    def test_refused_tensors(self) -> None:
        for tensor, word in (
            (torch.ones(2, dtype=torch.complex128), "complex128"),
            (torch.ones(2, dtype=torch.complex64), "complex64"),
            (torch.ones(2, device="meta"), "meta"),
            (torch.ones(2, 2).to_sparse(), "to_dense"),
        ):
            for call in (hvd.allreduce, hvd.allreduce_, hvd.allgather, covey.allreduce_async):
                with self.assertRaisesRegex(covey.Unsupported, word):
                    call(tensor)
        with self.assertRaisesRegex(ValueError, "bool"):
            hvd.allreduce(torch.ones(2, dtype=torch.bool))
        with self.assertRaisesRegex(ValueError, "scalar"):
            hvd.allgather(torch.tensor(1.0))
        for wrong in ([1.0], 3, None, "text"):
            with self.assertRaises(TypeError):
                hvd.allreduce(wrong)  # type: ignore[arg-type]
            with self.assertRaises(TypeError):
                covey.allreduce(wrong)
        with self.assertRaises(TypeError):
            covey.grouped_allreduce([torch.ones(1), numpy.ones(1)])

    def test_grouped_operations_take_whatever_can_be_gone_through(self) -> None:
        for make, module in ((torch.ones, hvd), (numpy.ones, covey.numpy)):
            for kind in ("allreduce", "allgather", "reducescatter", "allreduce_"):
                for name in ("x", None):
                    for functions in (module, covey):
                        with self.subTest(kind=kind, name=name, module=functions.__name__):
                            call = getattr(functions, f"grouped_{kind}")
                            found = call((make(rows) for rows in (1, 2)), name=name)
                            self.assertEqual([len(it) for it in found], [1, 2])
        weights = {"a": torch.ones(1, requires_grad=True), "b": torch.ones(2, requires_grad=True)}
        for call in (hvd.grouped_allreduce, hvd.grouped_allgather, hvd.grouped_reducescatter):
            self.assertEqual([it.requires_grad for it in call(weights.values())], [True, True])

    def test_refused_options(self) -> None:
        ones = torch.ones(2)
        for call in (
            lambda: hvd.allreduce(ones, op=hvd.Adasum, codec="int8"),
            lambda: hvd.allreduce_(ones.int(), op=hvd.Adasum),
            lambda: hvd.allreduce(ones, op=17),
            lambda: hvd.allreduce_(ones, op=-1),
            lambda: hvd.allreduce(ones, average=True, op=hvd.Sum),
            lambda: hvd.allreduce(ones, prescale_factor=0.0),
            lambda: hvd.allreduce_(ones, postscale_factor=0.0),
            lambda: hvd.allreduce(ones, prescale_factor=float("nan")),
            lambda: hvd.broadcast(ones, 1),
            lambda: hvd.broadcast_object(1, 1),
            lambda: hvd.allreduce(ones, name="x" * 5000),
            lambda: covey.arena_empty((2, -1), torch.float32),
            lambda: covey.arena_empty(3, torch.complex64),
            lambda: hvd.allreduce(torch.ones([1] * 17)),
            lambda: covey.start_timeline("/no/such/folder/file.json"),
            lambda: hvd.allreduce(ones, compression="fp16"),
            lambda: hvd.grouped_allreduce([ones], compression=hvd.Compression),
            lambda: hvd.reducescatter(ones, compression="fp16"),
            lambda: hvd.grouped_reducescatter([ones], compression=None),
            lambda: hvd.synchronize(5),
            lambda: hvd.poll(5),
            lambda: covey.synchronize(ones),
        ):
            with self.assertRaises(ValueError):
                call()
        self.assertEqual(hvd.allreduce(ones, average=False).tolist(), [1.0, 1.0])
        for scale in ("2", None, [1.0], float("inf")):
            with self.assertRaisesRegex(ValueError, "prescale_factor must be a finite number"):
                hvd.allreduce(ones, prescale_factor=scale)
            with self.assertRaisesRegex(ValueError, "postscale_factor must be a finite number"):
                hvd.reducescatter(ones, postscale_factor=scale)
            with self.assertRaisesRegex(ValueError, "predivide_factor must be a finite number"):
                hvd.DistributedOptimizer(
                    torch.optim.SGD([torch.nn.Parameter(ones)]), gradient_predivide_factor=scale
                )
        halved = hvd.allreduce(ones, postscale_factor=torch.tensor(0.5))
        self.assertEqual(halved.tolist(), [0.5, 0.5])
        self.assertFalse(hasattr(hvd, "nonsense"))
        for module in (hvd, covey, covey.numpy):
            with self.assertRaisesRegex(AttributeError, r"did you mean allreduce\?"):
                module.alreduce  # pylint: disable=pointless-statement
        self.assertIsNone(hvd.synchronize(None))
        self.assertEqual(hvd.join(), 0)

    def test_refused_optimizers(self) -> None:
        net = torch.nn.Linear(2, 2)
        named = list(net.named_parameters())
        make = lambda: torch.optim.SGD(net.parameters(), lr=0.1)  # noqa: E731
        for options, word in (
            ({"named_parameters": named + named}, "duplicates"),
            ({"named_parameters": named[:1]}, "not named"),
            ({"named_parameters": net.parameters()}, "tuples"),
            ({"method": "gossip"}, "there is no method \"gossip\"; there are: adpsgd, "
             "allreduce, diloco, dpsgd, eager"),
            ({"method": "local:H=0"}, "not a number of steps from 1"),
            ({"method": "local", "local_step": 4}, "nearest is \"local_steps\""),
            ({"local_steps": 4}, "need method="),
            ({"op": hvd.Sum, "gradient_predivide_factor": 2.0}, "predivide"),
            ({"gradient_predivide_factor": 0.0}, "predivide"),
            ({"backward_passes_per_step": 0}, "backward_passes"),
            ({"bucket_bytes": 0}, "bucket_bytes"),
            ({"compression": "fp16"}, r"compression must be .*\.fp16, .*, not 'fp16'"),
            ({"compression": hvd.Compression}, "compression must be"),
        ):
            with self.assertRaisesRegex(ValueError, word):
                hvd.DistributedOptimizer(make(), **options)
        odd = torch.nn.Sequential(net, torch.nn.Linear(2, 2, dtype=torch.complex64))
        sgd = torch.optim.SGD(odd.parameters(), lr=0.1)
        with self.assertRaisesRegex(ValueError, "^1.weight: gradients of torch.complex64 cannot"):
            hvd.DistributedOptimizer(sgd, odd.named_parameters())
        for wrong, word in ((net, "a Linear"), (torch.optim.SGD, "class SGD"), (None, "NoneType")):
            with self.assertRaisesRegex(ValueError, f"must be a torch optimizer.*{word}"):
                hvd.DistributedOptimizer(wrong)
        parts = {"then": "local@10:H=2", "admit": "solo"}  # In this order, too.
        text = hvd.DistributedOptimizer(make(), method="eager", **parts)._covey_progress.method
        self.assertRegex(text, "^eager:admit=solo,.*,then=local@10:local_steps=2$")
        wrapped = hvd.DistributedOptimizer(make(), named)
        with self.assertRaisesRegex(ValueError, "already"):
            hvd.DistributedOptimizer(wrapped, named)

    def test_wrapped_optimizer_is_its_class(self) -> None:
        net = torch.nn.Linear(2, 2)
        plain = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        early = torch.optim.lr_scheduler.StepLR(plain, 1, gamma=0.5)
        wrapped = hvd.DistributedOptimizer(plain, net.named_parameters())
        self.assertIsInstance(wrapped, torch.optim.SGD)
        self.assertEqual(type(wrapped).__name__, "SGD")
        self.assertEqual(wrapped.state_dict(), plain.state_dict())
        late = torch.optim.lr_scheduler.StepLR(wrapped, 1, gamma=0.5)
        steps = []
        wrapped.register_step_post_hook(lambda *_: steps.append(1))
        for _ in range(2):
            wrapped.zero_grad()
            net(torch.ones(1, 2)).sum().backward()
            wrapped.step()
            early.step()
            late.step()
        self.assertEqual(steps, [1, 1])
        self.assertAlmostEqual(wrapped.param_groups[0]["lr"], 0.1 * 0.5**4)
        wrapped.load_state_dict(wrapped.state_dict())
        wrapped.step()
        self.assertEqual(steps, [1, 1, 1])
        with wrapped.no_sync(), wrapped.skip_synchronize():
            wrapped.step(lambda: net(torch.ones(1, 2)).sum())

    def test_capabilities(self) -> None:
        for name in ("mpi", "gloo", "ccl", "ddl", "rocm", "nccl"):
            self.assertFalse(getattr(hvd, f"{name}_built")())
        self.assertTrue(hvd.cuda_built())


class MemoryTest(unittest.TestCase):
    def test_arena_memory_lives_as_long_as_its_tensors(self) -> None:
        for make in (
            lambda: covey.arena_empty((4, 5), torch.float64),
            lambda: covey.arena_empty((4, 5), "float64"),
        ):
            tensor: Any = make()
            self.assertEqual(tuple(tensor.shape), (4, 5))
            self.assertTrue((tensor == 0).all())
            row = tensor[1]
            del tensor
            gc.collect()
            others = [make() for _ in range(10)]
            row += 7
            self.assertTrue(all((other == 0).all() for other in others))
            self.assertTrue((row == 7).all())
        self.assertEqual(covey.arena_empty(0, torch.int8).numel(), 0)
        self.assertEqual(covey.arena_empty((), torch.int8).shape, ())

    def test_gathered_memory_lives_as_long_as_its_tensors(self) -> None:
        before = _native.memories_alive()
        for make in (torch.ones, numpy.ones):
            handle = covey.allgather_async(make((300, 7)), name="gathered")
            tensor: Any = handle.wait()
            self.assertIs(handle.wait(), tensor)
            self.assertEqual(_native.memories_alive(), before + 1)
            row = tensor[3]
            del handle, tensor
            gc.collect()
            self.assertEqual(_native.memories_alive(), before + 1)
            others = [covey.allgather(make((300, 7)) * 3, name="gathered") for _ in range(10)]
            row += 1
            self.assertTrue((row == 2).all() and all((other == 3).all() for other in others))
            del row, others
            gc.collect()
            self.assertEqual(_native.memories_alive(), before)

    def test_gathered_memory_outlives_shutdown(self) -> None:
        before = _native.memories_alive()
        tensor = hvd.allgather(torch.full((1000, 100), 3.0), name="late")
        array = covey.numpy.allgather(numpy.full((1000, 100), 3.0), name="late")
        covey.shutdown()
        covey.init(settings={"arena_bytes": ARENA_BYTES})
        tensor += 1
        array += 1
        self.assertTrue((tensor == 4).all() and (array == 4).all())
        del tensor, array
        self.assertEqual(_native.memories_alive(), before)

    def test_memory_of_the_core_is_an_ordinary_buffer(self) -> None:
        memory = _native.arena_alloc(6)
        view = memoryview(memory)
        self.assertEqual((view.format, view.shape, view.strides), ("B", (6,), (1,)))
        self.assertEqual((len(memory), view.readonly, view.obj is memory), (6, False, True))
        view[1:3] = b"ab"
        self.assertEqual(bytes(memory), b"\0ab\0\0\0")
        with self.assertRaises(TypeError):
            type(memory)()

    def test_texts_of_any_length_are_whole(self) -> None:
        for text in (_native.knobs(), _native.methods()):
            self.assertGreater(len(text), 4096, "the room for it at first")
            self.assertIsInstance(json.loads(text), (dict, list))

    def test_a_differentiable_gather_may_be_overwritten(self) -> None:
        tensor = torch.ones(3, requires_grad=True)
        gathered = hvd.allgather(tensor, name="differentiable")
        gathered.mul_(5)
        gathered.sum().backward()
        self.assertEqual(tensor.grad.tolist(), [5.0, 5.0, 5.0])

    def test_arena_memory_is_used_again(self) -> None:
        for _ in range(20):
            covey.arena_empty(ARENA_BYTES // 4, torch.uint8)
        with self.assertRaisesRegex(covey.Exhausted, "arena") as caught:
            covey.arena_empty(ARENA_BYTES * 2, torch.uint8)
        self.assertIsInstance(caught.exception, MemoryError)

    def test_tensors_live_until_their_operation_has_ended(self) -> None:
        tensor = torch.ones(1000)
        seen = weakref.ref(tensor)
        handle = hvd.allreduce_async_(tensor, name="kept")
        del tensor
        gc.collect()
        self.assertIsNotNone(seen())
        handle.wait()
        del handle
        gc.collect()
        self.assertIsNone(seen())

    def test_handles_and_results_are_let_go(self) -> None:
        tensor = torch.ones(1000)
        before = sys.getrefcount(tensor)
        for _ in range(1000):
            hvd.allreduce_(tensor, name="a")
            hvd.allreduce(tensor, name="a")
            hvd.allgather(tensor, name="a")
            hvd.grouped_allreduce_([tensor, tensor], name="a")
        hvd.barrier()  # Looks after dropped operations.
        self.assertEqual(sys.getrefcount(tensor), before)

    def test_wrong_arguments_of_the_extension(self) -> None:
        good = (0, 0, "x", 0, 0, 1.0, 1.0, 0, bytearray(4), None, (1,), None)
        _native.submit1(*good).wait()
        shapes = [1], ("a",), (1,) * 17, (1,) * 900
        for place, wrong in (*((10, shape) for shape in shapes), (8, "text"), (2, 3)):
            arguments = list(good)
            arguments[place] = wrong
            with self.assertRaises((TypeError, ValueError, OverflowError)):
                _native.submit1(*arguments)
        for inputs, outputs in ((((0, 0),), None), (((0, 0, (1,)),), ()), ((1,), None)):
            with self.assertRaises((TypeError, ValueError)):
                _native.submit(0, 0, None, 0, 0, 1.0, 1.0, inputs, outputs, None)
        with self.assertRaises(ValueError):
            _native.group_of((1 << 32,))
        with self.assertRaises(TypeError):
            _native.Handle()
        with self.assertRaises(ValueError):
            hvd.allreduce_async(torch.ones(1)).wait(-1)


if __name__ == "__main__":
    unittest.main()
