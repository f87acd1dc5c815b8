"""`cotenant explain`: how a tenant stands, why it waits now, and what the policy decided."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cotenant import segment
from cotenant.classes import TenantClass
from cotenant.commands import explain
from cotenant.daemon import lock, report
from cotenant.policies.interface import Rule
from cotenant.segment import Where
from cotenant.tenants import sharing, sm_limit
from tests.segments import UUID, Written

if TYPE_CHECKING:
    from tests.conftest import Run

FOREVER = 2**62


class Scene:
    """A GPU with tenants; each is described by what differs from an idle one with its gate open."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.written = Written()
        self.written.gpu(0, UUID)
        self.written.header.knobs = segment.Knobs(rule=Rule.strict, stale_ms=60_000)

    def tenant(self, pid: int, name: str, tenant_class: TenantClass, **here: int) -> segment.Slot:
        slot = self.written.tenant(pid, pid, name.encode(), tenant_class)
        slot.weight, slot.started, slot.heartbeat_ns = 1000, pid, time.monotonic_ns()
        on_gpu = slot.gpus[0]
        on_gpu.figures.bursts = 1
        for field, value in here.items():
            setattr(on_gpu, field, value)
        return slot

    def waiting(self, **here: int) -> segment.Slot:
        """Its gate is closed, the one for copies open."""
        slot = self.tenant(
            20, "train", TenantClass.opportunistic, **({"gate": 0, "busy": 1, "ready": 1} | here)
        )
        slot.copy_gates[0] = segment.GATE_OPEN
        return slot


@pytest.fixture
def scene(plain_env: dict[str, str]) -> Scene:
    return Scene(Path(plain_env["COTENANT_SEGMENT"]))


@pytest.fixture
def explained(cotenant: Run, plain_env: dict[str, str], scene: Scene) -> Any:
    def ask(pid: int = 20) -> str:
        scene.written.to(scene.path)
        done = cotenant("explain", str(pid), env=plain_env)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return done.stdout

    return ask


def test_who_is_above_and_has_work(scene: Scene, explained: Any) -> None:
    scene.waiting(used_ns=2_500_000_000)
    scene.tenant(10, "serve", TenantClass.production, busy=1)
    scene.tenant(11, "idle", TenantClass.production)
    scene.tenant(12, "lenient", TenantClass.standard, busy=1, tolerant_until_ns=FOREVER)
    scene.tenant(13, "stopped", TenantClass.production, busy=1).heartbeat_ns = 1
    scene.written.gpu(1, bytes(16))
    scene.tenant(14, "elsewhere", TenantClass.production).gpus[1].busy = 1
    text = explained()
    assert "GPU 0: train (20) waits; has used 2.5 s" in text
    assert f"because {IS_ABOVE}" in text
    assert not re.search("idle\\)|lenient|stopped|elsewhere", text)


IS_ABOVE = "production serve (10) is of a higher class than train (20) and has work"
COPIES = "production serve (10) copies between host and GPU, and long copies of train (20) wait for that"


def test_long_copies_wait_for_a_higher_class_that_copies(scene: Scene, explained: Any) -> None:
    """Of one that only copies, this is the whole reason."""
    scene.waiting(ready=0).copy_gates[0] = 0
    scene.tenant(10, "serve", TenantClass.production, busy=segment.Busy.copying)
    scene.tenant(11, "computes", TenantClass.production, busy=1)
    scene.tenant(21, "equal", TenantClass.opportunistic, busy=1, holds_turn=1)
    text = explained()
    assert "GPU 0: train (20) waits" in text and f"because {COPIES}" in text
    assert not re.search("has work|computes|equal", text)


def test_kernels_and_long_copies_wait_for_a_higher_class_that_does_both(scene: Scene, explained: Any) -> None:
    scene.waiting().copy_gates[0] = 0
    scene.tenant(10, "serve", TenantClass.production, busy=segment.Busy.copying)
    text = explained()
    assert f"because {IS_ABOVE}" in text and f"because {COPIES}" in text


def test_long_copies_go_on_beside_a_higher_class_that_computes(scene: Scene, explained: Any) -> None:
    scene.waiting(ready=0)
    scene.tenant(10, "serve", TenantClass.production, busy=1)
    text = explained()
    assert "train (20) copies between host and GPU and is not waiting" in text and "because" not in text


def test_shut_by_the_policy(scene: Scene, explained: Any) -> None:
    scene.waiting(shut_until_ns=time.monotonic_ns() + 60 * 10**9)
    found = re.search(r"the policy keeps train \(20\) shut, for another (\d+) ms", explained())
    assert found and 0 < int(found[1]) <= 60_000


