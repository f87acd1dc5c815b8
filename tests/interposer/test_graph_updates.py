"""An exec that has gates inside is updated, asked and destroyed as one without would be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cotenant import segment
from tests.conftest import REAL_GPU
from tests.interposer.test_gates import order, ready

if TYPE_CHECKING:
    from tests.conftest import Run, RunPython
    from tests.interposer.conftest import Tenant

    Start = Callable[..., Tenant]
    TenantsNow = Callable[[], tuple[segment.Tenant, ...]]

# Instantiates when told so, updates when told so, and says what came of it.
ORDERS = """
import sys
from graphs import Chains, check, driver
chains = Chains(); first = chains.chain(0.5); executable = None; factor = 0.5
chains.expected(first)
print('ready')
for line in sys.stdin:
    if line.strip() == 'instantiate':
        executable = check(driver.cuGraphInstantiate(first, 0)); print('did')
    elif line.strip() == 'update':
        factor /= 2; print(chains.updated(executable, chains.chain(factor)))
    else: break
"""


def steer(path: Path, *, rule: int | None = None, gate_every_us: int | None = None) -> None:
    with path.open("r+b") as file:
        for name, value in (("rule", rule), ("gate_every_us", gate_every_us)):
            if value is None:
                continue
            file.seek(segment.Header.knobs.offset + getattr(segment.Knobs, name).offset)
            file.write(value.to_bytes(4, "little"))


@pytest.fixture
def path(softgpu_env: dict[str, str]) -> Path:
    return Path(softgpu_env["COTENANT_SEGMENT"])


def gates_of(tenants: tuple[segment.Tenant, ...], one: Tenant) -> int:
    assert one.process
    (found,) = [t for t in tenants if t.pid == one.process.pid]
    return sum(use.figures["gates"] for use in found.uses)


@pytest.mark.usefixtures("company")
@pytest.mark.parametrize(
    ("before", "after", "has_gates"),
    [("opportunistic", "production", True), ("production", "opportunistic", False)],
)
def test_an_update_after_a_change_of_class(
    tenant: Start, tenants_now: TenantsNow, cotenant: Run, before: str, after: str, has_gates: bool
) -> None:
    one = ready(tenant(before, ORDERS))
    gates = gates_of(tenants_now(), one)
    assert order(one, "instantiate") == "did"
    assert (gates_of(tenants_now(), one) > gates) == has_gates
    assert order(one, "update") == "same"
    assert one.process
    done = cotenant("ctl", str(one.process.pid), "--class", after, env=one.env)
    assert done.returncode == 0, done.stderr
    assert order(one, "update") == "same"
    one.say("quit")
    one.finish()


@pytest.mark.usefixtures("company")
def test_an_update_after_a_change_of_rule(tenant: Start, tenants_now: TenantsNow, path: Path) -> None:
    one = ready(tenant("opportunistic", ORDERS))
    gates = gates_of(tenants_now(), one)
    assert order(one, "instantiate") == "did"
    assert gates_of(tenants_now(), one) > gates
    # WHEN nobody passes gates any more
    steer(path, rule=0)
    assert order(one, "update") == "same"
    one.say("quit")
    one.finish()


# Nodes of a graph may be added in another order than those of the graph that was instantiated, as two streams that are
# captured together may be; the driver goes by their edges.
OTHER_ORDER = """
from graphs import Chains, check, driver, nodes_of
chains = Chains()
executable = check(driver.cuGraphInstantiate(chains.fork(0.5, side_first=True), 0))
print(chains.updated(executable, chains.fork(0.25, side_first=True)))
print(chains.updated(executable, chains.fork(0.125, side_first=False)))
"""


@pytest.mark.usefixtures("company")
def test_an_update_from_a_graph_whose_nodes_were_added_in_another_order(tenant: Start, path: Path) -> None:
    # Before every fourth kernel or so: were each gated, it would not matter which is which.
    steer(path, gate_every_us=45)
    one = tenant("opportunistic", OTHER_ORDER)
    assert one.finish().split() == ["same", "same"]
    assert one.total("gates") > 12


# Which of the program's nodes an update failed at.
FAILING = """
import ctypes
from graphs import Chains, check, driver, f32, failing_update, nodes_of, u64
chains = Chains()
def number(graph, node): return [int(n) for n in nodes_of(graph)].index(node) if node else None
def show(executable, graph, inside=None):
    (result, node, before), (older, older_node) = failing_update(executable, graph)
    at = inside or graph
    print(result, number(at, node), number(at, before), older, number(at, older_node))
