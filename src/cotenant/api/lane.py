"""Tenants inside one process: what a thread launches inside the block belongs to a lane, a tenant of its own.

    with cotenant.tenant("opportunistic"):
        train_a_little()

The interposer does the work (native/tenant/lanes.h); this finds it in the process and tells it which lane the thread is
in. PyTorch launches into its current stream, which is the default stream unless somebody chose another, and that one
all lanes share: so a block makes a stream of the lane PyTorch's current one.
"""

from __future__ import annotations

import ctypes
import functools
import inspect
import shlex
import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from cotenant import units
from cotenant.api.running import with_hint
from cotenant.classes import NAMES, TenantClass
from cotenant.errors import Problem, unknown

Given = ParamSpec("Given")
Got = TypeVar("Got")

LONGEST_NAME = 31  # bytes, as LaneTerms (native/tenant/terms.h) has it
LONGEST_COMMAND = 100
NON_BLOCKING = 1
TOO_MANY, CLASS_ABOVE, OTHER_TERMS = 0, -1, -2


@with_hint
def tenant(
    tenant_class: str,
    *,
    name: str | None = None,
    weight: float = 1.0,
    slowdown: float | str | None = None,
    floor: float | str | None = None,
    required: bool = True,
) -> Lane:
    """A lane of this process, as a context manager or a decorator: what the thread launches inside belongs to it.

    `tenant_class` is production, standard or opportunistic, and not above the class of the process itself. Blocks with
    the same `name` (by default the class) are one lane, in all threads; `cotenant status` shows it as JOB/NAME.
    `weight`, `slowdown` and `floor` mean what they mean to `cotenant run`. In a process that was not started under
    `cotenant run` entering raises Problem; with required=False it does nothing."""
    if tenant_class not in NAMES:
        raise unknown("class", tenant_class, NAMES)
    called = tenant_class if name is None else name
    if not called or len(called.encode()) > LONGEST_NAME or not called.isprintable() or "/" in called:
        raise Problem(
            f"no name for a lane: {called!r}", f"give 1 to {LONGEST_NAME} characters, without a slash"
        )
    if slowdown is not None and tenant_class != "production":
        raise Problem("slowdown is for production lanes", "leave it out, or give a floor")
    if floor is not None and tenant_class == "production":
        raise Problem("floor is for standard and opportunistic lanes", "leave it out for a production lane")
    return Lane(
        tenant_class,
        called,
        _thousandths(units.weight(f"{weight:g}")),
        _thousandths(units.slowdown(str(slowdown))) if slowdown is not None else 0,
        _thousandths(units.floor(str(floor))) if floor is not None else 0,
        required,
    )


@dataclass(frozen=True)
class Lane:
    """What `tenant` returns. It can be entered any number of times, by any thread, also inside another."""

    tenant_class: str
    name: str
    weight: int
    slowdown: int
    floor: int
    required: bool

    @property
    def number(self) -> int:
        """Of the lane in this process; 0: there is none, as the process was not started under `cotenant run`."""
        interposer = _interposer()
        if interposer is None:
            if self.required:
                raise not_under_run()
            return 0
        return _open(interposer, self)

    @property
    def stream(self) -> int:
        """The handle of a CUDA stream of this lane for the calling thread, in its current context: one that does not
        wait for the default stream, with the priority of the class. 0, the default stream, where there is no lane."""
        return _stream_of(self)

    @with_hint
    def __enter__(self) -> Lane:
        number = self.number
        entered = _Entered(self, number, 0, 0)
        if number:
            entered.escaped_before = max(_native().cotenant_lane_escaped(number), 0)
            entered.before = _native().cotenant_lane_enter(number)
            try:
                entered.torch = _TorchStream.switch_to(self)
            except BaseException:
                _native().cotenant_lane_enter(entered.before)
                raise
        _stack().append(entered)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not _stack() or _stack()[-1].lane is not self:
            raise RuntimeError("a lane is left by the thread that entered it, the innermost first")
        entered = _stack().pop()
        try:
            if entered.torch is not None:
                entered.torch.switch_back(is_failing=error is not None)
        finally:
            if entered.number:
                _native().cotenant_lane_enter(entered.before)
        if entered.number and error is None:
            _warn_of_escapes(entered)

    def __call__(self, function: Callable[Given, Got]) -> Callable[Given, Got]:
        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
            raise TypeError(
                "a lane belongs to a thread: use `with` around what launches, not on a coroutine or generator"
            )

        @functools.wraps(function)
        def call(*args: Given.args, **more: Given.kwargs) -> Got:
            with self:
                return function(*args, **more)

        return call


