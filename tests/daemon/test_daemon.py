"""The daemon: ticks the policy for real tenants, leaves nothing behind, and is missed by nobody when it dies."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cotenant import events, segment
from cotenant.classes import TenantClass
from cotenant.config import live
from cotenant.daemon import control, lock, report
from cotenant.daemon.attachment import DEFAULTS, Attachment
from cotenant.daemon.loop import somebody_under
from cotenant.daemon.report import Decision, Report, stamped
from cotenant.daemon.start import environment_for_daemon
from cotenant.policies.interface import Knobs, Rule, TenantKnobs
from tests.daemon.made import BROKEN, COTENANT, FIRM, add, daemon, ids, policy_file
from tests.segments import Written
from tests.waiting import wait_for

if TYPE_CHECKING:
    from tests.conftest import Run


def test_a_view_is_what_the_slots_say(attachment: Attachment) -> None:
    production, below = attachment.look().views[0].tenants
    assert (production.tenant_class, production.slowdown, production.weight) == (
        TenantClass.production,
        0.05,
        2,
    )
    assert (production.operations, production.bursts, production.has_work) == (11, 4, True)
    assert (below.floor, below.used_us, below.busy_us, below.slowdown) == (0.1, 3000, 4000, None)
    assert not below.is_held
    assert production.id != below.id
    assert ids(attachment) == [production.id, below.id]
    assert list(attachment.look().views) == [0]


def test_a_view_says_when_memory_last_moved(attachment: Attachment) -> None:
    residence = attachment.slots[70].residence
    residence.since_ns = 5_000_000

    def moved_us() -> tuple[float, float]:
        view = attachment.look().views[0]
        return view.tenants[1].moved_us, view.now_us

    for where in (segment.Where.resident, segment.Where.evicted, 99):
        residence.where = where
        assert moved_us()[0] == 5000
    for where in (segment.Where.evicting, segment.Where.restoring):
        residence.where = where
        moved, now = moved_us()
        assert moved == now


def test_a_new_owner_of_a_slot_is_another_tenant(attachment: Attachment) -> None:
    before = ids(attachment)
    attachment.slots[70].started += 1
    after = ids(attachment)
    assert after[0] == before[0] and after[1] not in before


def test_who_was_stopped_or_has_died_does_not_count(attachment: Attachment) -> None:
    attachment.slots[70].heartbeat_ns = 1
    assert not attachment.look().views[0].tenants[1].has_work
    attachment.slots[70].owner = segment.OWNER_DIED | 200
    look = attachment.look()
    assert [one.row.slot for one in look.places[0]] == [0] and look.live == 1


def test_knobs_are_written_and_run_out_or_are_taken_back(attachment: Attachment, tmp_path: Path) -> None:
    one = daemon(attachment, policy_file(tmp_path, FIRM))
    pause_ms = one.tick()
    now = time.monotonic_ns()
    production, below = attachment.slots[0].gpus[0], attachment.slots[70].gpus[0]
    assert (production.shut_until_ns, below.tolerant_until_ns) == (0, 0)
    assert now < below.shut_until_ns < now + 10**9 and now < production.tolerant_until_ns < now + 10**9
    assert (production.rate, below.rate) == (250, 250)
    assert now < below.rate_until_ns < now + 10**9
    knobs = attachment.header.knobs
    assert (knobs.rule, knobs.gate_every_us, knobs.in_flight_us) == (Rule.fair, 7, DEFAULTS["in_flight_us"])
    assert pause_ms == 10
    # The other GPUs of a tenant are left alone.
    assert attachment.slots[70].gpus[1].shut_until_ns == 0
    attachment.reset()
    assert (below.shut_until_ns, production.tolerant_until_ns, below.rate_until_ns) == (0, 0, 0)


def test_a_shut_tenants_gate_closes_at_once_and_opens_again(attachment: Attachment, tmp_path: Path) -> None:
    source = FIRM.replace("Rule.fair", "Rule.strict").replace("rate=0.25", "rate=None")
    attachment.slots[0].gpus[0].busy = 0
    below = attachment.slots[70].gpus[0]
    daemon(attachment, policy_file(tmp_path, source)).tick()
    assert below.gate != segment.GATE_OPEN
    attachment.reset()
    assert below.gate == segment.GATE_OPEN


def test_tolerance_opens_the_gates_below_at_once_and_its_end_closes_them(attachment: Attachment) -> None:
    below = attachment.slots[70].gpus[0]
    attachment.refresh_gates(0)
    assert below.gate != segment.GATE_OPEN

    def turn(tolerant: bool) -> None:
        places = attachment.look().places[0]
        attachment.turn(0, places, {places[0].id: TenantKnobs(tolerant=tolerant)}, 10**10)

    turn(True)
    assert below.gate == segment.GATE_OPEN
    turn(False)
    assert below.gate != segment.GATE_OPEN


@pytest.mark.parametrize(
    ("sm_share", "written"), [(0, 1), (0.0001, 1), (0.75, 750), (0.9996, 1000), (1, 0), (7.5, 0), (None, 0)]
)
def test_a_share_of_the_sms_is_written_in_thousandths_and_all_of_them_are_no_limit(
    attachment: Attachment, sm_share: float | None, written: int
) -> None:
    def turn(share: float | None) -> None:
        places = attachment.look().places[0]
        attachment.turn(0, places, {places[1].id: TenantKnobs(sm_share=share)}, 10**9)

    turn(0.5)
    turn(sm_share)
    below = attachment.slots[70].gpus[0]
    assert below.sms == written and attachment.slots[0].gpus[0].sms == 0
    assert (below.sms_until_ns > time.monotonic_ns()) == bool(written)
    turn(0.5)
    attachment.reset()
    assert (below.sms, below.sms_until_ns) == (0, 0)


def test_a_tenant_that_cannot_be_given_fewer_sms_says_so(attachment: Attachment) -> None:
    attachment.slots[70].sms_refused = 2
    assert [one.takes_sm_share for one in attachment.look().views[0].tenants] == [True, False]


@pytest.mark.parametrize(
    ("rate", "written"), [(0, 1), (0.0001, 1), (0.0016, 2), (0.25, 250), (1, 1000), (7.5, 1000), (None, 0)]
)
def test_a_rate_is_written_in_thousandths_and_nothing_at_all_is_the_smallest(
    attachment: Attachment, rate: float | None, written: int
) -> None:
    """0 in shared memory is no limit."""
    places = attachment.look().places[0]
    attachment.turn(0, places, {places[1].id: TenantKnobs(rate=rate)}, 10**9)
    assert [attachment.slots[index].gpus[0].rate for index in (0, 70)] == [0, written]
    attachment.turn(0, attachment.look().places[0], {}, 10**9)
    assert attachment.slots[70].gpus[0].rate == 0


def test_a_new_rule_counts_at_once(attachment: Attachment) -> None:
    below = attachment.slots[70].gpus[0]
    attachment.refresh_gates(0)
    assert below.gate != segment.GATE_OPEN
    attachment.turn_all([Knobs(rule=Rule.none)])
    assert below.gate == segment.GATE_OPEN


def test_a_new_rule_counts_on_every_gpu(native: Path, tmp_path: Path) -> None:
    written = Written()
    for gpu in (0, 1):
        written.gpu(gpu, bytes([gpu] * 16))
    written.header.knobs = segment.Knobs(rule=1, stale_ms=60_000, **DEFAULTS)
    for index, tenant_class in enumerate((TenantClass.production, TenantClass.opportunistic)):
        slot = add(written, index, 100 + index, tenant_class)
        slot.gpus[1].busy, slot.gpus[1].figures.bursts = 1, 1
    attached = Attachment(written.to(tmp_path / "segment"))
    gpus = attached.slots[1].gpus
    for gpu in (0, 1):
        attached.refresh_gates(gpu)
    assert segment.GATE_OPEN not in (gpus[0].gate, gpus[1].gate)
    attached.turn_all([Knobs(rule=Rule.none)])
    assert gpus[0].gate == gpus[1].gate == segment.GATE_OPEN
    attached.close()


def test_without_anybody_below_production_it_is_calm(attachment: Attachment, tmp_path: Path) -> None:
    attachment.slots[70].owner = 0
    assert daemon(attachment, policy_file(tmp_path, FIRM)).tick() == 100


def test_it_follows_the_choice_of_a_policy_while_it_runs(attachment: Attachment, tmp_path: Path) -> None:
    one = daemon(attachment, policy_file(tmp_path, FIRM))
    one.tick()
    segment.choose_policy(attachment.path, "none")
    one.tick()
    assert attachment.header.knobs.rule == Rule.none
    assert attachment.header.knobs.gate_every_us == DEFAULTS["gate_every_us"]
    assert attachment.slots[70].gpus[0].shut_until_ns == 0
    segment.choose_policy(attachment.path, "strict")
    one.tick()
    assert attachment.header.knobs.rule == Rule.strict


@pytest.mark.parametrize("chosen", ["nosuch", "x" * segment.LONGEST_POLICY_NAME])
def test_an_unknown_choice_is_told_and_strict_goes_on(attachment: Attachment, chosen: str) -> None:
    segment.choose_policy(attachment.path, chosen)
    one = daemon(attachment, "fair")
    one.tick()
    assert attachment.header.knobs.rule == Rule.strict
    shown = report.read(attachment.path)
    assert shown and chosen in shown.problem


def test_a_policy_that_fails_does_not_fail_the_tenants(attachment: Attachment, tmp_path: Path) -> None:
    one = daemon(attachment, policy_file(tmp_path, BROKEN))
    one.tick()
    one.tick()
    assert attachment.header.knobs.rule == Rule.strict
    shown = report.read(attachment.path)
    assert shown and "unforeseen" in shown.problem


def test_the_report_has_each_tenants_decisions(attachment: Attachment, tmp_path: Path) -> None:
    daemon(attachment, policy_file(tmp_path, FIRM)).tick()
    shown = report.read(attachment.path)
    assert shown
    assert (shown.pid, shown.policy, shown.problem) == (os.getpid(), "firm", "")
    assert [(one.pid, one.started, one.gpu) for one in shown.tenants] == [(100, 7, 0), (200, 7, 0)]
    assert "held firmly" in shown.tenants[1].decisions[0].text


def test_a_report_that_cannot_be_written_is_no_reason_to_stop(attachment: Attachment, tmp_path: Path) -> None:
    report.file_for(attachment.path).mkdir()  # nothing can be renamed over a folder
    daemon(attachment, policy_file(tmp_path, FIRM)).tick()
    assert attachment.slots[70].gpus[0].shut_until_ns


@pytest.mark.parametrize(
    ("said", "at"),
    [
        (["b", "a"], [2, 1]),
        (["c", "b", "a"], [9, 2, 1]),
        (["d", "c", "b"], [9, 9, 2]),
        (["b", "b", "a"], [9, 2, 1]),
        (["other figures", "a"], [9, 1]),
        (["other figures", "c", "a"], [9, 9, 1]),
        (["x"], [9]),
        ([], []),
    ],
)
def test_a_decision_keeps_the_time_when_it_was_first_seen(said: list[str], at: list[float]) -> None:
    before = [Decision(2, "b"), Decision(1, "a")]
    assert [one.at for one in stamped(said, before, 9)] == at
    assert [one.text for one in stamped(said, before, 9)] == said


def test_who_comes_later_is_told_when_it_was_decided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = Report(tmp_path / "segment")
    clock = iter((10.0, 20.0, 30.0))
    monkeypatch.setattr("cotenant.daemon.report.time.time", lambda: next(clock))
    server, elsewhere, late = (1, 1, 0), (2, 1, 1), (3, 1, 0)
    report.show("guard", "", {server: ["first"], elsewhere: ["second", "first"]})
    report.show("guard", "", {server: ["second", "first"], elsewhere: ["second", "first"]})
    lines = {server: ["second", "first"], elsewhere: ["second", "first"], late: ["third", "second", "first"]}
    report.show("guard", "", lines)
    assert [one.at for one in report.decisions[late]] == [30.0, 20.0, 10.0]


def test_a_report_that_says_nothing_new_is_not_written_again(tmp_path: Path) -> None:
    shown = Report(tmp_path / "segment")
    shown.show("guard", "", {(1, 1, 0): ["first"]})
    before = shown.file.stat().st_ino
    shown.show("guard", "", {(1, 1, 0): ["first"]})
    assert shown.file.stat().st_ino == before
    shown.show("guard", "", {(1, 1, 0): ["second", "first"]})
    assert '"second"' in shown.file.read_text()


def test_the_guests_settings_are_not_the_daemons() -> None:
    given = {
        "PATH": "/bin",
        "LD_PRELOAD": "x.so",
        "NOTIFY_SOCKET": "/run/systemd/notify",
        "CUDA_VISIBLE_DEVICES": "1",
        "COTENANT_CLASS": "production",
        "COTENANT_NATIVE": "/n",
        "COTENANT_DAEMON_LINGER": "1",
        "COTENANT_DRIVER": "/d/libcuda.so.1",
        "COTENANT_SOFTGPU_DIR": "/s",
        "PYTHONPATH": "here",
    }
    assert environment_for_daemon(given) == {
        "PATH": "/bin",
        "COTENANT_NATIVE": "/n",
        "COTENANT_DAEMON_LINGER": "1",
        "COTENANT_DRIVER": "/d/libcuda.so.1",
        "COTENANT_SOFTGPU_DIR": "/s",
        "PYTHONPATH": os.path.abspath("here"),
    }


def daemon_of(path: Path) -> int:
    wait_for(lambda: report.read(path) is not None)
    shown = report.read(path)
    assert shown
    return shown.pid


def open_files(pid: int) -> set[str]:
    found = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it has just been closed
            found.add(os.readlink(file))
    return found


def test_run_starts_one_daemon_apart_from_the_job(env: dict[str, str]) -> None:
    path = Path(env["COTENANT_SEGMENT"])
    command = [*COTENANT, "run", "--", "sh", "-c", "read line"]
    ours, inherited = os.pipe()
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, pass_fds=(inherited,), text=True) as job:
        pid = daemon_of(path)
        pipe = os.readlink(f"/proc/self/fd/{inherited}")
        assert pipe not in open_files(pid)
        os.close(ours)
        os.close(inherited)
        # WHEN a second job comes, THEN it gets no second daemon
        done = subprocess.run([*COTENANT, "run", "--", "true"], env=env, timeout=60, check=True)
        assert done.returncode == 0 and daemon_of(path) == pid
        # THEN it is in no way the job's
        about = Path("/proc") / str(pid)
        parent = int((about / "stat").read_text().rpartition(")")[2].split()[1])
        assert parent not in (job.pid, os.getpid())
        assert os.getsid(pid) not in (os.getsid(0), os.getsid(job.pid))
        assert os.readlink(about / "cwd") == "/"
        assert {os.readlink(about / "fd" / str(number)) for number in range(3)} == {os.devnull}
        variables = (about / "environ").read_bytes()
        assert b"LD_PRELOAD" not in variables and b"COTENANT_RUN_ID" not in variables
        assert (Path("/proc") / str(job.pid) / "task" / str(job.pid) / "children").read_text() == ""
        # AND WHEN the job has ended, THEN it ends by itself, and leaves nothing but the segment and what happened
        assert somebody_under(path)
        job.communicate("end\n", timeout=60)
    wait_for(lambda: not about.exists())
    left = {file.name for file in path.parent.glob("segment*")}
    assert left == {"segment", "segment.daemon.events"}


def test_no_daemon_where_none_is_wanted(cotenant: Run, env: dict[str, str]) -> None:
    for arguments, extra in ((["--no-daemon"], {}), ([], {"COTENANT_NO_DAEMON": "1"})):
        assert cotenant("run", *arguments, "--", "true", env=env | extra).returncode == 0
    assert not lock.file_for(Path(env["COTENANT_SEGMENT"])).exists()


def test_a_second_daemon_leaves_at_once(cotenant: Run, path: Path, plain_env: dict[str, str]) -> None:
    held = lock.acquire(path)
    assert held is not None
    try:
        done = cotenant("daemon", env=plain_env)
        assert (done.returncode, done.stdout) == (0, "")
        assert "already" in done.stderr
        assert cotenant("daemon", "--policy", "fair", env=plain_env).returncode == 2
    finally:
        lock.release(path, held)
    assert not lock.is_held(path)


def test_a_replaced_segment_gets_a_daemon_of_its_own(
    path: Path, attachment: Attachment, plain_env: dict[str, str], tmp_path: Path
) -> None:
    def shown_by(pid: int) -> bool:
        return lock.is_held(path) and (shown := report.read(path)) is not None and shown.pid == pid

    below = attachment.slots[70].gpus[0]
    command = [*COTENANT, "daemon", "--policy", policy_file(tmp_path, FIRM)]
    with subprocess.Popen(command, env=plain_env) as first:
        wait_for(lambda: shown_by(first.pid))
        # WHEN somebody removes the segment, and a job makes a new one
        path.unlink()
        assert not lock.is_held(path)
        segment.ensure(path)
        assert not lock.is_held(path)
        command = [*COTENANT, "daemon", "--linger", "1000", "--headroom", "1G"]
        with subprocess.Popen(command, env=plain_env) as second:
            # THEN that has a daemon, and the first goes on for the tenants that it has
            wait_for(lambda: shown_by(second.pid))
            before = below.shut_until_ns
            wait_for(lambda: below.shut_until_ns > before)
            # AND when the first ends, it takes nothing of the second's away
            first.terminate()
            assert first.wait(60) == 0 and shown_by(second.pid)
            assert control.is_there(path)
            assert live.read(path).applied == {"headroom": 1 + (1 << 30)}
            ends = (one for one in events.read(path) if one.kind is events.Kind.daemon_ended)
            assert first.pid not in [one.pid for one in ends]
            second.terminate()
            assert second.wait(60) == 0
    assert not lock.file_for(path).exists() and not report.file_for(path).exists()


def test_a_daemon_whose_lock_was_removed_has_it_again(
    path: Path, attachment: Attachment, plain_env: dict[str, str]
) -> None:
    with subprocess.Popen([*COTENANT, "daemon", "--linger", "1000"], env=plain_env) as child:
        wait_for(lambda: report.read(path) is not None)
        lock.file_for(path).unlink()
        wait_for(lambda: lock.is_held(path))
        assert lock.acquire(path) is None
        child.terminate()
        assert child.wait(60) == 0
    assert not lock.file_for(path).exists()


def test_a_daemon_whose_lock_is_another_daemons_leaves_it_the_segment(
    path: Path, attachment: Attachment, plain_env: dict[str, str], tmp_path: Path
) -> None:
    command = [*COTENANT, "daemon", "--policy", policy_file(tmp_path, FIRM)]
    with subprocess.Popen(command, env=plain_env) as child:
        wait_for(lambda: report.read(path) is not None)
        with (tmp_path / "lock").open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            (tmp_path / "lock").replace(lock.file_for(path))
            assert child.wait(60) == 0
            assert lock.is_held(path) and report.read(path) is not None
    ends = [one for one in events.read(path) if one.kind is events.Kind.daemon_ended]
    assert not ends, "the segment has a daemon"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_end_it_takes_back_what_it_set(
    path: Path, attachment: Attachment, plain_env: dict[str, str], tmp_path: Path, number: signal.Signals
) -> None:
    segment.choose_policy(path, "none")  # what is typed goes before what was named
    command = [*COTENANT, "daemon", "--policy", policy_file(tmp_path, FIRM)]
    with subprocess.Popen(command, env=plain_env) as child:
        wait_for(lambda: attachment.slots[70].gpus[0].shut_until_ns > 0)
        child.send_signal(number)
        assert child.wait(60) == 0
    below = attachment.slots[70].gpus[0]
    assert below.shut_until_ns == 0
    # A rate that has expired meanwhile need not be taken back.
    assert below.rate == 0 or below.rate_until_ns < segment.now_ns()
    assert not lock.is_held(path) and report.read(path) is None


def test_killed_it_holds_nobody_back_and_another_takes_over(
    path: Path, attachment: Attachment, plain_env: dict[str, str], tmp_path: Path
) -> None:
    command = [*COTENANT, "daemon", "--policy", policy_file(tmp_path, FIRM)]
    below = attachment.slots[70].gpus[0]
    with subprocess.Popen(command, env=plain_env) as child:
        wait_for(lambda: below.shut_until_ns > 0)
        child.kill()
    wait_for(lambda: time.monotonic_ns() > below.shut_until_ns)
    assert not lock.is_held(path)
    with subprocess.Popen([*COTENANT, "daemon", "--policy", "strict"], env=plain_env) as child:
        wait_for(lambda: attachment.header.knobs.rule == Rule.strict and below.shut_until_ns == 0)
        child.terminate()
        assert child.wait(60) == 0


@pytest.mark.parametrize(
    ("arguments", "status", "complaint"),
    [
        (["--policy", "nosuch"], 2, "unknown policy 'nosuch'"),
        (["--policy", "./nosuch.py"], 2, "no policy file"),
        (["--linger", "-1"], 2, "linger"),
        (["--segment", "/no/such/folder/segment"], 1, "/no/such/folder"),
    ],
)
def test_bad_words(
    cotenant: Run, path: Path, plain_env: dict[str, str], arguments: list[str], status: int, complaint: str
) -> None:
    done = cotenant("daemon", *arguments, env=plain_env)
    assert done.returncode == status
    assert complaint in done.stderr and "Traceback" not in done.stderr
    assert not lock.file_for(path).exists()


def test_policies_are_listed(cotenant: Run, plain_env: dict[str, str]) -> None:
    done = cotenant("policies", env=plain_env)
    assert (done.returncode, done.stderr) == (0, "")
    rows = {line.split()[0]: line for line in done.stdout.splitlines()[1:]}
    assert "(default)" in rows["guard"] and "live" in rows["guard"]
    as_json = json.loads(cotenant("policies", "-o", "json", env=plain_env).stdout)
    assert {one["name"] for one in as_json} == set(rows)


def policy_under_run(
    env: dict[str, str], folder: Path, *options: str, settings: dict[str, str]
) -> tuple[str, str]:
    """Which policy a daemon that `run` has started follows, and what `run` says; both in this folder."""
    path = Path(env["COTENANT_SEGMENT"])
    command = [*COTENANT, "run", *options, "--", "sh", "-c", "read line"]
    with subprocess.Popen(
        command, env=env | settings, cwd=folder, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as job:
        wait_for(lambda: report.read(path) is not None)
        shown = report.read(path)
        _, said = job.communicate("end\n", timeout=60)
    assert shown
    return shown.policy, said


def test_what_is_typed_goes_before_the_environment(env: dict[str, str], tmp_path: Path) -> None:
    settings = {"COTENANT_DAEMON_POLICY": "fair"}
    assert policy_under_run(env, tmp_path, "--policy", "none", settings=settings) == ("none", "")


def test_the_environment_is_for_segments_without_a_policy(env: dict[str, str], tmp_path: Path) -> None:
    assert policy_under_run(env, tmp_path, settings={"COTENANT_DAEMON_POLICY": "fair"}) == ("fair", "")
    assert segment.read(Path(env["COTENANT_SEGMENT"])).policy == ""


def test_a_relative_path_is_one_from_where_run_is_called(env: dict[str, str], tmp_path: Path) -> None:
    policy_file(tmp_path, FIRM)
    settings = {"COTENANT_DAEMON_POLICY": "./policy.py"}
    assert policy_under_run(env, tmp_path, settings=settings) == ("firm", "")


@pytest.mark.parametrize("name", ["./nosuch.py", "nosuch", "paella"])
def test_a_policy_that_cannot_be_had_is_told_and_the_default_goes_on(
    env: dict[str, str], tmp_path: Path, name: str
) -> None:
    policy, said = policy_under_run(env, tmp_path, settings={"COTENANT_DAEMON_POLICY": name})
    assert policy == "guard"
    assert "COTENANT_DAEMON_POLICY: " in said and name.strip("./") in said and len(said.splitlines()) == 1


@pytest.mark.parametrize("length", ["soon", "-1", "nan"])
def test_a_length_that_is_none_is_told(env: dict[str, str], tmp_path: Path, length: str) -> None:
    path = Path(env["COTENANT_SEGMENT"])
    policy, said = policy_under_run(env, tmp_path, settings={"COTENANT_DAEMON_LINGER": length})
    assert policy == "guard" and f"COTENANT_DAEMON_LINGER: '{length}' is no number" in said
    os.kill(daemon_of(path), signal.SIGTERM)  # it would linger for ten seconds
    wait_for(lambda: not lock.is_held(path))


def test_a_daemon_by_hand_says_what_is_wrong_with_its_environment(
    cotenant: Run, path: Path, plain_env: dict[str, str]
) -> None:
    done = cotenant("daemon", env=plain_env | {"COTENANT_DAEMON_POLICY": "nosuch"})
    assert done.returncode == 2 and "unknown policy 'nosuch'" in done.stderr
