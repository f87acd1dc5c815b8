"""A policy is anybody's code, and a slot any tenant's: neither stops the daemon from looking after the others."""

from __future__ import annotations

import ctypes
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cotenant import segment
from cotenant.classes import TenantClass
from cotenant.daemon import choice, report
from cotenant.daemon.attachment import DEFAULTS, Attachment
from cotenant.errors import Problem
from cotenant.policies import patience
from cotenant.policies.interface import Rule
from tests.daemon.made import BROKEN, COTENANT, FIRM, add, daemon, policy_file
from tests.segments import UUID, Written
from tests.waiting import wait_for

if TYPE_CHECKING:
    from tests.conftest import Run

ODD = """
import sys
from cotenant.policies.interface import Knobs, Rule, TenantKnobs
class Odd:
    name, title, every_ms = "odd", "does what it must not", 10
    def tick(self, view):
        ids = [one.id for one in view.tenants]
        TICK
    def explain(self, tenant):
        EXPLAIN
class Unspeakable(Exception):
    def __repr__(self): sys.exit("not even that")
"""


def odd(tick: str = "return Knobs(rule=Rule.fair)", explain: str = "return []") -> str:
    return ODD.replace("TICK", tick).replace("EXPLAIN", explain)


@pytest.mark.parametrize(
    ("tick", "complaint"),
    [
        ("return None", "tick answered None, not Knobs"),
        ("return {}", "tick answered {}, not Knobs"),
        ("return Knobs(tenants={ids[0]: TenantKnobs(rate=float('nan'))})", "rate is nan"),
        ("return Knobs(tenants={ids[0]: TenantKnobs(rate=float('inf'))})", "rate is inf"),
        ("return Knobs(tenants={ids[0]: TenantKnobs(rate=-0.1)})", "rate is -0.1"),
        ("return Knobs(tenants={ids[0]: TenantKnobs(rate='0.5')})", "rate is '0.5'"),
        ("return Knobs(tenants={ids[0]: TenantKnobs(rate=True)})", "rate is True"),
        ("return Knobs(tenants={ids[0]: TenantKnobs(shut=None)})", "shut is None"),
        ("return Knobs(tenants={ids[0]: TenantKnobs(tolerant='no')})", "tolerant is 'no'"),
        ("return Knobs(tenants={ids[0]: {'shut': True}})", "not TenantKnobs"),
        ("return Knobs(tenants=ids)", "not knobs by a tenant's id"),
        ("return Knobs(tenants={ids[0]: TenantKnobs(rank=float('nan'))})", "rank is nan"),
        ("return Knobs(parameters=(float('nan'),))", "a parameter is nan"),
        ("return Knobs(in_flight_us=float('nan'))", "in_flight_us is nan"),
        ("return Knobs(turn_us=2**40)", "turn_us is 1099511627776"),
        ("return Knobs(gate_every_us='7')", "gate_every_us is '7'"),
        ("return Knobs(rule=Rule.paella)", "the rule is <Rule.paella: 6>, not one of none, strict, fair"),
        ("return Knobs(rule='fair')", "the rule is 'fair'"),
        ("return Knobs(rule=99)", "the rule is 99"),
        ("sys.exit(3)", "SystemExit(3)"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt()"),
        ("raise GeneratorExit", "GeneratorExit()"),
        ("raise Unspeakable", "a Unspeakable"),
        ("return self.tick(view)", "RecursionError"),
    ],
)
def test_a_tick_that_does_what_it_must_not(
    attachment: Attachment, tmp_path: Path, tick: str, complaint: str
) -> None:
    attachment.header.knobs.rule = Rule.none
    one = daemon(attachment, policy_file(tmp_path, odd(tick)))
    one.tick()
    one.tick()
    assert attachment.header.knobs.rule == Rule.strict
    assert {name: getattr(attachment.header.knobs, name) for name in DEFAULTS} == DEFAULTS
    assert [attachment.slots[index].gpus[0].rate for index in (0, 70)] == [0, 0]
    shown = report.read(attachment.path)
    assert shown and complaint in shown.problem and "strict goes on in its place" in shown.problem
    assert shown.policy == "strict"


@pytest.mark.parametrize(
    ("explain", "complaint"),
    [
        ("return None", "explain answered None, not a list of sentences"),
        ("return 'one sentence'", "explain answered 'one sentence'"),
        ("return [1]", "explain answered [1]"),
        ("return {'a': 1}", "explain answered"),
        ("sys.exit()", "SystemExit"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("raise Unspeakable", "a Unspeakable"),
    ],
)
def test_one_that_cannot_explain_itself_goes_on(
    attachment: Attachment, tmp_path: Path, explain: str, complaint: str
) -> None:
    one = daemon(attachment, policy_file(tmp_path, odd(explain=explain)))
    one.tick()
    assert attachment.header.knobs.rule == Rule.fair
    shown = report.read(attachment.path)
    assert shown and (shown.policy, shown.problem) == ("odd", "")
    text = shown.tenants[0].decisions[0].text
    assert text.startswith("The policy odd cannot say what it does: ") and complaint in text


def test_sentences_without_end_are_cut_off(attachment: Attachment, tmp_path: Path) -> None:
    daemon(attachment, policy_file(tmp_path, odd(explain="return ['x' * 10**6] * 10**4"))).tick()
    shown = report.read(attachment.path)
    assert shown and {len(one.text) for one in shown.tenants[0].decisions} == {500}
    assert len(shown.tenants[0].decisions) == 20


def test_knobs_may_be_fractions(attachment: Attachment, tmp_path: Path) -> None:
    source = odd("return Knobs(gate_every_us=7.4, tenants={one: TenantKnobs(rate=3) for one in ids})")
    one = daemon(attachment, policy_file(tmp_path, source))
    one.tick()
    assert (one.problem, attachment.header.knobs.gate_every_us) == ("", 7)
    assert attachment.slots[70].gpus[0].rate == 1000


@pytest.mark.parametrize("statement", ["import sys; sys.exit(1)", "raise KeyboardInterrupt", "x ="])
def test_a_file_that_cannot_be_loaded(attachment: Attachment, tmp_path: Path, statement: str) -> None:
    one = daemon(attachment, policy_file(tmp_path, statement))
    one.tick()
    assert attachment.header.knobs.rule == Rule.strict
    assert "cannot be loaded" in one.problem


def test_the_daemon_outlives_a_policy_that_exits(
    path: Path, attachment: Attachment, plain_env: dict[str, str], tmp_path: Path
) -> None:
    segment.choose_policy(path, policy_file(tmp_path, odd("sys.exit(1)", "sys.exit(1)")))

    def is_told() -> bool:
        shown = report.read(path)
        return shown is not None and "SystemExit" in shown.problem

    with subprocess.Popen([*COTENANT, "daemon"], env=plain_env) as child:
        wait_for(is_told)
        assert child.poll() is None
        # AND WHEN the file is mended, THEN it is taken when it is named again.
        policy_file(tmp_path, FIRM)
        named = subprocess.run(
            [*COTENANT, "ctl", "--policy", str(tmp_path / "policy.py")],
            env=plain_env,
            timeout=60,
            check=False,
        )
        assert named.returncode == 0
        wait_for(lambda: attachment.header.knobs.rule == Rule.fair)
        child.terminate()
        assert child.wait(60) == 0


def test_the_daemon_outlives_a_policy_without_end(
    path: Path, plain_env: dict[str, str], tmp_path: Path
) -> None:
    segment.choose_policy(path, policy_file(tmp_path, odd("while True: pass")))

    def is_told() -> bool:
        shown = report.read(path)
        return shown is not None and "it did not answer for 5 s" in shown.problem

    with subprocess.Popen([*COTENANT, "daemon"], env=plain_env) as child:
        wait_for(is_told)
        child.terminate()
        assert child.wait(60) == 0


@pytest.mark.parametrize(
    "source",
    [odd("while True: pass"), odd(explain="while True: pass"), odd() + "while True: pass"],
    ids=["tick", "explain", "file"],
)
def test_what_has_no_end_is_ended(attachment: Attachment, tmp_path: Path, source: str) -> None:
    one = daemon(attachment, policy_file(tmp_path, source))
    one.patience_seconds = 0.05
    before = signal.signal(signal.SIGALRM, patience.end_the_wait)
    try:
        one.tick()
        one.tick()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert "it did not answer" in one.problem and one.about.name == "strict"
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_a_command_does_not_wait_for_a_policy_whose_file_has_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "SECONDS", 0.05)
    handler, alarm = signal.getsignal(signal.SIGALRM), signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        with pytest.raises(Problem, match="cannot be loaded: it did not answer"):
            choice.for_segment(policy_file(tmp_path, "while True: pass"))
        assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, *alarm)
    assert signal.getsignal(signal.SIGALRM) is handler