@dataclass
class _Entered:
    lane: Lane
    number: int
    before: int
    escaped_before: int
    torch: _TorchStream | None = None


class _Local(threading.local):
    def __init__(self) -> None:
        self.stack: list[_Entered] = []
        self.streams: dict[tuple[int, int], _Stream] = {}


_local = _Local()


def _stack() -> list[_Entered]:
    return _local.stack


def _thousandths(text: str) -> int:
    return round(float(text.removesuffix("%")) * (10 if text.endswith("%") else 1000))


def under_run() -> bool:
    """Whether the interposer is in this process."""
    return _interposer() is not None


def not_under_run() -> Problem:
    if "ipykernel" in sys.modules:
        return Problem(
            "this kernel was not started under `cotenant run`",
            "start Jupyter with: cotenant run -- jupyter lab",
        )
    command = shlex.join(sys.orig_argv)
    if not command or "\n" in command or len(command) > LONGEST_COMMAND:
        command = "python script.py"
    return Problem(
        "this process was not started under `cotenant run`", f"start it with: cotenant run -- {command}"
    )


def _native() -> Any:
    found = _interposer()
    assert found is not None
    return found


@functools.cache
def _interposer() -> Any:
    """The preloaded library: its symbols, and the driver's, are the process's own. None: there is none."""
    process = ctypes.CDLL(None)
    if not hasattr(process, "cotenant_interposer_version"):
        return None
    if not hasattr(process, "cotenant_lane_open"):
        raise Problem(
            "this process runs under another version of Cotenant",
            "install the same version as its `cotenant run`",
        )
    process.cotenant_lane_open.argtypes = [ctypes.c_char_p, *[ctypes.c_uint32] * 4]
    process.cotenant_lane_escaped.restype = ctypes.c_int64
    return process


def _open(interposer: Any, lane: Lane) -> int:
    number = int(
        interposer.cotenant_lane_open(
            lane.name.encode(), TenantClass[lane.tenant_class], lane.weight, lane.slowdown, lane.floor
        )
    )
    if number == CLASS_ABOVE:
        raise Problem(
            f"a {lane.tenant_class} lane is above the class of its process",
            f"start the process with: cotenant run --class {lane.tenant_class}",
        )
    if number == OTHER_TERMS:
        raise Problem(
            f"there is a lane '{lane.name}' with other terms", "give this one a name of its own: name=..."
        )
    if number == TOO_MANY:
        raise Problem(
            "this process has eight lanes already", "use one of them again: blocks of one name are one lane"
        )
    return number


def _warn_of_escapes(entered: _Entered) -> None:
    escaped = _native().cotenant_lane_escaped(entered.number)
    name = entered.lane.name
    if escaped < 0:
        warnings.warn(
            f"the segment has no slot for lane '{name}': its work is its process's",
            RuntimeWarning,
            stacklevel=3,
        )
    elif escaped > entered.escaped_before:
        problem = (
            f"work of lane '{name}' went into the default stream, or into streams that wait for it, and is its"
            " process's: use the lane's stream, or one with CU_STREAM_NON_BLOCKING"
            f" ({escaped - entered.escaped_before} operations)"
        )
        warnings.warn(problem, RuntimeWarning, stacklevel=3)


