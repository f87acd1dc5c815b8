"""The agent of a node: offers its GPUs to the scheduler, and prepares claims when kubelet asks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cotenant.errors import Failing, Problem, narrate
from cotenant.kubernetes import inventory, names
from cotenant.kubernetes.cluster import Cluster
from cotenant.kubernetes.inventory import Device, Taint
from cotenant.kubernetes.node import protocol
from cotenant.kubernetes.node.preparing import RESOURCE, Claims, Prepared
from cotenant.kubernetes.node.protocol import HEALTH_STATUS
from cotenant.kubernetes.node.services import Handler, Served
from cotenant.kubernetes.node.story import NORMAL, WARNING, About, Story
from cotenant.kubernetes.node.tending import Tending

SUPPORTED = ("v1.DRAPlugin", "v1alpha1.DRAResourceHealth")
LOOK_SECONDS = 5.0
TEND_SECONDS, SHORTEST_PAUSE_SECONDS = 1.0, 0.1
STOP_SECONDS = 5.0  # for the last events
FAULT = Taint(f"{names.DRIVER}/fault", "NoExecute")
PROMISE_BROKEN = Taint(f"{names.DRIVER}/promise-broken", "NoSchedule")


@dataclass(frozen=True)
class Places:
    """Kubelet's folders on the node."""

    plugins: Path
    registry: Path

    @property
    def socket(self) -> Path:
        return self.plugins / names.DRIVER / "dra.sock"

    @property
    def registration(self) -> Path:
        return self.registry / f"{names.DRIVER}-reg.sock"


@dataclass
class State:
    """What the node is like now. `changed` wakes the streams that tell kubelet."""

    problems: dict[str, str] = field(default_factory=dict)
    since: float = field(default_factory=time.time)
    ended: bool = False
    changed: threading.Condition = field(default_factory=threading.Condition)

    def put(self, problems: Mapping[str, str]) -> bool:
        """Whether this is news."""
        with self.changed:
            if dict(problems) == self.problems:
                return False
            self.problems, self.since = dict(problems), time.time()
            self.changed.notify_all()
            return True

    def end(self) -> None:
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def news(self, context: Any) -> Iterator[tuple[float, dict[str, str]]]:
        """For a stream to kubelet, until it is cancelled: since when the node has been so, and each device's problem;
        at once and whenever it changes."""
        context.add_callback(self.wake)
        last: float | None = None
        while context.is_active() and not self.ended:
            with self.changed:
                if self.since == last:
                    self.changed.wait(LOOK_SECONDS)
                    continue
                last, problems = self.since, dict(self.problems)
            yield last, problems

    def wake(self) -> None:
        with self.changed:
            self.changed.notify_all()


