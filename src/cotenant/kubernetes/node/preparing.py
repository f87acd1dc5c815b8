"""Preparing a claim for its containers, and taking that back: each once, however often it is asked for.

    STATE/claims/UID/terms.json, identity      what the claim was given; it appears whole, and goes whole
    STATE/claims/UID/changed.json              what a live change made of it, where there was one
    CDI/cotenant.dev-claim-UID.json            made from it, so that it can be made again

The order makes each crash harmless. Preparing: first the claim's folder, then the CDI file, which nobody uses before
kubelet has our answer. Unpreparing: first the CDI file, then the folder. `restore` puts right what is left of either:
a claim without its CDI file gets it again (a restarted node has an empty /var/run), and a CDI file without its claim
is removed.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from cotenant.errors import Problem, narrate
from cotenant.kubernetes.claims import Given, Terms, terms_of
from cotenant.kubernetes.cluster import Cluster
from cotenant.kubernetes.inventory import Device, Taken
from cotenant.kubernetes.node import container, durable
from cotenant.kubernetes.parameters import Parameters

RESOURCE = "resource.k8s.io/v1"
CHANGED = "changed.json"
CDI_FOLDERS = (Path("/etc/cdi"), Path("/var/run/cdi"))  # where container runtimes look for NVIDIA's files


@dataclass(frozen=True)
class Prepared:
    """A device of a claim as kubelet is told of it."""

    request: str
    pool: str
    device: str
    share_id: str
    cdi_ids: tuple[str, ...]


class Claims:
    """The prepared claims of a node."""

    def __init__(
        self, state: Path, cdi: Path, host: container.Host, pool: str, devices: Sequence[Device]
    ) -> None:
        self._folder = state / "claims"
        self._cdi = cdi
        self._host = host
        self._pool = pool
        self._devices = {device.name: device for device in devices}
        self._lock = threading.Lock()
        self._changes: dict[str, dict[str, int] | None] = {}
        self._unreadable: set[str] = set()  # claims of which that was said

    def prepare(self, cluster: Cluster, namespace: str, name: str, uid: str) -> list[Prepared]:
        """Raises Problem. A claim that is prepared already needs no API server; one that is slow holds up no other
        claim."""
        terms = self._saved(uid)
        if terms is None:
            terms = self._allocated(cluster, namespace, name, uid)
            self._check_containers(cluster, terms)
        answer = self._answer(terms)  # before anything is written: it may find what is wrong
        with self._lock:
            if self._saved(uid) is None:
                files = {
                    "terms.json": json.dumps(asdict(terms)),
                    "identity": container.identity(terms, softgpu=self._host.softgpu is not None),
                }
                self._folder.mkdir(parents=True, exist_ok=True)
                durable.remove_folder(self._folder / uid)  # of a claim that cannot be read
                durable.write_folder(self._folder / uid, files)
            self._write_cdi(terms)
            return answer

    def unprepare(self, uid: str) -> None:
        """Also of a claim that is not known: its node's agent may have been killed before it said so."""
        check_uid(uid)
        with self._lock:
            (self._cdi / container.file_name(uid)).unlink(missing_ok=True)
            durable.remove_folder(self._folder / uid)
            self._changes.pop(uid, None)

    def restore(self) -> None:
        """After a crash or a restart of the node."""
        with self._lock:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._cdi.mkdir(parents=True, exist_ok=True)
            durable.sweep(self._folder)
            # Also those that cannot be read: their containers may be started again.
            known = {folder.name for folder in self._folder.iterdir()}
            for file in self._cdi.iterdir():
                uid = container.uid_in(file.name.removeprefix(durable.NEW))
                if uid is not None and (uid not in known or file.name.startswith(durable.NEW)):
                    file.unlink(missing_ok=True)
            for terms in self.all():
                # One whose GPU is gone is unprepared by kubelet, when its pod ends.
                with contextlib.suppress(Problem):
                    self._write_cdi(terms)

    def all(self) -> list[Terms]:
        folders = sorted(self._folder.iterdir()) if self._folder.is_dir() else []
        found = (self._saved(folder.name) for folder in folders if is_uid(folder.name))
        return [terms for terms in found if terms]

    def taken(self) -> dict[str, Taken]:
        """What prepared claims have, by device."""
        found: dict[str, Taken] = {}
        for terms in self.all():
            for given in terms.devices:
                other = found.get(given.device, Taken())
                found[given.device] = Taken(
                    other.share + given.share, other.memory + given.memory, other.claims + 1
                )
        return found

    def changed(self, uid: str) -> dict[str, int] | None:
        """What the tenants of a claim were last asked to be; None: what was claimed."""
        if uid not in self._changes:
            try:
                said = json.loads((self._folder / uid / CHANGED).read_text(encoding="utf-8"))
                self._changes[uid] = {str(name): int(value) for name, value in said.items()}
            except (OSError, ValueError, AttributeError, TypeError):
                self._changes[uid] = None
        return self._changes[uid]

    def note_change(self, uid: str, change: dict[str, int] | None) -> None:
        with self._lock, contextlib.suppress(OSError):  # a claim that is no more needs no note
            if change == self.changed(uid):
                return
            if change is None:
                (self._folder / uid / CHANGED).unlink(missing_ok=True)
            else:
                durable.write(self._folder / uid / CHANGED, json.dumps(change))
            self._changes[uid] = change

    def _saved(self, uid: str) -> Terms | None:
        """None also where it cannot be read: kubelet asks again, and the API server knows it."""
        check_uid(uid)
        path = self._folder / uid / "terms.json"
        try:
            found = loaded(json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            if uid not in self._unreadable:
                self._unreadable.add(uid)
                why = f"{type(error).__name__}: {error}"
                narrate(f"{path} cannot be read ({why}): its pod runs on, without live changes and events")
            return None
        self._unreadable.discard(uid)
        return found

    def _allocated(self, cluster: Cluster, namespace: str, name: str, uid: str) -> Terms:
        claim = cluster.get(RESOURCE, "ResourceClaim", name, namespace)
        if claim is None or claim["metadata"]["uid"] != uid:
            raise Problem(
                f"there is no claim {namespace}/{name} with the UID {uid}", "it was deleted meanwhile"
            )
        return terms_of(claim, self._pool)

    def _known(self, given: Given) -> Device:
        try:
            return self._devices[given.device]
        except KeyError:
            raise Problem(f"this node has no GPU {given.device}", "it was removed, or is lost") from None

    def _answer(self, terms: Terms) -> list[Prepared]:
        nvidia = set() if self._host.softgpu else container.nvidia_devices((self._cdi, *CDI_FOLDERS))
        answer = []
        for number, given in enumerate(terms.devices):
            device = self._known(given)
            ids = [container.device_id(terms.uid, number)]
            if not self._host.softgpu:
                ids.insert(0, container.nvidia_id(device, nvidia))
            answer.append(Prepared(given.request, given.pool, given.device, given.share_id, tuple(ids)))
        return answer

    def _write_cdi(self, terms: Terms) -> None:
        uuids = [device.uuid for device in map(self._known, terms.devices)]
        said = container.specification(terms.uid, uuids, self._folder / terms.uid / "identity", self._host)
        path = self._cdi / container.file_name(terms.uid)
        try:
            if path.read_text(encoding="utf-8") == said:
                return
        except OSError:
            self._cdi.mkdir(parents=True, exist_ok=True)
        durable.write(path, said)

    def _check_containers(self, cluster: Cluster, terms: Terms) -> None:
        """A container has one identity file, so it can use one claim."""
        others = {
            other.name
            for other in self.all()
            if other.namespace == terms.namespace and set(other.pods) & set(terms.pods)
        }
        for name in terms.pods if others else ():
            pod = cluster.get("v1", "Pod", name, terms.namespace)
            for user, claims in claims_of_containers(pod or {}).items():
                if terms.name in claims and claims & others:
                    raise Problem(
                        f"container {user} of pod {name} uses two claims of Cotenant",
                        "ask for all its GPUs in one claim",
                    )


def claims_of_containers(pod: Mapping[str, Any]) -> dict[str, set[str]]:
    """The names of the ResourceClaims that each container of a pod uses."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    named = {
        entry["name"]: entry["resourceClaimName"]
        for entry in (*(spec.get("resourceClaims") or ()), *(status.get("resourceClaimStatuses") or ()))
        if entry.get("resourceClaimName")
    }
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    return {
        one["name"]: {
            named[claim["name"]]
            for claim in (one.get("resources") or {}).get("claims") or ()
            if claim["name"] in named
        }
        for one in containers
    }


def check_uid(uid: str) -> None:
    """It becomes a part of paths."""
    if not is_uid(uid):
        raise Problem(f"no UID of a claim: '{uid}'")


def is_uid(text: str) -> bool:
    return bool(text) and all(letter.isascii() and (letter.isalnum() or letter == "-") for letter in text)


def loaded(said: Mapping[str, Any]) -> Terms:
    """Without what a later version has written beside it."""

    def known(kind: type[Any], given: Mapping[str, Any]) -> dict[str, Any]:
        return {field.name: given[field.name] for field in fields(kind) if field.name in given}

    parts = {
        "devices": tuple(Given(**known(Given, given)) for given in said["devices"]),
        "parameters": Parameters(**known(Parameters, said["parameters"])),
        "pods": tuple(said["pods"]),
    }
    return Terms(**(known(Terms, said) | parts))