def test_an_alarm_that_was_set_for_a_command_still_comes(tmp_path: Path) -> None:
    alarm = signal.setitimer(signal.ITIMER_REAL, 3600)
    try:
        choice.for_segment(policy_file(tmp_path, odd()))
        left_seconds, again_seconds = signal.getitimer(signal.ITIMER_REAL)
    finally:
        signal.setitimer(signal.ITIMER_REAL, *alarm)
    assert 3000 < left_seconds <= 3600 and not again_seconds


def test_a_mended_policy_is_taken_when_it_is_named_again(attachment: Attachment, tmp_path: Path) -> None:
    named = policy_file(tmp_path, BROKEN)
    segment.choose_policy(attachment.path, named)
    one = daemon(attachment, "strict")
    one.tick()
    assert "unforeseen" in one.problem
    policy_file(tmp_path, FIRM)
    one.tick()
    assert "unforeseen" in one.problem, "nobody has named it"
    segment.choose_policy(attachment.path, named)
    one.tick()
    assert (one.problem, attachment.header.knobs.rule) == ("", Rule.fair)


def test_one_that_works_keeps_what_it_has_learned(attachment: Attachment, tmp_path: Path) -> None:
    named = policy_file(tmp_path, FIRM)
    segment.choose_policy(attachment.path, named)
    one = daemon(attachment, "strict")
    one.tick()
    before = one.controllers[0]
    segment.choose_policy(attachment.path, named)
    one.tick()
    assert one.controllers[0] is before
    # WHEN its file has changed, THEN it is read again, but not before it is named.
    policy_file(tmp_path, FIRM.replace("gate_every_us=7", "gate_every_us=8 "))
    one.tick()
    assert one.controllers[0] is before
    segment.choose_policy(attachment.path, named)
    one.tick()
    assert attachment.header.knobs.gate_every_us == 8