executable = check(driver.cuGraphInstantiate(chains.chain(0.5), 0))
# One node is of another type.
other = check(driver.cuGraphCreate(0))
last = chains.steps(other, 0.5, 9, chains.begin(other))
last = check(driver.cuGraphAddEmptyNode(other, [last], 1))
chains.node(other, chains.fill, (chains.a, 1.0, 8), (u64, f32, u64), [last])
show(executable, other)
# Two nodes wait for the same two, in another order.
def crossing(swapped):
    graph = check(driver.cuGraphCreate(0))
    left, right = chains.begin(graph), chains.begin(graph)
    chains.node(graph, chains.fill, (chains.b, 1.0, 8), (u64, f32, u64), [left, right])
    both = [right, left] if swapped else [left, right]
    chains.steps(graph, 0.5, 9, chains.node(graph, chains.fill, (chains.c, 1.0, 8), (u64, f32, u64), both))
    return graph
show(check(driver.cuGraphInstantiate(crossing(False), 0)), crossing(True))
# A node waits for one more.
one_more = chains.chain(0.5); nodes = nodes_of(one_more)
check(driver.cuGraphAddDependencies(one_more, [nodes[2]], [nodes[9]], None, 1))
show(executable, one_more)
# In a child graph.
nested = check(driver.cuGraphInstantiate(chains.with_child(0.5), 0))
other = chains.with_child(0.5)
child = check(driver.cuGraphChildGraphNodeGetGraph(nodes_of(other)[1]))
check(driver.cuGraphDestroyNode(nodes_of(child)[-1]))
check(driver.cuGraphAddEmptyNode(child, [nodes_of(child)[-1]], 1))
show(nested, other, child)
# There is no place for the answer; and what cannot be instantiated.
library = ctypes.CDLL('libcuda.so.1'); made, graph = (ctypes.c_void_p(int(one)) for one in (nested, other))
print(library.cuGraphExecUpdate_v2(made, graph, None), library.cuGraphExecUpdate(made, graph, None, None))
print(driver.cuGraphInstantiate(chains.chain(0.5), 1 << 20)[0].name)
"""


@pytest.mark.usefixtures("company")
def test_a_failed_update_names_the_nodes_of_the_programs_graph(
    tenant: Start, path: Path, run_python: RunPython
) -> None:
    steer(path, gate_every_us=15)
    one = tenant("opportunistic", FAILING)
    gated = one.finish().splitlines()
    assert one.total("gates") > 20
    alone = run_python(FAILING, one.env)
    assert alone.returncode == 0, alone.stderr
    assert gated == alone.stdout.splitlines()
    kinds = [line.split() for line in gated[:-2]]
    assert gated[-2:] == ["1 1", "CUDA_ERROR_INVALID_VALUE"]
    assert len(kinds) == 4 and all(words[1] != "None" and words[1] == words[4] for words in kinds)
    assert kinds[1][2] != "None"


# Parameters of a node in a child graph, which the program finds in its own graph.
CHILD = """
from graphs import Chains, N, check, driver, f32, nodes_of, u64
chains = Chains(); graph = chains.with_child(0.5)
executable = check(driver.cuGraphInstantiate(graph, 0))
print(chains.result(executable) == chains.expected(graph))
child = check(driver.cuGraphChildGraphNodeGetGraph(nodes_of(graph)[1]))
node = nodes_of(child)[4]
wanted = chains.parameters(chains.scale, (chains.b, chains.a, 3.0, N), (u64, u64, f32, u64))
check(driver.cuGraphExecKernelNodeSetParams(executable, node, wanted))
changed = chains.result(executable)
check(driver.cuGraphKernelNodeSetParams(node, wanted))
print(changed == chains.expected(graph))
wanted = chains.parameters(chains.scale, (chains.b, chains.a, 5.0, N), (u64, u64, f32, u64))
in_general = driver.CUgraphNodeParams(); in_general.type = driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL
for name in ('func', 'gridDimX', 'gridDimY', 'gridDimZ', 'blockDimX', 'blockDimY', 'blockDimZ', 'kernelParams'):
    setattr(in_general.kernel, name, getattr(wanted, name))
