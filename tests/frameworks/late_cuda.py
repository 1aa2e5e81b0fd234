"""A CUDA for torch's tensors without a card, for tests: as late as a card may be, and as strict.

Within ``running()`` a tensor can be on ``cuda``. Whatever is done to such a one is handed to the
stream in use and happens when somebody waits for it, or reads a number, and not before: so what is
not ordered by a stream or an event happens too late, and numbers are wrong. Copies that do not
block read and write memory of the host as late. What mixes devices is an error, as on a card.

Numbers are computed by torch on the CPU: results are those of the CPU, bit for bit. Addresses are
such as no host can follow; the driver without a card (``tests/plugins/driver``) can, so the core's
own collectives work on these tensors, on a stream of that driver: in turn with this one.

It is a TorchFunctionMode (which tensors say where they are, and make others) over a
TorchDispatchMode (what is computed). Memory of the device is never used again.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import pathlib
import sys
import threading
from typing import Any, Callable, Deque, Dict, Iterator, List, Optional, Tuple
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_map

_PLUGINS = pathlib.Path(__file__).absolute().parents[1] / "plugins"
DRIVER = _PLUGINS / "driver" / "libcuda.so.1"
_ON_DEVICE = 0x4B << 56  # kOnDevice of fake_driver.h.
_CUDA = torch.device("cuda:0")
_CPU = torch.device("cpu")
_P, _N = ctypes.c_void_p, ctypes.c_size_t
_FAKE = [  # Of FakeCuda in fake_cuda.h: the first seven of its functions.
    ctypes.CFUNCTYPE(_P, _N),
    ctypes.CFUNCTYPE(None, _P),
    ctypes.CFUNCTYPE(_P),
    ctypes.CFUNCTYPE(_P),
    ctypes.CFUNCTYPE(None, _P, _P),
    ctypes.CFUNCTYPE(None, _P, _P, _N, _P),
    ctypes.CFUNCTYPE(None, _P, _P, _N, _P),
]


class Stream:
    """As torch.cuda.Stream. What is handed to it is done in turn, once somebody waits for it."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.device_index, self.device = 0, _CUDA
        self._tasks: Deque[Callable[[], None]] = collections.deque()
        self._done = 0
        self._handle: Optional[int] = None

    def push(self, task: Callable[[], None]) -> int:
        """So many tasks there were, this one included."""
        self._tasks.append(task)
        return self._done + len(self._tasks)

    def run(self, until: Optional[int] = None) -> None:
        """Until so many tasks are done; None: all."""
        self._run_driver()
        with torch._C.DisableTorchFunction(), _disable_current_modes(), torch.no_grad():
            while self._tasks and (until is None or self._done < until):
                self._tasks.popleft()()
                self._done += 1

    def _run_driver(self) -> None:
        if self._handle is not None:  # What the core has handed over since comes first.
            _driver()[6](_driver()[0](8), ctypes.addressof(ctypes.c_char()), 1, self._handle)

    @property
    def cuda_stream(self) -> int:
        """For the core: what is handed to it there comes after what was handed over here."""
        self.run()
        if self._handle is None:
            self._handle = _driver()[2]()
        return self._handle

    def wait_event(self, event: "Event") -> None:
        self.push(event.reached())

    def wait_stream(self, stream: "Stream") -> None:
        event = Event()
        event.record(stream)
        self.wait_event(event)

    def synchronize(self) -> None:
        STATS["waits"] += 1
        self.run()

    def is_capturing(self) -> bool:
        """No graph of CUDA is being recorded."""
        return False


class Event:
    """As torch.cuda.Event."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self._stream: Optional[Stream] = None
        self._number = 0

    def record(self, stream: Optional[Stream] = None) -> None:
        self._stream = stream or current_stream()
        self._number = self._stream.push(lambda: None)

    def reached(self) -> Callable[[], None]:
        stream, number = self._stream, self._number
        return lambda: None if stream is None else stream.run(number)

    def synchronize(self) -> None:
        STATS["waits"] += 1
        self.reached()()


# DLPack's table asks no mode where a tensor lies: so this comes before covey.torch is imported.
assert "covey.torch" not in sys.modules, "import late_cuda first"
if hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
    del torch.Tensor.__dlpack_c_exchange_api__

STATS = {"waits": 0}
"""How often somebody waited for a stream or an event, or read a number."""
_here = threading.local()
_default = Stream()
_memory: Dict[int, Any] = {}  # What lies on the device, by its storage; kept for ever.


def _driver() -> Any:
    library = ctypes.CDLL(str(DRIVER))
    library.fake_cuda.restype = ctypes.POINTER(ctypes.c_void_p * len(_FAKE))
    table = library.fake_cuda().contents
    return [kind(address) for kind, address in zip(_FAKE, table)]


def current_stream(_: Any = None) -> Stream:
    """Of this thread."""
    return getattr(_here, "stream", _default)


@contextlib.contextmanager
def use_stream(stream: Optional[Stream]) -> Iterator[None]:
    """As torch.cuda.stream; a thread that comes here has the device too."""
    before = current_stream()
    _here.stream = stream or before
    try:
        with contextlib.ExitStack() as stack:
            if not getattr(_here, "is_on", False):
                stack.enter_context(_modes())
            yield
    finally:
        _here.stream = before


def _key(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def is_far(value: Any) -> bool:
    """Whether it is a tensor on the device."""
    return isinstance(value, torch.Tensor) and value.layout is torch.strided and (
        _key(value) in _memory
    )


def _adopt(tensor: torch.Tensor) -> torch.Tensor:
    """Its memory is the device's from now on."""
    storage = tensor.untyped_storage()
    _memory[storage._cdata] = storage
    return tensor