@pytest.mark.parametrize("directory", [False, True], ids=["in a file", "in an administrator's folder"])
def test_naming_is_counted(native: Path, tmp_path: Path, directory: bool) -> None:
    from cotenant.segment.folder import create_folder

    path = tmp_path / "new"
    if directory:
        create_folder(path, None, [], [])
    else:
        segment.ensure(path)
    attached = Attachment(path)
    for count in (1, 2):
        segment.choose_policy(path, "fair")
        assert (attached.choices, attached.policy) == (count, "fair")
    attached.close()


def test_bytecode_of_another_moment_does_not_count(attachment: Attachment, tmp_path: Path) -> None:
    """As Python leaves it beside a file that somebody imports: valid for a text of the same size and second."""
    import os
    import py_compile

    file = Path(policy_file(tmp_path, FIRM))
    py_compile.compile(str(file))
    about = file.stat()
    file.write_text(FIRM.replace("gate_every_us=7", "gate_every_us=8"))
    os.utime(file, ns=(about.st_atime_ns, about.st_mtime_ns))
    daemon(attachment, str(file)).tick()
    assert attachment.header.knobs.gate_every_us == 8


@pytest.mark.parametrize("policy", ["fair", "gemini", "guard", "tgs"])
@pytest.mark.parametrize("weight", [0, 2**32 - 1])
def test_one_tenants_weight_disables_no_policy(attachment: Attachment, policy: str, weight: int) -> None:
    for index in (0, 70):
        attachment.slots[index].weight = weight
    one = daemon(attachment, policy)
    for _ in range(3):
        one.tick()
    assert (one.problem, one.about.name) == ("", policy)