def test_a_moment_that_has_passed_is_no_reason(scene: Scene, explained: Any) -> None:
    scene.waiting(shut_until_ns=1)
    text = explained()
    assert "shut" not in text and "the gate of train (20) is being opened" in text


def test_over_its_rate(scene: Scene, explained: Any) -> None:
    scene.waiting(over_rate=1, rate=300)
    assert "train (20) has used more than its rate, 30% of the GPU" in explained()


@pytest.mark.parametrize("rule", [Rule.strict, Rule.fair])
def test_the_turn_of_an_equal(scene: Scene, explained: Any, rule: Rule) -> None:
    scene.written.header.knobs.rule = rule
    scene.waiting()
    scene.tenant(21, "other", TenantClass.opportunistic, busy=1, holds_turn=1)
    scene.tenant(22, "higher", TenantClass.standard, busy=1, holds_turn=1)
    text = explained()
    assert "because the turn belongs to other (21), an equal of train (20)" in text
    assert ("turn belongs to higher (22)" in text) == (rule is Rule.fair)


def test_it_is_not_waiting(scene: Scene, explained: Any) -> None:
    scene.waiting(gate=1)
    assert "train (20) has work and is not waiting" in explained()
    scene.waiting(gate=1, below_floor=1)
    assert "it has got less than its floor" in explained()


def test_without_work_it_says_what_would_happen(scene: Scene, explained: Any) -> None:
    scene.waiting(busy=0)
    scene.tenant(10, "serve", TenantClass.production, busy=1)
    text = explained()
    assert (
        "train (20) has no work" in text and "it would wait if it had work" in text and "serve (10)" in text
    )


def test_its_standing(scene: Scene, explained: Any) -> None:
    slot = scene.tenant(10, "serve\x1b[31m", TenantClass.production)
    slot.slowdown, slot.weight, slot.time_slice_us, slot.grace_us = 50, 1500, 2000, 300
    first = explained(10).splitlines()[0]
    assert first == (
        "serve?[31m (10): production, weight 1.5, promised a slowdown of at most 5%, time slice 2000 us, "
        "counts as idle after 300 us without work"
    )
    slot = scene.waiting()
    slot.floor, slot.time_slice_refused = 50, 1
    assert "promised 5% of the GPU, time slice refused by the driver" in explained()


def test_without_a_daemon_the_rules_go_on(scene: Scene, explained: Any) -> None:
    scene.waiting()
    shown = report.Report(scene.path)
    shown.show("guard", "", {(20, 20, 0): ["Left behind by one that was killed."]})
    text = explained()
    assert "policy guard: no daemon runs; the rules go on under the last knobs" in text
    assert "Left behind" not in text
    scene.written.header.policy = b"fair"
    assert "policy fair: no daemon" in explained()


def test_the_policys_decisions_about_it(
    scene: Scene, explained: Any, cotenant: Run, plain_env: dict[str, str]
) -> None:
    scene.waiting()
    held = lock.acquire(scene.path)
    assert held is not None
    try:
        shown = report.Report(scene.path)
        lines = {
            (20, 20, 0): ["It is newer.", "Older\x1b."],
            (20, 999, 0): ["Of a former owner of the number."],
        }
        shown.show("mine", "it failed once", lines)
        text = explained()
        assert re.search(
            r"policy mine, daemon \d+\n  it failed once\n  \d\d:\d\d:\d\d train \(20\) is newer\.\n", text
        )
        assert "train (20): older?." in text and "former" not in text
        (about,) = json.loads(cotenant("explain", "20", "-o", "json", env=plain_env).stdout)["tenants"]
        decisions = about["policy"]["decisions"]
        assert [one["text"] for one in decisions] == ["train (20) is newer.", "train (20): older\x1b."]
        assert [one["subject"]["pid"] for one in decisions] == [20, 20]
    finally:
        lock.release(scene.path, held)