def _alias(value: Any) -> Any:
    """The same memory, so that nobody counts who holds the tensor; numbers in the host as they are
    now, for they are passed by value."""
    if not isinstance(value, torch.Tensor):
        return value
    # A tensor of its own, which counts its changes by itself: autograd looks at those of the other.
    return value.data if is_far(value) or value.dim() > 0 else value.data.clone()


class _Compute(TorchDispatchMode):
    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        device = kwargs.get("device")
        if device is not None and device.type in ("cpu", "cuda"):
            return _made_on(device, func, args, {**kwargs, "device": _CPU})
        tensors = [it for it in tree_flatten((args, kwargs))[0] if isinstance(it, torch.Tensor)]
        if not any(is_far(it) for it in tensors):
            return func(*args, **kwargs)
        is_copy = func is torch.ops.aten.copy_.default
        near = [it for it in tensors if not is_far(it) and (is_copy or it.dim() > 0)]
        if near and not is_copy:
            raise RuntimeError(f"{func}: expected all tensors to be on the same device")
        returns = func._schema.returns
        kinds = [it.alias_info for it in returns]
        is_view = kinds and all(kind is not None and not kind.is_write for kind in kinds)
        if is_view or func is torch.ops.aten.is_set_to.default:
            return func(*args, **kwargs)  # Nothing is read.
        held_args, held_kwargs = tree_map(_alias, (args, kwargs))
        if is_copy:
            held_args = (args[0].data, *held_args[1:])
        stream = current_stream()
        if not returns or kinds[0] is not None:
            stream.push(lambda: func(*held_args, **held_kwargs))
            is_late = bool(args[2]) if is_copy and len(args) > 2 else bool(
                kwargs.get("non_blocking")
            )
            if near and not is_late:
                stream.synchronize()
            return args[0] if returns else None
        if any(str(it.type) not in ("Tensor", "List[Tensor]") for it in returns):
            stream.synchronize()
            return func(*args, **kwargs)
        return self._later(func, held_args, held_kwargs)

    def _later(self, func: Any, args: Any, kwargs: Any) -> Any:
        """What has results of its own: memory for them, and what fills it by and by."""
        shapes = func(*tree_map(_on_meta, args), **tree_map(_on_meta, kwargs))
        made = tree_map(_room, shapes)
        targets = [_alias(it) for it in tree_flatten(made)[0]]

        def fill() -> None:
            results = tree_flatten(func(*args, **kwargs))[0]
            for target, result in zip(targets, results):
                if isinstance(target, torch.Tensor):
                    target.copy_(result)

        current_stream().push(fill)
        return made


def _made_on(device: torch.device, func: Any, args: Any, kwargs: Any) -> torch.Tensor:
    """What a function makes that is told where."""
    like = tree_map(lambda it: _room_near(it) if is_far(it) else it, args)
    made: torch.Tensor = func(*like, **kwargs)
    # What autograd makes like a tensor it makes on that one's device, which it takes for the CPU.
    is_like = not getattr(_here, "is_told", False) and any(map(is_far, args))
    if device.type == "cuda" or is_like:
        _adopt(made)
    if func is torch.ops.aten._to_copy.default:
        held = _alias(args[0])
        current_stream().push(lambda: made.copy_(held))
        if not kwargs.get("non_blocking") and not is_like:
            current_stream().synchronize()
    return made


