"""What a node's agent is made of, by itself: files that outlast a power failure, what containers get, evictions."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cotenant.errors import Problem
from cotenant.kubernetes.claims import terms_of
from cotenant.kubernetes.inventory import Device
from cotenant.kubernetes.node import changes, container, durable, evictions
from tests.kubernetes.fake_cluster import allocated_claim, running_pod

GIB = 1 << 30


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str | None]]:
    """What has been written to the disk by the time that fsync is asked for it: a file's name and content."""
    found: list[tuple[str, str | None]] = []

    def fsync(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        found.append((path.name, None if path.is_dir() else path.read_text()))

    monkeypatch.setattr(os, "fsync", fsync)
    return found


@pytest.fixture
def strict_umask() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


def test_a_file_is_on_the_disk_before_its_name_is(
    tmp_path: Path, synced: list[tuple[str, str | None]], strict_umask: None
) -> None:
    path = tmp_path / "identity"
    open_before = len(os.listdir("/proc/self/fd"))
    for content, mode in ("a long one\n", 0o600), ("short\n", 0o644):
        synced.clear()
        durable.write(path, content, mode)
        assert synced == [(".new-identity", content), (tmp_path.name, None)]
        assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == (content, mode)
    assert len(os.listdir("/proc/self/fd")) <= open_before
    # What another has put where the file is written first is not followed.
    (tmp_path / ".new-identity").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError):
        durable.write(path, "more\n")
    assert path.read_text() == "short\n" and not (tmp_path / "elsewhere").exists()


def test_a_folder_is_there_whole_and_stays_as_it_was(
    tmp_path: Path, synced: list[tuple[str, str | None]]
) -> None:
    path, files = tmp_path / "claim", {"identity": "a\n", "more": "b\n"}
    (tmp_path / ".new-claim").mkdir()
    (tmp_path / ".new-claim" / "left").write_text("of one that was killed")
    durable.write_folder(path, files)
    assert {one.name: one.read_text() for one in path.iterdir()} == files
    assert synced == [*files.items(), (".new-claim", None), (tmp_path.name, None)]
    durable.write_folder(path, {"identity": "other\n"})
    assert {one.name: one.read_text() for one in path.iterdir()} == files
    (tmp_path / ".old-claim").mkdir()
    (tmp_path / ".old-claim" / "left").write_text("of one that was killed")
    synced.clear()
    for _ in range(2):
        durable.remove_folder(path)
        assert list(tmp_path.iterdir()) == []
    assert synced == [(tmp_path.name, None)]


