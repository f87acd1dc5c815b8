"""Round after round: look at the cluster, decide, carry out.

Nothing is kept but what was just done and the cluster does not show yet. A placer that is killed at any point leaves
pods that are gated or released, and claims that say for which GPU they are; the next one goes on from there.

A released pod that the scheduler cannot bind for PATIENCE_SECONDS (another claim was faster, the node has no CPU left)
gets its claim anew, without a GPU: nobody waits because of the placer.
"""

from __future__ import annotations

import contextlib
import datetime
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from cotenant.cluster.placement.interface import Placement
from cotenant.cluster.placement.interference import Interference
from cotenant.errors import Failing, Problem, narrate
from cotenant.kubernetes.cluster import Cluster
from cotenant.kubernetes.placer import gate
from cotenant.kubernetes.placer.release import by_name
from cotenant.kubernetes.placer.round import Named, Placed, decide

Object = dict[str, Any]
Look = Callable[[str, str], list[Object]]
Item = TypeVar("Item")
Result = TypeVar("Result")

PATIENCE_SECONDS = 30.0
ROUND_SECONDS = 1.0  # pods that come together are matched together
LOOK_SECONDS = 5.0
RECENT_SECONDS = 60.0
AGAIN_SECONDS = 10.0  # until a pod is tried again of which the API server has refused something
AT_ONCE = 8  # requests to the API server: each is answered when it is on etcd's disk
RESOURCE = gate.RESOURCE