check(driver.cuGraphExecNodeSetParams(executable, node, in_general)); changed = chains.result(executable)
check(driver.cuGraphKernelNodeSetParams(node, wanted))
print(changed == chains.expected(graph))
print(chains.updated(executable, chains.with_child(0.125)))
check(driver.cuGraphNodeSetEnabled(executable, nodes_of(graph)[0], 0))
print(check(driver.cuGraphNodeGetEnabled(executable, nodes_of(graph)[0])))
"""


@pytest.mark.usefixtures("company")
def test_nodes_of_child_graphs_keep_their_names(tenant: Start, path: Path) -> None:
    steer(path, gate_every_us=15)
    one = tenant("opportunistic", CHILD)
    assert one.finish().split() == ["True", "True", "True", "same", "0"]
    assert one.total("gates") > 20


# A child graph is replaced in the exec, as XLA does at each step of a program that it keeps as one graph.
CHILDREN = """
import ctypes
from graphs import Chains, check, driver, nodes_of
chains = Chains(); graph = chains.with_children(0.5, 0.25, 0.125)
executable = check(driver.cuGraphInstantiate(graph, 0)); print(chains.result(executable) == chains.expected(graph))
nodes = nodes_of(graph)
def set_child(node, child): return driver.cuGraphExecChildGraphNodeSetParams(executable, node, child)[0].name
def set_any(node, child):
    parameters = driver.CUgraphNodeParams(); parameters.type = driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_GRAPH
    parameters.graph.graph = child
    return driver.cuGraphExecNodeSetParams(executable, node, parameters)[0].name
factors = [0.5, 0.25, 0.125]
for number, replace in ((0, set_child), (1, set_child), (2, set_any), (1, set_any)):
    factors[number] /= 8
    said = replace(nodes[1 + number], chains.inner(factors[number], deeper=number == 1))
    print(said, chains.result(executable) == chains.expected(chains.with_children(*factors)))
# One that differs in its nodes is refused, and changes nothing.
before = chains.result(executable)
print(set_child(nodes[1], chains.inner(0.5, steps=9)), set_any(nodes[1], chains.inner(0.5, steps=11)))
print(set_child(nodes[2], chains.inner(0.5)), chains.result(executable) == before)
"""


@pytest.mark.usefixtures("company")
def test_a_child_graph_is_replaced(tenant: Start, path: Path, run_python: RunPython) -> None:
    steer(path, gate_every_us=45)
    one = tenant("opportunistic", CHILDREN)
    failed = "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE"
    assert one.finish().splitlines() == [
        "True",
        *["CUDA_SUCCESS True"] * 4,
        f"{failed} {failed}",
        f"{failed} True",
    ]
    assert one.total("gates") > 10


# How many gates a chain of so many kernels gets that were never timed, and so are taken for 10 us each.
COUNTING = """
import sys
from graphs import Chains, check, driver
chains = Chains()
print('ready')
for line in sys.stdin:
    nested, kernels = (int(word) for word in line.split())
    graph = check(driver.cuGraphCreate(0)); inner = check(driver.cuGraphCreate(0)) if nested else graph
    last = chains.begin(graph)
    chain_of = (None if nested else last)
    for _ in range(kernels - 1):
        chain_of = chains.node(inner, chains.gpu.kernel('empty'), (), (), [chain_of] if chain_of else [])
    if nested: check(driver.cuGraphAddChildGraphNode(graph, [last], 1, inner))
    check(driver.cuGraphInstantiate(graph, 0))
    print('did')
"""


@pytest.mark.usefixtures("company")
@pytest.mark.parametrize("nested", [0, 1])
def test_gates_are_no_further_apart_than_the_knob_says(
    tenant: Start, tenants_now: TenantsNow, path: Path, nested: int
) -> None:
    steer(path, gate_every_us=30)
    one = ready(tenant("opportunistic", COUNTING))
    before = 0
    for kernels, gates in ((3, 0), (4, 1), (6, 1), (7, 2), (9, 2), (10, 3), (40, 13)):
        assert order(one, f"{nested} {kernels}") == "did"
        now = gates_of(tenants_now(), one)
        assert (kernels, now - before) == (kernels, gates)
        before = now


# Waits in the call that looks a node up, for as long as the program says so.
WAITING_DRIVER = """
#include <unistd.h>
int waits, began[2], goes_on[2];
int cuGraphNodeFindInClone(void* out, void* node, void* clone) {
    int (*real)(void*, void*, void*) = dlsym(RTLD_NEXT, "cuGraphNodeFindInClone");
    char byte = 0;
    if (waits && write(began[1], &byte, 1) == 1 && read(goes_on[0], &byte, 1) != 1) return 999;
    return real(out, node, clone);
}
"""
FORKING = """
import ctypes, os, signal, threading
from graphs import Chains, N, check, driver, f32, nodes_of, u64
chains = Chains(); graph = chains.chain(0.5); executable = check(driver.cuGraphInstantiate(graph, 0))
wanted = chains.parameters(chains.fill, (chains.a, 2.0, N), (u64, f32, u64)); node = nodes_of(graph)[0]
def change(): return int(driver.cuGraphExecKernelNodeSetParams(executable, node, wanted)[0])
own = ctypes.CDLL(os.environ['COTENANT_DRIVER'])
began, goes_on = os.pipe(), os.pipe()
for name, pipe in (('began', began), ('goes_on', goes_on)): (ctypes.c_int * 2).in_dll(own, name)[:] = pipe
waits = ctypes.c_int.in_dll(own, 'waits'); waits.value = 1
def other():
    chains.gpu.use(); print(change())