class Agent:
    def __init__(
        self,
        node: str,
        cluster: Cluster,
        claims: Claims,
        devices: Sequence[Device],
        places: Places,
        overflow_bytes: int,
        order: str = inventory.SPREAD,
        tending: Tending | None = None,
        story: Story | None = None,
    ) -> None:
        self.node = node
        self.cluster = cluster
        self.claims = claims
        self.devices = list(devices)
        self.places = places
        self.overflow_bytes = overflow_bytes
        self.order = order
        self.tending = tending
        self.story = story
        self.state = State({device.name: "" for device in devices})
        self._plugin: Served | None = None
        self._registration: Served | None = None
        self._to_publish = threading.Event()

    # -- kubelet ------------------------------------------------------------------------------------------

    def serve(self) -> None:
        """The plugin first: kubelet calls it as soon as it finds the registration."""
        if not (self._plugin and self._plugin.is_there()):
            if self._plugin:
                self._plugin.stop()
            self._plugin = Served(
                self.places.socket,
                {
                    "dra": (
                        protocol.DRA_SERVICE,
                        {
                            "NodePrepareResources": self.prepare,
                            "NodeUnprepareResources": self.unprepare,
                        },
                    ),
                    "health": (protocol.HEALTH_SERVICE, {"NodeWatchResources": self.watch}),
                },
            )
        if not (self._registration and self._registration.is_there()):
            if self._registration:
                self._registration.stop()
            handlers: dict[str, Handler] = {
                "GetInfo": self.introduce,
                "NotifyRegistrationStatus": self.note_registration,
            }
            self._registration = Served(
                self.places.registration, {"registration": (protocol.REGISTRATION_SERVICE, handlers)}
            )

    def stop(self) -> None:
        self.state.end()
        for served in (self._registration, self._plugin):
            if served:
                served.stop()

    def introduce(self, request: Any, context: Any) -> Any:
        return protocol.registration.PluginInfo(
            type="DRAPlugin",
            name=names.DRIVER,
            endpoint=str(self.places.socket),
            supported_versions=SUPPORTED,
        )

    def note_registration(self, request: Any, context: Any) -> Any:
        if request.plugin_registered:
            narrate(f"kubelet has registered {names.DRIVER}")
        else:
            narrate(f"kubelet refused {names.DRIVER}: {request.error}")
        return protocol.registration.RegistrationStatusResponse()

    def prepare(self, request: Any, context: Any) -> Any:
        response = protocol.dra.NodePrepareResourcesResponse()
        for claim in request.claims:
            answer = response.claims[claim.uid]

            def act(claim: Any = claim, answer: Any = answer) -> None:
                prepared = self.claims.prepare(self.cluster, claim.namespace, claim.name, claim.uid)
                answer.devices.extend(
                    protocol.dra.Device(
                        request_names=[one.request.partition("/")[0]],
                        pool_name=one.pool,
                        device_name=one.device,
                        cdi_device_ids=one.cdi_ids,
                        share_id=one.share_id or None,
                    )
                    for one in prepared
                )
                self.tell(claim, "Prepared", described(prepared, self.node), NORMAL)

            answer.error = self.attempt(claim, "preparing", act)
            if answer.error:
                self.tell(claim, "Refused", answer.error, WARNING)
        return response

    def tell(self, claim: Any, reason: str, message: str, kind: str) -> None:
        if self.story:
            about = About(RESOURCE, "ResourceClaim", claim.namespace, claim.name, claim.uid)
            self.story.tell(about, reason, message, kind)

    def unprepare(self, request: Any, context: Any) -> Any:
        response = protocol.dra.NodeUnprepareResourcesResponse()
        for claim in request.claims:
            response.claims[claim.uid].error = self.attempt(
                claim,
                "unpreparing",
                lambda claim=claim: self.claims.unprepare(claim.uid),  # type: ignore[misc]
            )
        return response

    def attempt(self, claim: Any, what: str, act: Callable[[], None]) -> str:
        """What kubelet is told, and shows in the pod's events; empty: it is done. Kubelet asks again."""
        try:
            act()
        except Problem as problem:
            why = f"{problem.message}; hint: {problem.hint}" if problem.hint else problem.message
        except OSError as error:
            why = f"{what} {claim.namespace}/{claim.name}: {error}"
        else:
            return ""
        narrate(f"{what} {claim.namespace}/{claim.name}: {why}")
        return why

    def watch(self, request: Any, context: Any) -> Iterator[Any]:
        """The health of all devices."""
        for since, problems in self.state.news(context):
            yield protocol.health.NodeWatchResourcesResponse(
                devices=[self.health_of(name, problem, since) for name, problem in problems.items()]
            )

    def health_of(self, name: str, problem: str, since: float) -> Any:
        return protocol.health.DeviceHealth(
            device=protocol.health.DeviceIdentifier(pool_name=self.node, device_name=name),
            health=HEALTH_STATUS["UNHEALTHY" if problem else "HEALTHY"],
            last_updated_time=int(since),
            message=problem,
        )

    # -- the scheduler ------------------------------------------------------------------------------------

    def publish(self) -> None:
        """The node's ResourceSlice, where it is not so already. A new content is a new generation of the pool."""
        broken = self.tending.broken() if self.tending else frozenset()
        taints = {
            device.name: [
                *([FAULT] if self.state.problems.get(device.name) else ()),
                *([PROMISE_BROKEN] if device.name in broken else ()),
            ]
            for device in self.devices
        }
        node = self.cluster.get("v1", "Node", self.node)
        owner = {"name": self.node, "uid": node["metadata"]["uid"]} if node else None
        devices = inventory.ordered(self.devices, self.claims.taken(), self.order)
        made = inventory.slice_of(self.node, devices, self.overflow_bytes, taints, 1, owner)
        there = self.cluster.get(RESOURCE, "ResourceSlice", made["metadata"]["name"])
        if there:
            pool = there["spec"]["pool"]
            made["spec"]["pool"]["generation"] = pool["generation"]
            if same_offer(there["spec"], made["spec"]):
                return
            made["spec"]["pool"]["generation"] = pool["generation"] + 1
        self.cluster.apply(made)

    def keep_published(self, until: threading.Event) -> None:
        """Until told to end."""
        failing = Failing()
        while not until.is_set():
            self._to_publish.wait(LOOK_SECONDS)
            self._to_publish.clear()
            try:
                self.publish()
                failing.is_over()
            except Problem as problem:
                failing.narrate(problem.message)

    def run(
        self, look: Callable[[], Mapping[str, str]], tidy: Callable[[], None], until: threading.Event
    ) -> None:
        """Until told to end. `look` says what is wrong with which device; `tidy` cleans up after tenants that were
        killed. The API server may be away or slow for any time; running pods need neither it nor us."""
        self.claims.restore()
        writing = self.begin_beside(until)
        failing, next_look = Failing(), 0.0
        broken: frozenset[str] = frozenset()
        while not until.is_set():
            is_due = time.monotonic() >= next_look
            if is_due:
                next_look = time.monotonic() + LOOK_SECONDS
                self.serve()
                tidy()
                self.note(look())
            if self.tending:
                self.tend(self.tending, failing)
                is_due |= self.tending.broken() != broken
                broken = self.tending.broken()
            if is_due:
                self._to_publish.set()
            self.wait(until)
        self.stop()
        if writing:
            writing.join(STOP_SECONDS)

    def tend(self, tending: Tending, failing: Failing) -> None:
        """A pod or tenant as nobody foresaw it must not take the node's plugin with it."""
        try:
            tending.look(time.monotonic())
            failing.is_over()
        except Exception as error:
            failing.narrate(f"looking after the tenants failed: {type(error).__name__}: {error}")

    def begin_beside(self, until: threading.Event) -> threading.Thread | None:
        """What waits for the API server has threads of its own: a slow one holds up neither kubelet nor the tenants.
        Returns the one whose end is worth waiting for."""
        following = [self.keep_published, *([self.tending.pods.follow] if self.tending else ())]
        for act in following:
            threading.Thread(target=act, args=(until,), daemon=True).start()
        if not self.story:
            return None
        writing = threading.Thread(target=self.story.write, args=(until,), daemon=True)
        writing.start()
        return writing

    def note(self, problems: Mapping[str, str]) -> None:
        before = dict(self.state.problems)
        if not self.state.put(problems):
            return
        news = {
            name: problem for name, problem in problems.items() if problem and problem != before.get(name)
        }
        for name, problem in news.items():
            narrate(f"{name}: {problem}")
        if self.tending:
            self.tending.faults |= news  # told at its next look

    def wait(self, until: threading.Event) -> None:
        """For the next look, or the next that is heard of a pod."""
        if not self.tending:
            until.wait(LOOK_SECONDS)
            return
        if not until.wait(SHORTEST_PAUSE_SECONDS):
            self.tending.pods.changed.wait(TEND_SECONDS)
            self.tending.pods.changed.clear()


def described(prepared: Sequence[Prepared], node: str) -> str:
    return f"on {node}: {', '.join(one.device for one in prepared)}"


def same_offer(there: Mapping[str, Any], made: Mapping[str, Any]) -> bool:
    """The API server fills in the time of a taint."""

    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: plain(one) for key, one in value.items() if key != "timeAdded"}
        return [plain(one) for one in value] if isinstance(value, list) else value

    return bool(plain(there) == plain(made))
