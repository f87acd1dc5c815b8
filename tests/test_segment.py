"""Reading a segment: only live tenants, only what is ours."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cotenant import segment
from cotenant.segment import paths, pids, requests, snapshot, wire
from cotenant.segment.snapshot import snapshot_of
from cotenant.segment.wire import Busy
from tests.segments import UUID, UUID_TEXT, Written


def test_a_segment_just_made_has_no_tenants(native: Path, tmp_path: Path) -> None:
    path = tmp_path / "segment"
    segment.ensure(path)
    assert segment.read(path) == segment.Snapshot({}, (), 0)


def test_live_tenants_are_read_and_free_and_lost_slots_are_not(tmp_path: Path) -> None:
    written = Written()
    written.gpu(0, UUID)
    written.tenant(3, pid=100, name=b"serve", tenant_class=0)
    written.tenant(4, pid=200, name=b"free", owner=0)
    written.tenant(5, pid=300, name=b"lost", owner=segment.OWNER_DIED | 300)
    written.tenant(255, pid=400, name=b"waited-for", tenant_class=2, owner=0x80000000 | 400)
    seen = segment.read(written.to(tmp_path / "segment"))
    assert [(tenant.pid, tenant.program, tenant.tenant_class) for tenant in seen.tenants] == [
        (100, "serve", 0),
        (400, "waited-for", 2),
    ]
    assert seen.lost == 1
    assert seen.gpus == {0: UUID_TEXT}


def test_whoever_changes_a_segment_keeps_others_waiting(tmp_path: Path) -> None:
    path = Written().to(tmp_path / "segment")

    def is_locked() -> bool:
        with path.open("rb") as file, contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
        return True

    with segment.open(path).writable_header() as header:
        assert is_locked()
        del header
    assert not is_locked()


def test_a_gpu_being_entered_is_not_shown(tmp_path: Path) -> None:
    written = Written()
    written.header.gpus[0].known = 1
    written.gpu(1, UUID)
    assert segment.read(written.to(tmp_path / "segment")).gpus == {1: UUID_TEXT}


def processes_below(folder: Path, monkeypatch: pytest.MonkeyPatch, *processes: tuple[int, int, int]) -> int:
    """Their numbers here and in their own PID namespace, and their starts. Returns the namespace."""
    monkeypatch.setattr(pids, "PROC", folder)
    namespace = folder / "namespace"
    namespace.touch()
    for number, inside, started in processes:
        process = folder / str(number)
        (process / "ns").mkdir(parents=True)
        (process / "ns" / "pid").hardlink_to(namespace)
        (process / "status").write_text(f"Name:\tjob\nNSpid:\t{number}\t{inside}\n")
        (process / "stat").write_text(f"{number} (job (x) {' '.join(['S', *['0'] * 18])} {started} 0\n")
    return namespace.stat().st_ino


def test_a_process_in_another_namespace_is_known_by_its_number_there_and_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number may have become another process's; of those above ours in the tree the namespace is the same."""
    there = processes_below(tmp_path, monkeypatch, (70, 5, 111), (71, 5, 222), (72, 6, 222))
    assert pids.seen(5, there, 222).pid == 71
    assert pids.seen(5, there, 111).pid == 70
    assert pids.seen(5, there, 333) == pids.Seen(5, False, None)
    assert not pids.seen(5, there + 1, 222).is_here
    # What was found once is looked at again: the process has ended, and its number is another's.
    (tmp_path / "71" / "stat").write_text(f"71 (job) {' '.join(['S', *['0'] * 18])} 444 0\n")
    assert pids.seen(5, there, 222) == pids.Seen(5, False, None)


def test_tenants_that_have_ended_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = processes_below(tmp_path, monkeypatch, (70, 5, 111))
    for known in ("_found", "_missed"):
        monkeypatch.setattr(pids, known, {})
    monkeypatch.setattr(pids, "MOST", 3)
    stat = tmp_path / "70" / "stat"
    for started in range(10):
        stat.write_text(f"70 (job) {' '.join(['S', *['0'] * 18])} {started} 0\n")
        assert pids.seen(5, there, started).pid == 70
        assert not pids.seen(6, there, started).is_here
    assert list(pids._found) == [(5, there, started) for started in (7, 8, 9)]
    assert list(pids._missed) == [(6, there, started) for started in (7, 8, 9)]


