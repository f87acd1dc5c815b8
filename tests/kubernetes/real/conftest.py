"""One real cluster for all tests of this folder, and up to two real nodes, each made when a test first wants it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cotenant.kubernetes import manifests
from cotenant.launch import native_files
from tests.kubernetes.real.control_plane import PROGRAMS, ControlPlane, binaries
from tests.kubernetes.real.node import RealNode, required
from tests.kubernetes.real.pods import RESOURCE, remove_all

Programs = dict[str, Path]
TEST_SECONDS = 1800  # of which a wait for one thing takes PATIENCE_SECONDS at most
OF_NODES = "programs_of_pods"  # what every test with a real node needs


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of the cluster as a whole come first: real nodes would offer GPUs to them, and their agents what an
    uninstallation has just removed. Then a whole installation: its agent would come to all nodes."""
    here = Path(__file__).parent
    ours = [item for item in items if item.path.parent == here]

    def turn(item: pytest.Item) -> int:
        fixtures = getattr(item, "fixturenames", ())
        return 1 if "whole" in fixtures else 2 if OF_NODES in fixtures else 0

    others = iter(sorted(ours, key=turn))
    items[:] = [next(others) if item.path.parent == here else item for item in items]
    for item in ours:
        item.add_marker(pytest.mark.timeout(TEST_SECONDS))


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    binaries(*PROGRAMS)
    made = ControlPlane(tmp_path_factory.mktemp("control-plane"))
    try:
        try:
            made.start()
        except (AssertionError, pytest.fail.Exception) as error:  # nothing of ours is in it
            pytest.skip(f"a control plane does not run here: {error}")
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="session")
def programs_of_pods(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    """What pods have in /bin beside a shell: `program` allocates, `requests` serves or trains."""
    required()
    folder = tmp_path_factory.mktemp("programs")
    here = Path(__file__).parent
    for name, source in {"program": here.parent / "allocate.c", "requests": here / "requests.c"}.items():
        subprocess.run(["cc", "-w", "-o", str(folder / name), str(source), "-ldl"], check=True)
    return {name: folder / name for name in ("program", "requests")}


@pytest.fixture(scope="session")
def node(control_plane: ControlPlane, programs_of_pods: Programs) -> Iterator[RealNode]:
    with real_node(control_plane, programs_of_pods) as made:
        yield made


@pytest.fixture(scope="session")
def other_node(control_plane: ControlPlane, programs_of_pods: Programs) -> Iterator[RealNode]:
    """Beside `node` on the same machine: its own kubelet, containerd, mount namespace, cgroups, segment, GPU."""
    with real_node(control_plane, programs_of_pods) as made:
        yield made


@contextlib.contextmanager
def real_node(plane: ControlPlane, programs: Programs) -> Iterator[RealNode]:
    for made in (*manifests.device_classes(), *manifests.priority_classes()):
        plane.cluster.apply(made)
    # Sockets have short paths.
    with (
        tempfile.TemporaryDirectory(prefix="cotenant-node-", ignore_cleanup_errors=True) as folder,
        tempfile.TemporaryDirectory(prefix="cotenant-gpu-", ignore_cleanup_errors=True) as sockets,
    ):
        softgpu = {
            "LD_LIBRARY_PATH": str(native_files.softgpu()),
            "COTENANT_SOFTGPU": "small",
            "COTENANT_SOFTGPU_DIR": sockets,
        }
        node = RealNode(plane, f"real-{os.urandom(3).hex()}", Path(folder), softgpu)
        try:
            node.start(programs)
            yield node
        finally:
            node.stop()
            plane.cluster.delete(RESOURCE, "ResourceSlice", f"{node.name}-cotenant.dev")
            plane.cluster.delete("v1", "Node", node.name)


@pytest.fixture
def emptied(node: RealNode) -> Iterator[None]:
    """Whatever a test has left on the node is not the next one's."""
    yield
    remove_all(node)