thread = threading.Thread(target=other); thread.start(); os.read(began[0], 1)
# The other thread is inside, and holds what it holds.
child = os.fork()
if child == 0:
    signal.alarm(30)
    updated, destroyed = driver.cuGraphExecUpdate(executable, graph), driver.cuGraphExecDestroy(executable)
    os._exit(0 if change() and int(updated[0]) and int(destroyed[0]) else 1)
print(os.waitpid(child, 0)[1])
waits.value = 0; os.write(goes_on[1], b'x'); thread.join()
print(chains.result(executable) == chains.expected(graph), check(driver.cuGraphExecDestroy(executable)))
"""


@pytest.mark.skipif(REAL_GPU, reason="a driver of the test's own")
def test_a_child_that_is_forked_meanwhile_is_not_held_up(
    preloaded: dict[str, str], run_python: RunPython, driver_with: Callable[[str], Path]
) -> None:
    told = {"COTENANT_DRIVER": str(driver_with(WAITING_DRIVER)), "COTENANT_CLASS": "opportunistic"}
    done = run_python(FORKING, preloaded | told)
    # A forked child cannot use the GPU: it gets errors, as without us. The parent goes on.
    assert done.stdout.splitlines() == ["0", "0", "False ()"], done.stderr


# Gives every graph the exec of the first, as a driver may whose first exec has ended with its context; keeps which node
# it was last asked for.
ONE_EXEC = """
void *exec, *asked;
int cuGraphInstantiateWithFlags(void** out, void* graph, unsigned long long flags) {
    int (*real)(void**, void*, unsigned long long) = dlsym(RTLD_NEXT, "cuGraphInstantiateWithFlags");
    int result = exec ? 0 : real(&exec, graph, flags);
    *out = exec;
    return result;
}
int cuGraphExecKernelNodeSetParams_v2(void* in, void* node, void* parameters) {
    (void)in, (void)parameters;
    asked = node;
    return 0;
}
"""
TWO_GRAPHS = """
import ctypes, os
from graphs import Chains, nodes_of
chains = Chains(); long, short = chains.chain(0.5), chains.chain(0.5, steps=0); node = int(nodes_of(long)[0])
interposer = ctypes.CDLL('libcuda.so.1')  # the bindings would find the software GPU's own
asked = ctypes.c_void_p.in_dll(ctypes.CDLL(os.environ['COTENANT_DRIVER']), 'asked'); made = ctypes.c_void_p()
for graph in (ctypes.c_void_p(int(one)) for one in (long, short)):
    assert interposer.cuGraphInstantiateWithFlags(ctypes.byref(made), graph, ctypes.c_uint64(0)) == 0
    interposer.cuGraphExecKernelNodeSetParams_v2(made, ctypes.c_void_p(node), None)
    print('its own' if asked.value == node else 'with gates')
"""


@pytest.mark.skipif(REAL_GPU, reason="a driver of the test's own")
def test_an_exec_is_not_taken_for_an_earlier_one_with_its_handle(
    path: Path, preloaded: dict[str, str], run_python: RunPython, driver_with: Callable[[str], Path]
) -> None:
    steer(path, gate_every_us=15)
    told = {"COTENANT_DRIVER": str(driver_with(ONE_EXEC)), "COTENANT_CLASS": "opportunistic"}
    done = run_python(TWO_GRAPHS, preloaded | told)
    assert done.stdout.splitlines() == ["with gates", "its own"], done.stderr
