"""GPUs as extended resources, for clusters without Dynamic Resource Allocation.

    resources:
      limits:
        cotenant.dev/production: 20      # percent of one GPU's memory, in the class production

Kubelet counts units and knows nothing of memory. So the administrator divides each GPU's memory between the classes
once, and a unit of a class is one percent of a GPU's memory out of the class's part: whatever kubelet gives away, the
sum fits. Kubelet does not say when a container has ended; a unit is in at most one container, and its files are
written anew when it is given away again.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc

from cotenant import classes, units
from cotenant.errors import USAGE, Problem, narrate, unknown
from cotenant.kubernetes import names
from cotenant.kubernetes.claims import Given, Terms
from cotenant.kubernetes.inventory import Device
from cotenant.kubernetes.node import container, durable, protocol
from cotenant.kubernetes.node.agent import LOOK_SECONDS, State
from cotenant.kubernetes.node.services import Served, caller
from cotenant.kubernetes.parameters import Parameters

VERSION = "v1beta1"
HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"
KUBELET_SOCKET = "kubelet.sock"
WHOLE = 100


def parse_split(text: str) -> dict[str, int]:
    """`production=50,standard=25,opportunistic=25`: percent of each GPU's memory. Raises Problem."""
    split: dict[str, int] = {}
    for part in text.split(","):
        name, _, percent = part.strip().partition("=")
        if name not in classes.NAMES:
            raise unknown("class", name, classes.NAMES)
        if not percent.removesuffix("%").isdecimal():
            raise Problem(f"no percentage: '{part.strip()}'", "give it as production=50", USAGE)
        split[name] = int(percent.removesuffix("%"))
    if sum(split.values()) > WHOLE:
        raise Problem(f"the classes together have {sum(split.values())}% of a GPU", "100% is all", USAGE)
    return {name: percent for name, percent in split.items() if percent}


class Plugin:
    """One class of one node. A unit's ID is its device, a colon, and its number."""

    def __init__(
        self,
        tenant_class: str,
        percent: int,
        devices: Sequence[Device],
        state: State,
        folder: Path,
        host: container.Host,
        cdi_folders: Sequence[Path] = (Path("/etc/cdi"), Path("/var/run/cdi")),
    ) -> None:
        self.tenant_class = tenant_class
        self.resource = f"{names.DRIVER}/{tenant_class}"
        self.devices = {device.name: device for device in devices}
        self.state = state
        self._percent = percent
        self._folder = folder / "units" / tenant_class
        self._host = host
        self._cdi_folders = cdi_folders
        self._lock = threading.Lock()

    def handlers(self) -> dict[str, Any]:
        return {
            "GetDevicePluginOptions": self.options,
            "ListAndWatch": self.watch,
            "GetPreferredAllocation": self.prefer,
            "Allocate": self.allocate,
            "PreStartContainer": lambda request, context: protocol.device_plugin.PreStartContainerResponse(),
        }

    def options(self, request: Any, context: Any) -> Any:
        return protocol.device_plugin.DevicePluginOptions(get_preferred_allocation_available=True)

    def watch(self, request: Any, context: Any) -> Iterator[Any]:
        for _, problems in self.state.news(context):
            yield protocol.device_plugin.ListAndWatchResponse(
                devices=[
                    protocol.device_plugin.Device(
                        ID=f"{name}:{number}", health=UNHEALTHY if problems.get(name) else HEALTHY
                    )
                    for name in self.devices
                    for number in range(self._percent)
                ]
            )

    def prefer(self, request: Any, context: Any) -> Any:
        response = protocol.device_plugin.PreferredAllocationResponse()
        for asked in request.container_requests:
            chosen = of_one_gpu(
                asked.available_deviceIDs, asked.must_include_deviceIDs, asked.allocation_size
            )
            response.container_responses.add(deviceIDs=chosen)
        return response

    def allocate(self, request: Any, context: Any) -> Any:
        response = protocol.device_plugin.AllocateResponse()
        for asked in request.container_requests:
            try:
                response.container_responses.append(self.give(list(asked.devices_ids)))
            except (Problem, OSError) as error:
                message = error.message if isinstance(error, Problem) else str(error)
                narrate(f"{self.resource}: {message}")
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, message)
        return response

    def give(self, ids: Sequence[str]) -> Any:
        """What a container gets for these units. Raises Problem."""
        gpus = {one.partition(":")[0] for one in ids}
        if len(gpus) != 1 or not gpus <= self.devices.keys():
            raise Problem(f"no GPU has {len(ids)}% of its memory left for {self.resource}")
        device = self.devices[gpus.pop()]
        size = device.memory_bytes * len(ids) // WHOLE
        given = Given("", "", device.name, memory=max(size, units.LEAST_LIMIT))
        first = min(ids).replace(":", "-")
        run = str(uuid.uuid4())
        terms = Terms(run, self.tenant_class, first, self.tenant_class, (given,), Parameters())
        with self._lock:
            self._folder.mkdir(parents=True, exist_ok=True)
            file = self._folder / first
            durable.write(file, container.identity(terms, softgpu=self._host.softgpu is not None))
        answer = protocol.device_plugin.ContainerAllocateResponse()
        edits = container.edits([device.uuid], file, self._host)
        for mount in edits["mounts"]:
            answer.mounts.add(
                container_path=mount["containerPath"],
                host_path=mount["hostPath"],
                read_only="ro" in mount["options"],
            )
        for variable in edits.get("env", ()):
            name, _, value = variable.partition("=")
            answer.envs[name] = value
        if not self._host.softgpu:
            known = container.nvidia_devices(self._cdi_folders)
            answer.cdi_devices.add(name=container.nvidia_id(device, known))
        return answer