@dataclass
class Placer:
    cluster: Cluster
    look: Look  # all objects of a version and kind
    policy: Placement
    interference: Interference
    now: Callable[[], float] = time.time
    _recent: dict[tuple[str, str], tuple[float, Object]] = field(default_factory=dict)
    _told: dict[str, str] = field(default_factory=dict)  # why a pod waits, by its UID
    _again: dict[str, float] = field(default_factory=dict)  # when a refused pod is tried again, by its UID

    def round(self) -> int:
        """How many pods were released or freed. Raises Problem, after all has been tried."""
        # Claims are looked at after pods: a released pod's claim is never missing.
        pods = self.look("v1", "Pod")
        templates = by_name(self.look(RESOURCE, "ResourceClaimTemplate"))
        claims = by_name(self.look(RESOURCE, "ResourceClaim"))
        claims |= self._not_seen_yet(claims)
        self._again = {uid: when for uid, when in self._again.items() if when > self.now()}
        unbound = [pod for pod in pods if is_unbound(pod)]
        due = [pod for pod in unbound if pod["metadata"]["uid"] not in self._again]
        closed = [pod for pod in due if gate.is_closed(pod)]
        failed: list[Problem] = []
        done = 0
        if closed:
            slices, nodes = self.look(RESOURCE, "ResourceSlice"), self.look("v1", "Node")
            found = decide(closed, templates, claims, slices, nodes, self.policy, self.interference)
            done += sum(
                at_once(
                    lambda one: self.attempt(one.pod, lambda: self.release(one, templates, claims)),
                    found.placed,
                    failed,
                )
            )
            at_once(lambda one: self.tell(*one), found.waiting, failed)
        opened = [pod for pod in due if not gate.is_closed(pod)]
        done += sum(
            at_once(lambda pod: self.attempt(pod, lambda: self.free(pod, templates, claims)), opened, failed)
        )
        still = {one["metadata"]["uid"] for one in unbound}
        self._told = {uid: why for uid, why in self._told.items() if uid in still}
        if failed:
            raise failed[0]
        return done

    def attempt(self, pod: Object, act: Callable[[], bool]) -> bool:
        """What the API server refuses of one pod, such as a claim over its namespace's quota, the pod is told. It takes
        no GPU from others until it is tried again. Raises Problem where it cannot be told."""
        try:
            return act()
        except Problem as problem:
            self._again[pod["metadata"]["uid"]] = self.now() + AGAIN_SECONDS
            self.tell(pod, problem.message)
            return False

    def _not_seen_yet(self, claims: Named) -> Named:
        late = self.now() - RECENT_SECONDS
        self._recent = {
            key: (since, claim)
            for key, (since, claim) in self._recent.items()
            if key not in claims and since > late
        }
        return {key: claim for key, (_, claim) in self._recent.items()}

    def release(self, one: Placed, templates: Named, claims: Named) -> bool:
        pod, gpu = one.pod, one.gpu
        namespace = pod["metadata"]["namespace"]
        chosen = (gpu.node, gpu.device, gpu.uuid) if gpu else None
        for claim, template in gate.templates_of(pod).items():
            if (namespace, claim) not in claims:
                made = gate.claim_for(pod, claim, templates[namespace, template], chosen)
                self.cluster.create(made)
                self._recent[namespace, claim] = (self.now(), made)
        name = pod["metadata"]["name"]
        if gpu:
            with contextlib.suppress(Problem):  # it is a hint
                self.cluster.patch_status("v1", "Pod", name, namespace, gate.nominated(pod, gpu.node))
        if not self.cluster.patch("v1", "Pod", name, namespace, gate.opened(pod)):
            return False  # it has changed, or is gone: the next round sees
        where = f"{gpu.node}/{gpu.device}" if gpu else f"the scheduler's choice: {one.why}"
        narrate(f"{namespace}/{name}: {where}")
        return True

    def is_stuck(self, pod: Object) -> bool:
        for condition in (pod.get("status") or {}).get("conditions") or ():
            if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable":
                since = condition.get("lastTransitionTime")
                return bool(since) and self.now() - seconds_of(since) > PATIENCE_SECONDS
        return False

    def free(self, pod: Object, templates: Named, claims: Named) -> bool:
        """The scheduler may choose any GPU for a pod that is stuck. A released pod's claim that is missing was deleted
        here, and could not be created again."""
        namespace, is_stuck = pod["metadata"]["namespace"], self.is_stuck(pod)
        freed = False
        for name, template in gate.templates_of(pod).items():
            if (namespace, template) not in templates:
                continue
            claim = claims.get((namespace, name))
            if claim and not (is_stuck and self.let_go(claim)):
                continue
            made = gate.claim_for(pod, name, templates[namespace, template], None)
            if self.cluster.create(made):
                self._recent[namespace, name] = (self.now(), made)
                freed = True
        if freed:
            narrate(f"{namespace}/{pod['metadata']['name']}: the scheduler's choice, since it does not fit")
        return freed

    def let_go(self, claim: Object) -> bool:
        """Deletes a claim that is for one GPU, unless the scheduler has allocated it."""
        if not gate.gpu_of(claim) or (claim.get("status") or {}).get("allocation"):
            return False
        metadata = claim["metadata"]
        version = metadata.get("resourceVersion", "")
        return self.cluster.delete(
            RESOURCE, "ResourceClaim", metadata["name"], metadata["namespace"], version
        )

    def tell(self, pod: Object, why: str) -> None:
        """Once for each reason."""
        uid = pod["metadata"]["uid"]
        if self._told.get(uid) == why:
            return
        self.cluster.create(event(pod, why, self.now()))
        self._told[uid] = why

    def run(self, changed: threading.Event, until: threading.Event) -> None:
        failing = Failing()
        while not until.is_set():
            changed.wait(LOOK_SECONDS)
            changed.clear()
            try:
                self.round()
                failing.is_over()
            except Problem as problem:
                failing.narrate(problem.message)
            until.wait(ROUND_SECONDS)


def is_unbound(pod: Object) -> bool:
    return not pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]


def at_once(act: Callable[[Item], Result], items: Iterable[Item], failed: list[Problem]) -> list[Result]:
    """Acts on all, several at a time, and adds to `failed` what went wrong: one that fails holds up no other."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        acting = [pool.submit(act, item) for item in items]
    done = []
    for one in acting:
        try:
            done.append(one.result())
        except Problem as problem:
            failed.append(problem)
    return done


def seconds_of(text: str) -> float:
    return datetime.datetime.fromisoformat(text).timestamp()


def event(pod: Object, why: str, now: float) -> Object:
    metadata = pod["metadata"]
    moment = datetime.datetime.fromtimestamp(now, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{metadata['name'][:200]}.{int(now * 1e6):x}",
            "namespace": metadata["namespace"],
        },
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
        },
        "type": "Normal",
        "reason": "WaitingForGPU",
        "message": why,
        "source": {"component": "cotenant-placer"},
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }
