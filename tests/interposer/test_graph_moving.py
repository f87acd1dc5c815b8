"""Graph calls that name evicted memory wait until it is back, and then do what they would have done."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.interposer.test_gates import order
from tests.interposer.test_pause import pause, resume

if TYPE_CHECKING:
    from tests.conftest import Run
    from tests.interposer.conftest import Tenant

    Start = Callable[..., Tenant]

# Graphs over two pieces of memory that can move. Each call is made by its name, and answers with a result's number.
CALLS = """
import sys, threading
from graphs import Chains, check, driver, nodes_of
chains = Chains(); context = chains.gpu.context
def copy(length):
    wanted = driver.CUDA_MEMCPY3D(); wanted.WidthInBytes, wanted.Height, wanted.Depth = length, 1, 1
    wanted.srcMemoryType = wanted.dstMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
    wanted.srcDevice, wanted.dstDevice = chains.a, chains.b
    return wanted
def clear(length):
    wanted = driver.CUDA_MEMSET_NODE_PARAMS()
    wanted.dst, wanted.elementSize, wanted.width, wanted.height, wanted.value = chains.c, 4, length, 1, 7
    return wanted
def any_node(length):
    wanted = driver.CUgraphNodeParams(); wanted.type = driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_MEMCPY
    wanted.memcpy.copyCtx = context; wanted.memcpy.copyParams = copy(length)
    return wanted
class Case:
    def __init__(self):
        self.graph = check(driver.cuGraphCreate(0))
        self.copying = check(driver.cuGraphAddMemcpyNode(self.graph, None, 0, copy(64), context))
        self.clearing = check(driver.cuGraphAddMemsetNode(self.graph, [self.copying], 1, clear(16), context))
        self.executable = check(driver.cuGraphInstantiate(self.graph, 0))
calls = dict(
    add_copy=lambda at: driver.cuGraphAddMemcpyNode(at.graph, None, 0, copy(64), context),
    add_clear=lambda at: driver.cuGraphAddMemsetNode(at.graph, None, 0, clear(16), context),
    add_any=lambda at: driver.cuGraphAddNode(at.graph, None, None, 0, any_node(64)),
    set_copy=lambda at: driver.cuGraphMemcpyNodeSetParams(at.copying, copy(128)),
    set_clear=lambda at: driver.cuGraphMemsetNodeSetParams(at.clearing, clear(32)),
    set_any=lambda at: driver.cuGraphNodeSetParams(at.copying, any_node(128)),
    set_copy_of_exec=lambda at: driver.cuGraphExecMemcpyNodeSetParams(at.executable, at.copying, copy(128), context),
    set_clear_of_exec=lambda at: driver.cuGraphExecMemsetNodeSetParams(at.executable, at.clearing, clear(32), context),
    set_any_of_exec=lambda at: driver.cuGraphExecNodeSetParams(at.executable, at.copying, any_node(128)),
    update=lambda at: driver.cuGraphExecUpdate(at.executable, at.graph),
    instantiate=lambda at: driver.cuGraphInstantiate(at.graph, 0),
    instantiate_with=lambda at: driver.cuGraphInstantiateWithParams(at.graph, driver.CUDA_GRAPH_INSTANTIATE_PARAMS()),
    upload=lambda at: driver.cuGraphUpload(at.executable, chains.stream),
    launch=lambda at: driver.cuGraphLaunch(at.executable, chains.stream),
)
cases = {name: Case() for name in calls}; results = {}
def make(name):
    chains.gpu.use()
    results[name] = int(calls[name](cases[name])[0])
threads = [threading.Thread(target=make, args=[name]) for name in calls]
print(len(calls), flush=True)
for line in sys.stdin:
    if line == 'start\\n':
        for thread in threads: thread.start()
    if line == 'wait\\n':
        for thread in threads: thread.join()
    print(' '.join(f'{name}={result}' for name, result in results.items()), flush=True)
"""


def test_they_wait_for_the_restore(tenant: Start, cotenant: Run) -> None:
    one = tenant("opportunistic", CALLS, COTENANT_OVERSUBSCRIBE="1")
    count = int(one.hear())
    pause(cotenant, one)
    # WHEN a thread each makes one of the calls, THEN none comes back
    assert order(one, "start") == ""
    for _ in range(10):
        assert order(one, "look") == ""
    resume(cotenant, one)
    results = dict(result.split("=") for result in order(one, "wait").split())
    assert results == dict.fromkeys(results, "0")
    assert len(results) == count == 14