def _room_near(shape: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(shape.shape, shape.stride(), dtype=shape.dtype)


def _on_meta(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")


def _room(shape: Any) -> Any:
    if not isinstance(shape, torch.Tensor):
        return shape
    return _adopt(torch.empty_strided(shape.shape, shape.stride(), dtype=shape.dtype))


def _device_of(value: Any) -> Optional[torch.device]:
    """The device that an argument names."""
    if isinstance(value, torch.device):
        return value
    if isinstance(value, str) and value.partition(":")[0] in ("cpu", "cuda"):
        return torch.device(value)
    return None


def _copied(tensor: torch.Tensor, device: torch.device, dtype: Any, blocks: bool) -> torch.Tensor:
    _here.is_told = True
    made = torch.empty_like(tensor, dtype=dtype, requires_grad=False, device=device)
    _here.is_told = False
    return made.copy_(tensor.detach(), non_blocking=not blocks)


class _Places(TorchFunctionMode):
    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        one = args[0] if args else None
        name = getattr(func, "__name__", "")
        if name == "__get__" and isinstance(one, torch.Tensor):
            known = _SAID.get(func)
            if known is not None and is_far(one):
                return known
        elif name == "data_ptr" and is_far(one):
            address = func(*args)
            return address and address ^ _ON_DEVICE
        elif name == "tolist" and is_far(one):
            return _copied(one, _CPU, one.dtype, True).tolist()
        elif name == "numpy" and is_far(one):
            raise TypeError("can't convert cuda:0 device type tensor to numpy")
        elif name in ("cpu", "cuda", "to") and isinstance(one, torch.Tensor):
            moved = self._move(name, one, args[1:], kwargs)
            if moved is not None:
                return moved
        kwargs.pop("pin_memory", None)
        before = getattr(_here, "is_told", False)
        _here.is_told = _device_of(kwargs.get("device")) is not None
        try:
            return func(*args, **kwargs)
        finally:
            _here.is_told = before

    def _move(self, name: str, one: torch.Tensor, rest: Any, kwargs: Any) -> Any:
        """None: it stays where it is."""
        wanted = _CPU if name == "cpu" else _CUDA if name == "cuda" else None
        for value in (*rest, kwargs.get("device")):
            if isinstance(value, torch.Tensor):
                wanted = _CUDA if is_far(value) else _CPU
            wanted = wanted or _device_of(value)
        dtypes = [it for it in (*rest, kwargs.get("dtype")) if isinstance(it, torch.dtype)]
        dtype = dtypes[0] if dtypes else one.dtype
        is_copy = bool(kwargs.get("copy"))
        if wanted is None or wanted.type not in ("cpu", "cuda"):
            return None
        if (wanted.type == "cuda") == is_far(one) and not is_copy:
            return one if dtype is one.dtype else one.to(dtype)
        return _copied(one, wanted, dtype, not kwargs.get("non_blocking"))


_SAID = {
    torch.Tensor.is_cpu.__get__: False,  # type: ignore[attr-defined]
    torch.Tensor.is_cuda.__get__: True,  # type: ignore[attr-defined]
    torch.Tensor.device.__get__: _CUDA,  # type: ignore[attr-defined]
}


@contextlib.contextmanager
def _modes() -> Iterator[None]:
    _here.is_on = True
    try:
        with _Compute(), _Places():
            yield
    finally:
        _here.is_on = False


def _backward(loss: torch.Tensor) -> None:
    """As torch.Tensor.backward, of a number; that turns the mode off, and hooks need it."""
    torch.autograd.graph._engine_run_backward(
        (loss,), (torch.ones_like(loss),), False, False, (), allow_unreachable=True,
        accumulate_grad=True,
    )


@contextlib.contextmanager
def running() -> Iterator[Dict[str, int]]:
    """Within it there is such a device, in this thread and in those that take up its streams."""
    stands_for: List[Tuple[str, Any]] = [
        ("Stream", Stream),
        ("Event", Event),
        ("current_stream", current_stream),
        ("stream", use_stream),
        ("device", lambda _: contextlib.nullcontext()),
        ("current_device", lambda: 0),
        ("device_count", lambda: 1),
        ("is_initialized", lambda: True),
        ("is_available", lambda: True),
        ("is_current_stream_capturing", lambda: False),
        ("synchronize", lambda *_: current_stream().synchronize()),
    ]
    # Torch's optimizers ask here; its CUDA build would go on to the CUDA runtime.
    accelerator: List[Tuple[str, Any]] = [
        ("current_accelerator", lambda check_available=False: _CUDA),
        ("current_stream", current_stream),
        ("is_available", lambda: True),
    ]
    _driver()  # By its name it is found from now on.
    with contextlib.ExitStack() as stack:
        for module, values in ((torch.cuda, stands_for), (torch.accelerator, accelerator)):
            for name, value in values:
                stack.enter_context(mock.patch.object(module, name, value))
        stack.enter_context(mock.patch.object(torch.Tensor, "backward", _backward))
        stack.enter_context(_modes())
        yield STATS
