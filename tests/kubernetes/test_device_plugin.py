"""Extended resources for clusters without DRA, as kubelet sees them over real sockets."""

from __future__ import annotations

import contextlib
import socket as socketlib
import tempfile
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest

from cotenant.errors import Problem
from cotenant.kubernetes.inventory import Device
from cotenant.kubernetes.node import container, protocol
from cotenant.kubernetes.node.agent import State
from cotenant.kubernetes.node.device_plugin import Plugin, Plugins, of_one_gpu, parse_split
from cotenant.kubernetes.node.services import caller, generic

MIB = 1 << 20
DEVICES = [Device("gpu-0", "GPU-0", "small", 1000 * MIB), Device("gpu-1", "GPU-1", "small", 1000 * MIB)]


class Kubelet:
    """Listens for registrations."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.registered: list[tuple[str, str]] = []
        self.start()

    def start(self) -> None:
        (self.folder / "kubelet.sock").unlink(missing_ok=True)
        self.server = grpc.server(futures.ThreadPoolExecutor(2))
        handlers = {"Register": self.register}
        self.server.add_generic_rpc_handlers((generic(protocol.DEVICE_PLUGIN_REGISTRATION, handlers),))
        self.server.add_insecure_port(f"unix://{self.folder}/kubelet.sock")
        self.server.start()

    def register(self, request: Any, context: Any) -> Any:
        assert request.version == "v1beta1"
        self.registered.append((request.resource_name, request.endpoint))
        return protocol.device_plugin.Empty()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[tuple[Kubelet, Plugins, State, Path]]:
    folder = Path(tempfile.mkdtemp(prefix="cotenant-test-"))
    host = container.Host(tmp_path / "native", tmp_path / "preload", tmp_path / "segment", tmp_path / "gpu")
    state = State({device.name: "" for device in DEVICES})
    split = parse_split("production=60,opportunistic=40%")
    made = [Plugin(name, percent, DEVICES, state, tmp_path, host) for name, percent in split.items()]
    kubelet, plugins = Kubelet(folder), Plugins(folder, made)
    plugins.serve()
    yield kubelet, plugins, state, tmp_path
    state.end()
    plugins.stop()
    kubelet.server.stop(0).wait()


def call(folder: Path, method: str, request: Any) -> Any:
    with grpc.insecure_channel(f"unix://{folder}/cotenant.dev-production.sock") as channel:
        return caller(channel, protocol.DEVICE_PLUGIN_SERVICE, method)(request, timeout=20)


def test_each_class_is_a_resource_and_registers_again_with_a_restarted_kubelet(
    node: tuple[Kubelet, Plugins, State, Path],
) -> None:
    kubelet, plugins, _, _ = node
    both = {
        ("cotenant.dev/production", "cotenant.dev-production.sock"),
        ("cotenant.dev/opportunistic", "cotenant.dev-opportunistic.sock"),
    }
    assert set(kubelet.registered) == both
    plugins.serve()
    assert len(kubelet.registered) == 2
    # It removes all sockets when it starts.
    kubelet.server.stop(0).wait()
    for socket in kubelet.folder.iterdir():
        socket.unlink()
    kubelet.start()
    plugins.serve()
    assert set(kubelet.registered[2:]) == both


def test_a_kubelet_that_is_not_there_is_waited_for_in_one_line(
    node: tuple[Kubelet, Plugins, State, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    kubelet, plugins, _, _ = node
    kubelet.server.stop(0).wait()
    socket = kubelet.folder / "kubelet.sock"
    # It is gone; then it has left its socket behind, and nobody listens there.
    socket.unlink(missing_ok=True)
    capsys.readouterr()
    plugins.serve()
    plugins.serve()
    with contextlib.closing(socketlib.socket(socketlib.AF_UNIX)) as left_behind:
        left_behind.bind(str(socket))
    plugins.serve()
    plugins.serve()
    assert capsys.readouterr().err.splitlines() == [
        f"waiting for kubelet: {socket} is not there",
        f"waiting for kubelet: {socket} does not answer",
    ]
    kubelet.start()
    plugins.serve()
    assert len(kubelet.registered) == 4
    assert "kubelet has registered cotenant.dev/production" in capsys.readouterr().err


@pytest.mark.parametrize("folder", ["a file", "x" * 120], ids=["no folder", "too long for a socket"])
def test_where_no_socket_can_be_made_the_place_and_the_remedy_are_named(tmp_path: Path, folder: str) -> None:
    (tmp_path / "a file").touch()
    host = container.Host(tmp_path / "native", tmp_path / "preload", tmp_path / "segment", tmp_path / "gpu")
    plugin = Plugin("production", 60, DEVICES, State({}), tmp_path, host)
    with pytest.raises(Problem) as told:
        Plugins(tmp_path / folder, [plugin]).serve()
    assert str(tmp_path / folder) in told.value.message and "--kubelet" in told.value.hint


def test_units_are_percents_of_each_gpu_and_unhealthy_ones_say_so(
    node: tuple[Kubelet, Plugins, State, Path],
) -> None:
    kubelet, _, state, _ = node
    with grpc.insecure_channel(f"unix://{kubelet.folder}/cotenant.dev-production.sock") as channel:
        watch = caller(channel, protocol.DEVICE_PLUGIN_SERVICE, "ListAndWatch")
        stream = watch(protocol.device_plugin.Empty(), timeout=30)
        devices = next(stream).devices
        assert {device.health for device in devices} == {"Healthy"}
        assert len(devices) == 120
        state.put({"gpu-0": "GPU is lost", "gpu-1": ""})
        ill = {device.ID.partition(":")[0] for device in next(stream).devices if device.health == "Unhealthy"}
        stream.cancel()
    assert ill == {"gpu-0"}


def test_a_container_gets_its_units_of_memory_in_the_class_of_the_resource(
    node: tuple[Kubelet, Plugins, State, Path],
) -> None:
    kubelet, _, _, folder = node
    request = protocol.device_plugin.AllocateRequest()
    request.container_requests.add(devices_ids=[f"gpu-1:{number}" for number in range(20)])
    [answer] = call(kubelet.folder, "Allocate", request).container_responses
    mounts = {mount.container_path: mount for mount in answer.mounts}
    identity = Path(mounts["/etc/cotenant/identity"].host_path).read_text()
    assert "COTENANT_CLASS=production\n" in identity and f"COTENANT_MEMORY={200 * MIB}\n" in identity
    assert mounts["/etc/ld.so.preload"].read_only and not mounts["/dev/shm/cotenant.shared/slots"].read_only
    assert answer.envs["CUDA_VISIBLE_DEVICES"] == "GPU-1"
    # The same units again: no second file, and another run.
    call(kubelet.folder, "Allocate", request)
    [file] = (folder / "units" / "production").iterdir()
    assert file.read_text() != identity


def test_units_of_two_gpus_are_refused(node: tuple[Kubelet, Plugins, State, Path]) -> None:
    kubelet, *_ = node
    request = protocol.device_plugin.AllocateRequest()
    request.container_requests.add(devices_ids=["gpu-0:0", "gpu-1:0"])
    with pytest.raises(grpc.RpcError, match="no GPU has 2% of its memory left"):
        call(kubelet.folder, "Allocate", request)


def test_units_are_preferred_on_the_fullest_gpu_that_has_enough() -> None:
    available = ["a:0", "a:1", "a:2", "b:7", "b:9"]
    assert of_one_gpu(available, [], 2) == ["b:7", "b:9"]
    assert of_one_gpu(available, [], 3) == ["a:0", "a:1", "a:2"]
    assert of_one_gpu(available, ["a:2"], 2) == ["a:2", "a:0"]
    assert of_one_gpu(available, [], 4) == []
    assert of_one_gpu(available, ["b:7"], 3) == ["b:7"]  # what must be there is, though it is not enough


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("produktion=50", "unknown class 'produktion'"),
        ("production=much", "no percentage"),
        ("production=80,standard=30", "110% of a GPU"),
    ],
)
def test_a_split_that_makes_no_sense_is_refused(text: str, message: str) -> None:
    with pytest.raises(Problem) as refused:
        parse_split(text)
    assert message in refused.value.message