def test_a_decision_about_another_names_that_one(
    scene: Scene, explained: Any, cotenant: Run, plain_env: dict[str, str]
) -> None:
    """As guard decides about the production job that all lower classes wait for."""
    scene.waiting()
    scene.tenant(10, "serve", TenantClass.production, busy=1).started = 110
    held = lock.acquire(scene.path)
    assert held is not None
    try:
        lines = [
            report.Told("It is slowed down by 7%.", (10, 110)),
            report.Told("Its promise is kept.", (10, 110)),
            report.Told("It was there.", (99, 99)),
        ]
        report.Report(scene.path).show("guard", "", {(20, 20, 0): lines})
        text = explained()
        assert "serve (10) is slowed down by 7%." in text and "serve (10)'s promise is kept." in text
        assert "a tenant that has ended (99) was there." in text
        (about,) = json.loads(cotenant("explain", "20", "-o", "json", env=plain_env).stdout)["tenants"]
        subjects = [one["subject"] for one in about["policy"]["decisions"]]
        assert [(one["job"], one["pid"]) for one in subjects] == [("serve", 10), ("serve", 10), (None, 99)]
    finally:
        lock.release(scene.path, held)


@pytest.mark.parametrize("tenant_class", TenantClass)
@pytest.mark.parametrize(
    "state", ["idle", "busy", "gated", "evicting", "evicted", "restoring", "paused", "limit", "new"]
)
def test_every_sentence_names_its_subject(
    scene: Scene, explained: Any, tenant_class: TenantClass, state: str
) -> None:
    here = {"gate": int(state != "gated"), "busy": int(state != "idle"), "memory_bytes": 1 << 20}
    slot = scene.tenant(20, "train", tenant_class, **({} if state == "new" else here))
    slot.gpus[0].figures.bursts = state != "new"
    slot.slowdown, slot.floor, slot.time_slice_us, slot.residence.evictions = 50, 50, 2000, 2
    slot.residence.refusal = 3
    if state in Where.__members__:
        slot.residence.where, slot.host_bytes = Where[state], 1 << 20
    if state in ("paused", "limit"):
        slot.residence.where, slot.host_bytes = Where.evicted, 1 << 20
        slot.residence.paused, slot.memory_limit = state == "paused", 1 << 20
    for line in explained().splitlines():
        if not line.startswith("policy "):
            assert "train (20)" in line, line
            assert not re.search(r"(^|: |because )(it|its) ", line.strip()), line


def test_a_job_that_its_own_limit_keeps_away_says_so(explained: Any, scene: Scene) -> None:
    slot = scene.waiting()
    slot.residence.where, slot.host_bytes, slot.memory_limit = Where.evicted, 10 << 20, 20 << 20
    text = explained()
    assert "train (20)'s memory is evicted, because of train (20)'s own memory limit, 20M: 10M of" in text
    assert "cotenant ctl 20 --memory" in text
    slot.residence.waiting_since_ns, slot.residence.wanted_bytes = 1, 10 << 20
    text = explained()
    assert "because of other tenants that need the space" in text and "when there is space for 10M" in text


def test_json_has_it_all(scene: Scene, cotenant: Run, plain_env: dict[str, str]) -> None:
    slot = scene.waiting(used_ns=10**9, busy_ns=3 * 10**9)
    slot.floor = 50
    scene.tenant(10, "serve", TenantClass.production, busy=1)
    scene.written.to(scene.path)
    (about,) = json.loads(cotenant("explain", "20", "-o", "json", env=plain_env).stdout)["tenants"]
    assert (about["class"], about["floor"], about["slowdown"]) == ("opportunistic", 0.05, None)
    (gpu,) = about["gpus"]
    assert (gpu["has_work"], gpu["gated"], gpu["used_seconds"], gpu["busy_seconds"]) == (True, True, 1, 3)
    assert (gpu["state"], gpu["copies_gated"], gpu["why"]) == ("gated", False, [IS_ABOVE])
    assert about["policy"] == {"name": "guard", "daemon": None, "problem": "", "decisions": []}


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"nonsense", b'{"tenants": 3}', b'{"tenants": []}'])
def test_a_damaged_report_is_none(scene: Scene, content: bytes) -> None:
    report.file_for(scene.path).write_bytes(content)
    assert report.read(scene.path) is None


def test_a_process_that_is_no_tenant(cotenant: Run, plain_env: dict[str, str], scene: Scene) -> None:
    scene.written.to(scene.path)
    done = cotenant("explain", "1", env=plain_env)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, "hint: there are no tenants")
    scene.waiting()
    scene.written.to(scene.path)
    done = cotenant("explain", "1", env=plain_env)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, "hint: there are train (20)")


@pytest.mark.parametrize(
    ("where", "words"), [(Where.evicting, "evicted to the host"), (Where.restoring, "restored")]
)
def test_memory_that_moves_is_said_to(explained: Any, scene: Scene, where: Where, words: str) -> None:
    slot = scene.waiting()
    slot.residence.where, slot.host_bytes = where, 10 << 20
    assert f"train (20)'s memory is being {words}" in (text := explained())
    assert "10M of train (20)'s memory are on the host now" in text