def test_what_a_slot_says_is_brought_into_range(attachment: Attachment) -> None:
    slot = attachment.slots[0]
    slot.weight, slot.slowdown, slot.floor = 0, 2**32 - 1, 2**32 - 1
    (seen, _) = attachment.look().views[0].tenants
    assert (seen.weight, seen.slowdown, seen.floor) == (0.1, 10, 0.9)
    slot.weight, slot.slowdown, slot.floor = 2**32 - 1, 0, 0
    (seen, _) = attachment.look().views[0].tenants
    assert (seen.weight, seen.slowdown, seen.floor) == (100, None, 0)


def test_figures_only_grow_whatever_a_tenant_writes(attachment: Attachment) -> None:
    here = attachment.slots[70].gpus[0]

    def seen() -> tuple[float, ...]:
        one = attachment.look().views[0].tenants[1]
        return one.used_us, one.busy_us, one.operations, one.bursts

    before = seen()
    here.used_ns = here.busy_ns = 0
    here.figures = segment.Figures(bursts=1)
    assert seen() == before
    # Another process in the same slot begins at its own figures.
    attachment.slots[70].started += 1
    assert seen() == (0, 0, 0, 1)


def test_a_slot_of_no_class_is_no_tenant(attachment: Attachment) -> None:
    attachment.slots[70].tenant_class = 7
    look = attachment.look()
    assert (look.live, len(look.views[0].tenants)) == (2, 1)


@pytest.mark.parametrize("every_ms", ["float('nan')", "float('inf')", "'10'", "9", "10**9", "None", "True"])
def test_a_pace_that_nobody_can_keep_is_refused(
    cotenant: Run, path: Path, plain_env: dict[str, str], tmp_path: Path, every_ms: str
) -> None:
    file = policy_file(tmp_path, FIRM.replace('"all at once", 10', f'"all at once", {every_ms}'))
    done = cotenant("ctl", "--policy", file, env=plain_env)
    assert done.returncode == 2 and "wants a tick every" in done.stderr and "Traceback" not in done.stderr


def test_a_policy_file_that_exits_is_one_line(
    cotenant: Run, path: Path, plain_env: dict[str, str], tmp_path: Path
) -> None:
    done = cotenant("ctl", "--policy", policy_file(tmp_path, "import sys; sys.exit(0)"), env=plain_env)
    assert done.returncode == 2 and "cannot be loaded: SystemExit(0)" in done.stderr


def test_policies_of_a_package_are_loaded_anew(
    attachment: Attachment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from importlib.metadata import EntryPoint

    from cotenant.policies import registry

    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    file = tmp_path / "mended_package.py"
    file.write_text(BROKEN)
    entry = EntryPoint("mended", "mended_package:Broken", registry.GROUP)
    monkeypatch.setattr(registry, "installed", lambda: {"mended": entry})
    segment.choose_policy(attachment.path, "mended")
    one = daemon(attachment, "strict")
    one.tick()
    assert "unforeseen" in one.problem
    file.write_text(odd().replace("Odd", "Broken"))
    segment.choose_policy(attachment.path, "mended")
    one.tick()
    assert (one.problem, attachment.header.knobs.rule) == ("", Rule.fair)


@pytest.mark.parametrize("policy", ["guard", "fair", "strict", "none", "gemini", "tgs", "antman", "muxflow"])
def test_garbage_in_what_tenants_say_is_survived(native: Path, tmp_path: Path, policy: str) -> None:
    written = Written()
    written.gpu(0, UUID)
    written.header.knobs = segment.Knobs(rule=1, stale_ms=60, **DEFAULTS)
    for index in range(12):
        add(written, index, 100 + index, TenantClass(index % 3))
    attachment = Attachment(written.to(tmp_path / "segment"))
    one, chance = daemon(attachment, policy), random.Random(policy)
    for _ in range(20):
        for slot in attachment.slots[:12]:
            for part in (slot.gpus[0], slot.residence):
                garbage = chance.randbytes(ctypes.sizeof(part))
                ctypes.memmove(ctypes.addressof(part), garbage, len(garbage))
            slot.tenant_class = chance.choice((0, 1, 2, 3, chance.getrandbits(32)))
            slot.weight, slot.slowdown, slot.floor = (chance.getrandbits(32) for _ in range(3))
            slot.heartbeat_ns = chance.choice((segment.now_ns(), chance.getrandbits(64)))
        one.tick()
        one.report.next_write = 0.0
    assert (one.problem, one.live) == ("", 12)
    attachment.close()