class _Stream:
    """A stream that one thread uses at a time: given back when the thread ends, never destroyed."""

    _unused: dict[tuple[int, int], list[int]] = {}  # noqa: RUF012
    _lock = threading.Lock()

    def __init__(self, key: tuple[int, int], make: Callable[[], int]) -> None:
        with self._lock:
            unused = self._unused.setdefault(key, [])
            found = unused.pop() if unused else None
        self.handle = make() if found is None else found
        weakref.finalize(self, unused.append, self.handle).atexit = False


def _checked(call: str, *arguments: Any) -> None:
    code = getattr(_native(), call)(*arguments)
    if code:
        raise Problem(
            f"{call} failed with CUDA error {code}", "the lane's stream needs a CUDA context: make one first"
        )


def _stream_of(lane: Lane) -> int:
    number = lane.number
    if not number:
        return 0
    context, identity = ctypes.c_void_p(), ctypes.c_uint64()
    _checked("cuCtxGetCurrent", ctypes.byref(context))
    if not context.value:
        raise Problem("the thread has no CUDA context", "make one current first")
    # A handle may be used again for another context; a number never is.
    if _native().cuCtxGetId(context, ctypes.byref(identity)) != 0:
        identity.value = context.value
    key = (number, identity.value)
    if key not in _local.streams:
        _local.streams[key] = _Stream(key, lambda: _new_stream(TenantClass[lane.tenant_class]))
    return _local.streams[key].handle


def _new_stream(tenant_class: TenantClass) -> int:
    least, greatest, stream = ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p()
    _checked("cuCtxGetStreamPriorityRange", ctypes.byref(least), ctypes.byref(greatest))
    priority = {
        TenantClass.production: greatest.value,
        TenantClass.standard: (least.value + greatest.value) // 2,
        TenantClass.opportunistic: least.value,
    }[tenant_class]
    _checked("cuStreamCreateWithPriority", ctypes.byref(stream), NON_BLOCKING, priority)
    return stream.value or 0


class _TorchStream:
    """A lane's stream as PyTorch's current one. What was queued before the block comes before it on the GPU, and what
    the block has queued has ended when the block ends: no other stream has to wait for it, at a gate or not."""

    def __init__(self, torch: Any, handle: int) -> None:
        self.torch = torch
        self.outer = torch.cuda.current_stream()
        self.inner = torch.cuda.ExternalStream(handle, device=self.outer.device)
        self.inner.wait_stream(self.outer)
        torch.cuda.set_stream(self.inner)

    @classmethod
    def switch_to(cls, lane: Lane) -> _TorchStream | None:
        """None: PyTorch has not used a GPU yet."""
        torch = sys.modules.get("torch")
        if torch is None or not torch.cuda.is_initialized():
            return None
        with _primary_context(int(torch.cuda.current_device())):
            handle = lane.stream
        return cls(torch, handle)

    def switch_back(self, is_failing: bool) -> None:
        try:
            self.inner.synchronize()
        except Exception:
            if not is_failing:  # else it is the same error, or follows from it
                raise
        finally:
            self.torch.cuda.set_stream(self.outer)


class _primary_context:
    """The context that PyTorch uses on a device, current on this thread meanwhile."""

    def __init__(self, ordinal: int) -> None:
        self.device = ctypes.c_int()
        _checked("cuDeviceGet", ctypes.byref(self.device), ordinal)

    def __enter__(self) -> None:
        context = ctypes.c_void_p()
        _checked("cuDevicePrimaryCtxRetain", ctypes.byref(context), self.device)
        _checked("cuCtxPushCurrent_v2", context)

    def __exit__(self, *_: object) -> None:
        popped = ctypes.c_void_p()
        _native().cuCtxPopCurrent_v2(ctypes.byref(popped))
        _native().cuDevicePrimaryCtxRelease_v2(self.device)