def test_what_cannot_leave_the_gpu_is_all_but_what_can_move(explained: Any, scene: Scene) -> None:
    slot = scene.waiting(memory_bytes=10 << 20)
    slot.memory[0].movable_bytes = 6 << 20
    slot.residence.where = segment.Where.resident
    assert "4M of train (20)'s memory cannot be evicted" in explained()
    slot.memory[0].movable_bytes = 10 << 20
    assert "cannot be evicted" not in explained()


def test_where_the_time_of_a_burst_goes(scene: Scene, explained: Any) -> None:
    slot = scene.tenant(
        10, "serve", TenantClass.production, waits=4, waited_ns=840_000, gap_ns=10**8, busy_ns=18 * 10**8
    )
    slot.gpus[0].figures.bursts = 1000
    text = explained(10)
    assert (
        "of a burst of 1.80 ms serve (10) waited 0.21 ms for the GPU, ran 1.49 ms and waited 0.10 ms for its own CPU"
        in text
    )
    assert "no other tenant was at work" not in text
    slot.pace[0].now_ns, slot.pace[0].alone_ns = 120_000, 100_000
    assert (
        "serve (10)'s operations take 20% more GPU time than when no other tenant was at work"
        in explained(10)
    )


def test_a_job_that_passes_gates_has_no_breakdown(scene: Scene, explained: Any) -> None:
    scene.waiting(waits=4, waited_ns=840_000, busy_ns=10**9)
    assert "of a burst" not in explained()


def about(**changed: Any) -> dict[str, Any]:
    """What is known of a resident tenant of which nothing is to be said."""
    nothing: dict[str, Any] = {
        "job": "train", "pid": 20, "class": "standard", "weight": 1.0, "slowdown": None, "floor": 0.0,
        "time_slice_refused": False, "time_slice_us": 0, "grace_us": 0, "where": "resident", "evicted_for": None,
        "host_bytes": 0, "memory_limit": None, "wanted_bytes": 0, "evictions": 0, "saved_bytes": 0,
        "dropped_bytes": 0, "transfer_seconds": 0.0, "refusal": None, "gpus": [], "sms": 0.0, "sms_refused": None,
        "policy": {"name": "guard", "daemon": None, "problem": "", "decisions": []},
    }  # fmt: skip
    return nothing | changed


MIB = 1 << 20