def of_one_gpu(available: Sequence[str], included: Sequence[str], size: int) -> list[str]:
    """Units of one GPU: of the one with the fewest left that has enough. Nothing where none has."""
    by_gpu: dict[str, list[str]] = {}
    for one in available:
        by_gpu.setdefault(one.partition(":")[0], []).append(one)
    if included:
        by_gpu = {gpu: ids for gpu, ids in by_gpu.items() if gpu == included[0].partition(":")[0]}
    fitting = [ids for ids in by_gpu.values() if len(ids) >= size]
    if not fitting:
        return list(included)
    fullest: list[str] = min(fitting, key=len)
    rest = [one for one in sorted(fullest) if one not in included]
    return [*included, *rest][:size]


class Plugins:
    """The plugins of all classes, on sockets of their own, registered with kubelet again whenever it restarts."""

    def __init__(self, folder: Path, plugins: Sequence[Plugin]) -> None:
        self._folder = folder
        self._plugins = plugins
        self._served: dict[str, Served] = {}
        self._kubelet: int | None = None
        self._waits_as = ""  # said once

    def serve(self) -> None:
        for plugin in self._plugins:
            served = self._served.get(plugin.resource)
            if served and served.is_there():
                continue
            if served:
                served.stop()
            service = (protocol.DEVICE_PLUGIN_SERVICE, plugin.handlers())
            self._served[plugin.resource] = Served(self._socket(plugin), {"plugin": service})
            self._kubelet = None
        try:
            kubelet = (self._folder / KUBELET_SOCKET).stat().st_ino
        except OSError:
            self._kubelet = None  # the next one's socket may get the same number
            self._wait("is not there")
            return
        if kubelet != self._kubelet and all(map(self._register, self._plugins)):
            self._kubelet = kubelet

    def _socket(self, plugin: Plugin) -> Path:
        return self._folder / f"{names.DRIVER}-{plugin.tenant_class}.sock"

    def _register(self, plugin: Plugin) -> bool:
        request = protocol.device_plugin.RegisterRequest(
            version=VERSION,
            endpoint=self._socket(plugin).name,
            resource_name=plugin.resource,
            options=plugin.options(None, None),
        )
        try:
            with grpc.insecure_channel(f"unix://{self._folder / KUBELET_SOCKET}") as channel:
                caller(channel, protocol.DEVICE_PLUGIN_REGISTRATION, "Register")(request, timeout=10)
        except grpc.RpcError as error:
            if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                self._wait("does not answer")
            else:
                narrate(f"kubelet refused {plugin.resource}: {error.details()}")
            return False
        self._waits_as = ""
        narrate(f"kubelet has registered {plugin.resource}")
        return True

    def _wait(self, why: str) -> None:
        if why != self._waits_as:
            narrate(f"waiting for kubelet: {self._folder / KUBELET_SOCKET} {why}")
        self._waits_as = why

    def stop(self) -> None:
        for served in self._served.values():
            served.stop()

    def run(
        self,
        state: State,
        look: Callable[[], Mapping[str, str]],
        tidy: Callable[[], None],
        until: threading.Event,
    ) -> None:
        """Until told to end, as Agent.run."""
        while not until.is_set():
            self.serve()
            tidy()
            state.put(look())
            until.wait(LOOK_SECONDS)
        state.end()
        self.stop()