def test_what_the_killed_left_is_swept_and_nothing_else(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "claims", tmp_path / "elsewhere"
    for path in folder / ".new-a", folder / "kept", elsewhere:
        path.mkdir(parents=True)
        (path / "file").write_text("x")
    (folder / ".old-b").write_text("x")
    (folder / ".old-c").symlink_to(elsewhere)
    durable.sweep(folder)
    assert [one.name for one in folder.iterdir()] == ["kept"]
    assert (elsewhere / "file").exists()
    durable.sweep(tmp_path / "none")


HOST = container.Host(Path("/n"), Path("/p"), Path("/s"))


def test_a_container_can_write_its_slots_alone_and_run_nothing_from_there() -> None:
    made = container.edits(["GPU-1"], Path("/i"), HOST)
    options = {mount["containerPath"]: mount["options"] for mount in made["mounts"]}
    read_only = ["ro", "nosuid", "nodev", "bind"]
    assert options == {
        "/opt/cotenant": read_only,
        "/etc/ld.so.preload": read_only,
        "/etc/cotenant/identity": read_only,
        "/dev/shm/cotenant.shared": read_only,
        "/dev/shm/cotenant.shared/slots": ["rw", "nosuid", "nodev", "noexec", "bind"],
    }
    assert "env" not in made


@pytest.mark.parametrize("machine", ["", "h200,h200"])
def test_a_container_of_software_gpus_finds_those_of_its_node(machine: str) -> None:
    host = container.Host(HOST.native, HOST.preload, HOST.segment, Path("/g"), machine)
    made = container.edits(["GPU-1", "GPU-2"], Path("/i"), host)
    assert made["mounts"][-1]["hostPath"] == "/g" and made["mounts"][-1]["options"][0] == "rw"
    more = [f"COTENANT_SOFTGPU={machine}"] if machine else []
    assert made["env"] == ["CUDA_VISIBLE_DEVICES=GPU-1,GPU-2", *more]
    for softgpu in (False, True):
        text = container.identity(terms_of(allocated_claim(), "node"), softgpu)
        assert ("COTENANT_DRIVER=/opt/cotenant/softgpu/libcuda.so.1\n" in text) is softgpu


def test_a_cdi_file_of_ours_is_known_by_its_name() -> None:
    assert container.uid_in(container.file_name("1-2")) == "1-2"
    for other in ("nvidia.yaml", "cotenant.dev-claim-1-2.yaml", "other-claim-1-2.json", "1-2.json"):
        assert container.uid_in(other) is None


def test_nvidias_cdi_files_name_a_gpu_by_its_uuid_or_its_index(tmp_path: Path) -> None:
    texts = {
        "a.yaml": "kind: nvidia.com/gpu\ndevices: [{name: 0:1}, {name: GPU-1}, {other: x}]",
        "b.json": '{"kind": "nvidia.com/gpu", "devices": [{"name": "7"}]}',
        "c.yml": "kind: nvidia.com/gpu",
        "d.yaml": "kind: other.com/gpu\ndevices: [{name: theirs}]",
        "e.yaml": "[no, mapping]",
        "f.yaml": "{no yaml",
        "g.txt": "kind: nvidia.com/gpu\ndevices: [{name: text}]",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    known = container.nvidia_devices([tmp_path / "none", tmp_path])
    assert known == {"0:1", "GPU-1", "7"}

    def found(uuid: str, index: str) -> str:
        return container.nvidia_id(Device("gpu", uuid, "H200", GIB, index=index), known)

    assert found("GPU-1", "7") == "nvidia.com/gpu=GPU-1"
    assert found("GPU-2", "0:1") == "nvidia.com/gpu=0:1"
    with pytest.raises(Problem, match="no CDI file of this node has the GPU GPU-3"):
        found("GPU-3", "3")


@pytest.mark.parametrize(
    ("conditions", "said"),
    [
        ([("Ready", "True", "x")], ""),
        ([("DisruptionTarget", "False", "x")], ""),
        ([("DisruptionTarget", "True", "DeletionByDeviceTaintManager")], ""),
        ([("DisruptionTarget", "True", "")], "the pod is to be evicted (no reason given)"),
        (
            [("Ready", "True", "x"), ("DisruptionTarget", "True", "PreemptionByScheduler")],
            "the pod is to be evicted (PreemptionByScheduler)",
        ),
    ],
)
def test_a_pod_is_paused_for_an_eviction_alone(conditions: list[tuple[str, str, str]], said: str) -> None:
    found = tuple({"type": kind, "status": status, "reason": why} for kind, status, why in conditions)
    assert evictions.reason(running_pod(conditions=found)) == said
    assert evictions.reason(running_pod(conditions=found, on_eviction="run")) == ""


def test_claims_of_other_drivers_are_none_of_a_pods() -> None:
    pod: dict[str, Any] = running_pod()
    terms = terms_of(allocated_claim(), "node")
    assert evictions.claims_of(pod, {("team", "claim"): terms, ("other", "claim"): terms}) == [terms]
    assert evictions.claims_of(pod, {("other", "claim"): terms}) == []


def test_a_change_goes_up_to_what_was_claimed_and_says_what_differs() -> None:
    terms = terms_of(allocated_claim(memory="8Gi", overflow="2Gi", parameters={"promise": "5%"}), "node")
    before = changes.claimed(terms)
    assert changes.with_memory("10Gi", before, terms, lambda: 0) == before
    assert changes.with_memory("50%", before, terms, lambda: 8 * GIB).memory == 4 * GIB
    with pytest.raises(Problem, match="has 10Gi, memory and overflow together"):
        changes.with_memory("10241Mi", before, terms, lambda: 0)
    assert changes.with_class("production", before, terms) == before
    lower = changes.with_class("standard", before, terms)
    assert lower.in_words(before) == "class standard, no slowdown promised"
    assert changes.with_slowdown("8%", before, terms).in_words(before) == "slowdown 8%"
    assert before.in_words(before) == "as claimed"