@pytest.mark.parametrize(
    ("changed", "lines"),
    [
        ({}, []),
        (
            {"where": "restoring", "host_bytes": 3 * MIB},
            ["train (20)'s memory is being restored: 3M of train (20)'s memory are on the host now"],
        ),
        (
            {"where": "evicting", "evicted_for": "space", "host_bytes": MIB, "wanted_bytes": 5 * MIB},
            [
                "train (20)'s memory is being evicted to the host, because of other tenants that need the space: "
                "1M of train (20)'s memory are on the host now",
                "  train (20) is restored when there is space for 5M",
            ],
        ),
        (
            {"where": "evicted", "evicted_for": "pause", "host_bytes": MIB, "wanted_bytes": MIB},
            [
                "train (20)'s memory is evicted, because of a pause by hand: 1M of train (20)'s memory are on the host",
                "  `cotenant resume 20` resumes train (20)",
            ],
        ),
        (
            {"where": "evicted", "evicted_for": "limit", "host_bytes": MIB, "memory_limit": "2G"},
            [
                "train (20)'s memory is evicted, because of train (20)'s own memory limit, 2G: "
                "1M of train (20)'s memory are on the host",
                "  train (20) runs on when it frees memory, or under a higher limit: cotenant ctl 20 --memory",
            ],
        ),
        ({"wanted_bytes": 7 * MIB}, ["train (20) waits for 7M of the GPU's memory"]),
        (
            {"gpus": [{"memory_bytes": 5 * MIB, "movable_bytes": 3 * MIB}, {"memory_bytes": 1, "movable_bytes": 2}]},
            ["2M of train (20)'s memory cannot be evicted"],
        ),
        ({"where": "pinned", "gpus": [{"memory_bytes": 5 * MIB, "movable_bytes": 0}]}, []),
        (
            {"evictions": 1, "saved_bytes": 4 * MIB},
            ["train (20)'s memory was evicted once: 4M copied"],
        ),
        (
            {"evictions": 2, "saved_bytes": 4 * MIB, "dropped_bytes": MIB, "transfer_seconds": 1.255},
            [
                "train (20)'s memory was evicted 2 times: 4M copied, 1M were free and not copied; "
                "eviction and restore took 1.25 s the last time"
            ],
        ),
        ({"refusal": "a driver call failed"}, ["train (20)'s last eviction was refused: a driver call failed"]),
    ],
)  # fmt: skip
def test_where_its_memory_is_in_words(changed: dict[str, Any], lines: list[str]) -> None:
    assert list(explain.memory_in_words(about(**changed), "train (20)")) == lines


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, "standard, weight 1"),
        ({"slowdown": 0.055, "weight": 2.5}, "standard, weight 2.5, promised a slowdown of at most 5.5%"),
        ({"floor": 0.1, "time_slice_us": 2000}, "standard, weight 1, promised 10% of the GPU, time slice 2000 us"),
        (
            {"time_slice_refused": True, "time_slice_us": 2000, "grace_us": 30},
            "standard, weight 1, time slice refused by the driver, counts as idle after 30 us without work",
        ),
    ],
)  # fmt: skip
def test_its_standing_in_words(changed: dict[str, Any], words: str) -> None:
    assert ", ".join(explain.standing(about(**changed))) == words


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, "train has no work; has used 2.5 s"),
        ({"why": ["x"]}, "train has no work; has used 2.5 s; it would wait if it had work"),
        (
            {"has_work": True, "gpu_share": 0.256},
            "train has work and is not waiting; has used 2.5 s, 26% of the GPU now",
        ),
        (
            {"has_work": True, "below_floor": True},
            "train has work and is not waiting, ahead of the higher classes: it has got less than its floor; "
            "has used 2.5 s",
        ),
        ({"has_work": True, "waits": True, "gpu_share": 0.0}, "train waits; has used 2.5 s, 0% of the GPU now"),
        (
            {"has_work": True, "only_copies": True},
            "train copies between host and GPU and is not waiting; has used 2.5 s",
        ),
    ],
)  # fmt: skip
def test_what_it_does_on_a_gpu_in_words(changed: dict[str, Any], words: str) -> None:
    idle: dict[str, Any] = {
        "used_seconds": 2.46, "gpu_share": None, "waits": False, "only_copies": False, "has_work": False,
        "below_floor": False, "why": [],
    }  # fmt: skip
    assert explain.on_gpu(idle | changed, "train") == words


@pytest.mark.parametrize(
    ("sentence", "told"),
    [
        ("It runs.", "serve (1) runs."),
        ("Its gate is closed.", "serve (1)'s gate is closed."),
        ("Italy is far.", "serve (1): italy is far."),
        ("", "serve (1): "),
    ],
)
def test_a_policys_sentence_gets_its_subject(sentence: str, told: str) -> None:
    assert explain.with_subject(sentence, "serve (1)") == told


def test_sms_in_words() -> None:
    def words(gpu: dict[str, Any], **changed: Any) -> list[str]:
        on = {"gpu": 3, "sms_by_policy": 0.0, "sms_now": 0, "undetoured": 0, "detours": 0}
        return list(sm_limit.in_words(about(gpus=[on | gpu], **changed), "train"))

    assert words({}) == []
    since = sm_limit.REFUSALS[3][0]
    assert words({}, sms=0.3, sms_refused=since) == ["train's kernels get 30% of the SMs, since its start"]
    assert words({}, sms=0.3, sms_refused="x") == ["train's kernels get all SMs: x"]
    assert words({"sms_by_policy": 0.5}) == ["the policy guard gives train's kernels 50% of GPU 3's SMs"]
    less = "the policy guard gives train's kernels 50% of GPU 3's SMs, less than the 75% of --sms"
    assert words({"sms_by_policy": 0.5}, sms=0.75) == [less]
    assert words({"sms_by_policy": 0.5}, sms=0.5) == [less.partition(",")[0]]
    assert words({"sms_now": 60, "detours": 7}) == ["train's kernels get 60 SMs of GPU 3: 7 did"]
    (told,) = words({"sms_now": 60, "detours": 7, "undetoured": 2})
    assert told.startswith("train's kernels get 60 SMs of GPU 3: 7 did; 2 others got all: ")
    assert [sm_limit.refusal_of(number) for number in (0, 1, 9)] == [
        None,
        "it was started as production",
        None,
    ]


