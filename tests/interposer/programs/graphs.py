"""Graphs of long chains of kernels, built and asked as test programs want it."""

from __future__ import annotations

import ctypes
import hashlib
from typing import Any

from soft import Gpu, check, driver  # type: ignore[import-not-found]

u64, f32 = ctypes.c_uint64, ctypes.c_float
N = 1024


class Chains:
    """A chain of kernels in a graph: `a` begins with 1.5, then each step adds `factor` times itself to it."""

    def __init__(self) -> None:
        self.gpu = Gpu()
        self.stream = self.gpu.stream()
        self.a, self.b, self.c = (int(check(driver.cuMemAlloc(4 * N))) for _ in range(3))
        self.add, self.fill, self.scale = (self.gpu.kernel(name) for name in ("add", "fill", "scale"))

    def node(
        self, graph: Any, kernel: Any, values: tuple[Any, ...], types: tuple[Any, ...], after: list[Any]
    ) -> Any:
        """A kernel node behind the nodes in `after`."""
        parameters = self.parameters(kernel, values, types)
        return check(driver.cuGraphAddKernelNode(graph, after or None, len(after), parameters))

    def parameters(self, kernel: Any, values: tuple[Any, ...], types: tuple[Any, ...]) -> Any:
        parameters = driver.CUDA_KERNEL_NODE_PARAMS()
        parameters.func = kernel
        for name in ("gridDimX", "gridDimY", "gridDimZ", "blockDimX", "blockDimY", "blockDimZ"):
            setattr(parameters, name, 1)
        self.kept = [kind(value) for kind, value in zip(types, values, strict=True)]
        self.pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(one) for one in self.kept))
        parameters.kernelParams = ctypes.addressof(self.pointers)
        return parameters

    def begin(self, graph: Any, value: float = 1.5) -> Any:
        return self.node(graph, self.fill, (self.a, value, N), (u64, f32, u64), [])

    def steps(self, graph: Any, factor: float, steps: int, last: Any) -> Any:
        for _ in range(steps):
            last = self.node(
                graph, self.scale, (self.b, self.a, factor, N), (u64, u64, f32, u64), [last] if last else []
            )
            last = self.node(graph, self.add, (self.a, self.a, self.b, N), (u64, u64, u64, u64), [last])
        return last

    def chain(self, factor: float, steps: int = 10) -> Any:
        graph = check(driver.cuGraphCreate(0))
        self.steps(graph, factor, steps, self.begin(graph))
        return graph

    def fork(self, factor: float, side_first: bool) -> Any:
        """A chain whose end waits for a fill and a chain, which may be added in either order."""
        graph = check(driver.cuGraphCreate(0))
        first = self.begin(graph)

        def aside() -> Any:
            return self.node(graph, self.fill, (self.c, 0.25, N), (u64, f32, u64), [first])

        side = aside() if side_first else None
        last = self.steps(graph, factor, 10, first)
        side = side or aside()
        self.node(graph, self.add, (self.a, self.a, self.c, N), (u64, u64, u64, u64), [side, last])
        return graph

    def with_child(self, factor: float) -> Any:
        """A node, then a chain in a child graph, then a node."""
        graph, child = check(driver.cuGraphCreate(0)), check(driver.cuGraphCreate(0))
        self.steps(child, factor, 10, None)
        node = check(driver.cuGraphAddChildGraphNode(graph, [self.begin(graph)], 1, child))
        self.steps(graph, factor, 1, node)
        return graph

    def with_children(self, *factors: float) -> Any:
        """A node, then for each factor a chain in a child graph; every other chain is a graph deeper still."""
        graph = check(driver.cuGraphCreate(0))
        last = self.begin(graph)
        for number, factor in enumerate(factors):
            last = check(
                driver.cuGraphAddChildGraphNode(graph, [last], 1, self.inner(factor, deeper=number % 2 == 1))
            )
        return graph

    def inner(self, factor: float, deeper: bool = False, steps: int = 10) -> Any:
        child = check(driver.cuGraphCreate(0))
        self.steps(child, factor, steps, None)
        if not deeper:
            return child
        outer = check(driver.cuGraphCreate(0))
        check(driver.cuGraphAddChildGraphNode(outer, None, 0, child))
        return outer

    def result(self, executable: Any) -> str:
        check(driver.cuGraphLaunch(executable, self.stream))
        check(driver.cuStreamSynchronize(self.stream))
        out = bytearray(4 * N)
        check(driver.cuMemcpyDtoH(out, self.a, 4 * N))
        return hashlib.sha256(out).hexdigest()

    def expected(self, graph: Any) -> str:
        """The result of the graph, instantiated afresh."""
        executable = check(driver.cuGraphInstantiate(graph, 0))
        result = self.result(executable)
        check(driver.cuGraphExecDestroy(executable))
        return result

    def updated(self, executable: Any, graph: Any) -> str:
        """What an update came to: "same" if the exec now does what the graph does."""
        code, _ = driver.cuGraphExecUpdate(executable, graph)
        if code != driver.CUresult.CUDA_SUCCESS:
            return str(code.name)
        return "same" if self.result(executable) == self.expected(graph) else "other results"


def nodes_of(graph: Any) -> list[Any]:
    _, count = check(driver.cuGraphGetNodes(graph, 0))
    nodes, _ = check(driver.cuGraphGetNodes(graph, count))
    return list(nodes)


class UpdateResult(ctypes.Structure):
    """CUgraphExecUpdateResultInfo, which cuda-bindings keeps to itself when an update fails."""

    _fields_ = [
        ("result", ctypes.c_int),
        ("error_node", ctypes.c_void_p),
        ("error_from_node", ctypes.c_void_p),
    ]


def failing_update(executable: Any, graph: Any) -> tuple[tuple[int, int, int], tuple[int, int]]:
    """(result, error node, error from-node) of the newer function, (result, error node) of the older; 0: no node."""
    library = ctypes.CDLL("libcuda.so.1")
    handles = ctypes.c_void_p(int(executable)), ctypes.c_void_p(int(graph))
    about = UpdateResult()
    assert library.cuGraphExecUpdate_v2(*handles, ctypes.byref(about)) == 910
    node, result = ctypes.c_void_p(), ctypes.c_int()
    assert library.cuGraphExecUpdate(*handles, ctypes.byref(node), ctypes.byref(result)) == 910
    return (
        (about.result, about.error_node or 0, about.error_from_node or 0),
        (result.value, node.value or 0),
    )