def test_a_process_that_nobody_else_may_look_at_is_no_tenant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With hidepid=1. Where only its namespace may not be looked at, its number there and its start have to do."""
    there = processes_below(tmp_path, monkeypatch, (70, 5, 111), (71, 5, 777), (72, 5, 777))
    hidden = {tmp_path / "70" / "status", tmp_path / "71" / "status", tmp_path / "72" / "ns" / "pid"}
    monkeypatch.setattr(os, "listdir", lambda path: ["70", "71", "72"])

    def refusing(do: Callable[..., Any]) -> Callable[..., Any]:
        def done(path: Path, **how: Any) -> Any:
            if path in hidden:
                raise PermissionError
            return do(path, **how)

        return done

    monkeypatch.setattr(Path, "read_text", refusing(Path.read_text))
    monkeypatch.setattr(os, "stat", refusing(os.stat))
    assert pids.seen(5, there, 777).pid == 72


@dataclass(frozen=True)
class Claim:
    pid: int
    uid: int
    started: int
    is_here: bool = True


def test_of_several_that_claim_a_process_the_one_that_it_belongs_to_is_meant() -> None:
    pid, uid = os.getpid(), os.geteuid()
    started = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    own = Claim(pid, uid, started)
    for liar in (Claim(pid, uid + 1, started), Claim(pid, uid, started + 1)):
        assert segment.with_pid(pid, [liar, own]) is own
        with pytest.raises(segment.BadSegment, match="several tenants claim"):
            segment.with_pid(pid, [liar, liar])
    assert segment.with_pid(pid, [Claim(pid + 1, uid, started)]) is None


def test_who_has_died_is_asked_nothing(tmp_path: Path) -> None:
    written = Written()
    written.tenant(0, 4711, owner=4711 | segment.OWNER_DIED)
    written.tenant(1, 4712)
    path = written.to(tmp_path / "segment")
    assert not segment.ask(path, 4711, {"weight": 2000})
    assert segment.ask(path, 4712, {"weight": 2000})
    asked = [
        segment.Slot.from_buffer_copy(path.read_bytes(), segment.PLACE * place).asked.weight
        for place in (1, 2)
    ]
    assert asked == [0, 2001]


def test_in_a_container_the_user_is_that_of_the_process_or_of_the_slots_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A user namespace has numbers of its own; the file of a slot has the machine's."""
    written = Written()
    slot = written.tenant(0, 4711)
    slot.residence.wanted_bytes = 1 << 20  # of a wait that is over
    monkeypatch.setattr(snapshot, "seen", lambda *_: pids.Seen(5000, True, 1234))
    for is_shared, uid in ((False, 1234), (True, 1000)):
        (tenant,) = snapshot_of(written.bytes(), Path("segment"), is_shared).tenants
        assert (tenant.pid, tenant.uid, tenant.wanted_bytes) == (5000, uid, 0)


def test_a_tenant_is_shown_on_the_gpus_it_has_used(tmp_path: Path) -> None:
    written = Written()
    written.gpu(0, UUID)
    written.gpu(2, bytes(16))
    slot = written.tenant(0, pid=1)
    slot.gpus[2].figures.kernels = 7
    slot.gpus[2].figures.escaped = 1
    slot.gpus[2].gate = 1
    (tenant,) = segment.read(written.to(tmp_path / "segment")).tenants
    (use,) = tenant.uses
    assert (use.gpu, use.busy, use.gated) == (2, False, False)
    assert use.figures["kernels"] == 7
    assert use.figures["escaped"] == 1