def test_how_it_shares_in_words() -> None:
    def words(**told: Any) -> list[str]:
        return list(sharing.in_words({"share": "turns", "reason": None, "fault": None} | told, "train"))

    assert words() == ["train takes turns"]
    assert words(share="spatial", reason="it is light") == ["train overlaps with others in MPS: it is light"]
    assert words(fault=700)[1].startswith("the MPS server of train has failed (CUDA error 700)")


def test_a_daemons_policy_is_told_with_its_decisions_and_gpus_where_there_are_several() -> None:
    gpu: dict[str, Any] = {
        "gpu": 0, "used_seconds": 1.0, "gpu_share": None, "waits": True, "only_copies": False, "has_work": True,
        "below_floor": False, "why": [], "memory_bytes": 0, "movable_bytes": 0, "sms_by_policy": 0.0, "sms_now": 0,
        "undetoured": 0, "detours": 0, "breakdown": {"text": ["a burst"]}, "device": {
            "in_words": "it is fast", "outside_in_words": ["is shared"],
        },
        "at_work": {"in_words": "1980 MHz"},
    }  # fmt: skip
    decisions = [{"at": 0, "gpu": 1, "text": "it waits"}]
    policy = {"name": "mine", "daemon": 7, "problem": "late", "decisions": decisions}
    shared = {"share": "turns", "reason": None, "fault": None}
    told = list(explain.in_words(about(gpus=[gpu, gpu | {"gpu": 1}], policy=policy, sharing=shared)))
    at = time.strftime("%H:%M:%S", time.localtime(0))

    def on_gpu(number: int) -> list[str]:
        lines = ["the gate of train (20) is being opened right now", "a burst", "it is fast"]
        return [f"  {line}" for line in [*lines, f"GPU {number} is shared", "1980 MHz"]]

    assert told == [
        "train (20): standard, weight 1",
        "train (20) takes turns",
        "GPU 0: train (20) waits; has used 1.0 s",
        *on_gpu(0),
        "GPU 1: train (20) waits; has used 1.0 s",
        *on_gpu(1),
        "policy mine, daemon 7",
        "  late",
        f"  {at} GPU 1: it waits",
    ]  # fmt: skip
    quiet = gpu | {"waits": False, "breakdown": None, "at_work": None}
    told = list(explain.in_words(about(gpus=[quiet], policy=policy | {"problem": ""}, sharing=shared)))
    assert told[2:] == [
        "GPU 0: train (20) has work and is not waiting; has used 1.0 s",
        "  it is fast",
        "  GPU 0 is shared",
        "policy mine, daemon 7",
        f"  {at} it waits",
    ]
    told = list(explain.in_words(about(sharing=shared)))
    assert told[2:] == [
        "train (20) has not used a GPU yet",
        "policy guard: no daemon runs; the rules go on under the last knobs",
    ]


def test_a_decision_about_another_finds_it_by_its_number_in_its_container(scene: Scene) -> None:
    """The daemon's report has the numbers of their own namespaces; here those may be others'."""
    scene.tenant(7, "asked", TenantClass.standard)
    (asked,) = segment.read(scene.written.to(scene.path)).tenants
    inside = replace(asked, pid=5000, own_pid=7, job="inside", started=9)
    beside = replace(asked, pid=7, own_pid=70, job="beside", started=9)
    seen = segment.Snapshot({}, (beside, inside, asked), 0)
    told = explain.decision(report.Decision(1.0, "It waits.", (7, 9)), 0, seen, asked)
    assert (told["text"], told["subject"]["pid"]) == ("inside (5000) waits.", 5000)


def test_a_decision_about_one_that_has_ended_has_its_number_only(scene: Scene) -> None:
    scene.tenant(7, "asked", TenantClass.standard)
    (asked,) = segment.read(scene.written.to(scene.path)).tenants
    told = explain.decision(
        report.Decision(1.0, "It waits.", (8, 9)), 0, segment.Snapshot({}, (asked,), 0), asked
    )
    assert told["subject"] == {"job": None, "pid": 8, "run_id": None}
    assert told["text"] == "a tenant that has ended (8) waits."


def test_only_who_has_work_waits(scene: Scene) -> None:
    for slot, busy in ((20, 1), (30, 0)):
        scene.tenant(slot, "train", TenantClass.opportunistic, gate=0, busy=busy, ready=1)
    seen = segment.read(scene.written.to(scene.path))
    waits = [explain.gather(seen, one, scene.path, {})["gpus"][0]["waits"] for one in seen.tenants]
    assert waits == [True, False]