def test_every_field_of_a_tenant_is_read_from_its_slot() -> None:
    written = Written()
    written.gpu(0, UUID)
    written.tenant(0, pid=1)
    memory = bytearray(written.bytes())
    memory[segment.PLACE : segment.PLACE + ctypes.sizeof(segment.Slot)] = b"\x01" * ctypes.sizeof(
        segment.Slot
    )
    slot = segment.Slot.from_buffer(memory, segment.PLACE)
    slot.residence.where = segment.Where.evicted
    slot.residence.refusal = 2
    slot.gpus[0].busy, slot.gpus[0].ready = Busy.copying, 0
    (tenant,) = snapshot_of(bytes(memory), Path("segment")).tenants
    (use,) = tenant.uses
    for seen in (tenant, use):
        unread = [
            field.name
            for field in fields(seen)
            if getattr(seen, field.name) in (field.default, 0, "", (), None)
        ]
        assert unread == ([] if seen is tenant else ["gpu"])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is not a Cotenant segment"),
        (b"cotenant", "is not a Cotenant segment"),
        (b"x" * 10000, "is not a Cotenant segment"),
        (b"cotenant" + (99).to_bytes(4, "little") + bytes(10000), "layout version 99"),
    ],
)
def test_what_is_not_ours_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "segment"
    path.write_bytes(content)
    with pytest.raises(segment.BadSegment, match=reason):
        segment.read(path)


def test_a_pipe_of_its_name_keeps_nobody_waiting(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    os.mkfifo(path)
    with pytest.raises(segment.BadSegment, match="is not a Cotenant segment"):
        segment.read(path)
    assert "doctor" in segment.remedy(path)


def test_a_missing_segment_is_told_apart(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        segment.read(tmp_path / "segment")


# A slot has six kilobytes: that is large, and no less will do.
@settings(deadline=None, suppress_health_check=[HealthCheck.large_base_example])
@given(
    st.binary(min_size=ctypes.sizeof(segment.Slot), max_size=ctypes.sizeof(segment.Slot)),
    st.binary(max_size=600),
)
def test_whatever_a_guest_writes_into_its_slot_can_be_read(slot: bytes, header: bytes) -> None:
    written = Written()
    written.gpu(0, UUID)
    memory = bytearray(written.bytes())
    memory[segment.PLACE : segment.PLACE + len(slot)] = slot
    at = segment.Header.knobs.offset
    memory[at : at + len(header)] = header
    seen = snapshot_of(bytes(memory), Path("segment"))
    assert len(seen.tenants) + seen.lost <= 1


def test_a_refusal_is_known_by_its_word_in_the_slot() -> None:
    assert {one: segment.Refusal.of(one) for one in range(7)} == {
        0: None,
        wire.Refusal.in_capture: segment.Refusal.in_capture,
        wire.Refusal.does_not_drain: segment.Refusal.does_not_drain,
        wire.Refusal.host_budget: segment.Refusal.host_budget,
        wire.Refusal.host_memory: segment.Refusal.host_memory,
        wire.Refusal.driver_failed: segment.Refusal.driver_failed,
        6: segment.Refusal.unknown,
    }
    for one in segment.Refusal:
        assert one.text and one.remedy and one.text != one.remedy


def test_flags_are_true_or_false_for_json(tmp_path: Path) -> None:
    written = Written()
    written.gpu(0, UUID)
    slot = written.tenant(0, 7)
    slot.gpus[0].busy = 2
    (tenant,) = segment.read(written.to(tmp_path / "segment")).tenants
    each: list[segment.Tenant | segment.Use] = [tenant, *tenant.uses]
    for about in each:
        for field in fields(about):
            if field.type == "bool":
                assert type(getattr(about, field.name)) is bool, field.name
    assert tenant.uses[0].busy is True


def test_a_strangers_segment_is_used_only_where_somebody_named_it(tmp_path: Path) -> None:
    strangers, own = (SimpleNamespace(st_uid=uid) for uid in (54321, os.geteuid()))
    for path in (paths.own_default(), paths.SHARED):
        with pytest.raises(segment.BadSegment, match="belongs to another user"):
            paths.check_owner(path, strangers)  # type: ignore[arg-type]
        paths.check_owner(path, own)  # type: ignore[arg-type]
    paths.check_owner(tmp_path / "named", strangers)  # type: ignore[arg-type]


def test_every_request_has_a_place_of_its_own(native: Path) -> None:
    names = [*(name for name, *_ in wire.Asked._fields_), "memory", "sms", "pause", "timeline"]
    slot = segment.Slot()
    for count, name in enumerate(names, 1):
        requests.write_requests(slot, {name: 0})  # which is not the same as none
        assert list(requests.asked_of(slot)) == names[:count]
    sealed = segment.Slot.from_buffer_copy(bytes(slot))
    requests.write_requests(sealed, {})
    assert bytes(sealed) == bytes(slot)
