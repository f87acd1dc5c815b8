"""`cotenant top`: what the model makes of two looks at a segment, and the frame that a pipe gets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cotenant import segment
from cotenant.classes import TenantClass
from cotenant.segment import Where
from cotenant.segment.wire import Rule
from cotenant.tenants import waits
from cotenant.top import frame, model
from cotenant.top.model import SORTS, Model, Picture, Row, ordered, runs
from tests.segments import UUID, Written

if TYPE_CHECKING:
    from tests.conftest import Run

FRAME = Path(__file__).parent / "top_frame.txt"
SECOND = 1_000_000_000
GiB = 1 << 30
STATE = {
    "clock_mhz": 1455.0,
    "highest_mhz": 1980.0,
    "power_w": 698.2,
    "power_limit_w": 700.0,
    "slowed_by": ("power limit",),
}


class Two:
    """Looks at a segment that is written by hand, a second apart."""

    def __init__(self, folder: Path) -> None:
        self.written = Written()
        self.written.gpu(0, UUID)
        self.path = folder / "segment"
        self.model = Model()
        self.at_ns = SECOND

    def tenant(self, pid: int, name: str, tenant_class: TenantClass, run: int = 0) -> segment.Slot:
        slot = self.written.tenant(len(self.written.slots), pid, name.encode(), tenant_class)
        slot.weight = 1000
        slot.run_id[:] = bytes([run] * 16)
        slot.gpus[0].busy = 1
        return slot

    def look(self) -> Picture:
        seen = segment.read(self.written.to(self.path))
        self.at_ns += SECOND
        return self.model.look(seen, self.at_ns, {0: STATE})


@pytest.fixture
def two(tmp_path: Path) -> Two:
    return Two(tmp_path)


def row_of(picture: Picture, pid: int) -> Row:
    (found,) = (row for row in picture.rows if row.tenant.pid == pid)
    return found


def test_a_share_is_what_was_charged_between_two_looks(two: Two) -> None:
    serve = two.tenant(100, "serve.py", TenantClass.production)
    train = two.tenant(200, "train.py", TenantClass.opportunistic)
    serve.gpus[0].used_ns = 7 * SECOND
    first = two.look()
    assert row_of(first, 100).lately.gpu_share is None and first.gpus[0].total is None
    serve.gpus[0].used_ns += SECOND // 4
    train.gpus[0].used_ns += SECOND // 2
    two.look()
    serve.gpus[0].used_ns += SECOND // 10
    (gpu,) = (last := two.look()).gpus
    assert row_of(last, 100).lately.gpu_share == pytest.approx(0.1)
    assert row_of(last, 200).lately.gpu_share == 0
    assert gpu.history[TenantClass.production] == pytest.approx((0.25, 0.1))
    assert gpu.history[TenantClass.opportunistic] == pytest.approx((0.5, 0))
    assert gpu.total == pytest.approx(0.1)


def test_a_process_that_takes_a_dead_ones_number_begins_anew(two: Two) -> None:
    slot = two.tenant(100, "first", TenantClass.standard)
    slot.gpus[0].used_ns = SECOND // 2
    two.look()
    slot.started, slot.gpus[0].used_ns = 77, 10 * SECOND
    assert row_of(two.look(), 100).lately.gpu_share is None


@pytest.mark.parametrize(("before", "after", "share"), [(5, 0, 0.0), (0, 2**64 - 1, 1.0)])
def test_nonsense_in_a_slot_is_no_nonsense_in_a_share(
    two: Two, before: int, after: int, share: float
) -> None:
    slot = two.tenant(100, "liar", TenantClass.standard)
    slot.gpus[0].used_ns = before
    two.look()
    slot.gpus[0].used_ns = after
    assert row_of(two.look(), 100).lately.gpu_share == share


def test_equals_share_by_weight(two: Two) -> None:
    one, other, idle = (two.tenant(pid, "job", TenantClass.opportunistic) for pid in (1, 2, 3))
    other.weight, idle.gpus[0].busy, idle.gpus[0].figures.kernels = 3000, 0, 1
    two.look()
    one.gpus[0].used_ns += SECOND // 5
    other.gpus[0].used_ns += SECOND // 5
    picture = two.look()
    shares = [(row.lately.share_got, row.lately.share_asked) for row in picture.rows]
    assert shares == [(0.5, 0.25), (0.5, 0.75), (None, None)]


def test_equals_are_those_on_the_same_gpu(two: Two) -> None:
    two.written.gpu(1, bytes([1] * 16))
    slots = [two.tenant(pid, "job", TenantClass.standard) for pid in (1, 2, 3)]
    for slot in slots[1:]:
        slot.gpus[0].busy, slot.gpus[1].busy = 0, 1
    two.look()
    slots[1].gpus[1].used_ns += SECOND // 4
    slots[2].gpus[1].used_ns += 3 * SECOND // 4
    found = [(row.here.use.gpu, row.lately.share_asked, row.lately.share_got) for row in two.look().rows]
    assert found == [(0, None, None), (1, 0.5, 0.25), (1, 0.5, 0.75)]


def test_the_history_of_a_gpu_has_the_latest_looks_only(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "HISTORY_SAMPLES", 3)
    slot = two.tenant(1, "job", TenantClass.standard)
    for tenths in range(6):
        slot.gpus[0].used_ns += tenths * SECOND // 10
        picture = two.look()
    (gpu,) = picture.gpus
    assert gpu.history[TenantClass.standard] == pytest.approx((0.3, 0.4, 0.5))
    assert gpu.history[TenantClass.production] == (0.0, 0.0, 0.0)


def test_who_has_no_equal_at_work_shares_with_nobody(two: Two) -> None:
    two.tenant(1, "one", TenantClass.standard)
    two.tenant(2, "other", TenantClass.opportunistic)
    two.look()
    assert [row.lately.share_asked for row in two.look().rows] == [None, None]


@pytest.mark.parametrize(
    ("used", "busy", "kept"),
    [
        (0.3, 1.0, True),
        (0.05, 1.0, False),
        (0.05, 0.05, True),  # it did not want more
        (0.0, 0.0, True),
    ],
)
def test_a_floor_is_kept_where_it_got_it_or_wanted_less(
    two: Two, used: float, busy: float, kept: bool
) -> None:
    slot = two.tenant(1, "notebook", TenantClass.opportunistic)
    slot.floor = 100
    assert row_of(two.look(), 1).lately.promise_kept is None
    slot.gpus[0].used_ns += int(used * SECOND)
    slot.gpus[0].busy_ns += int(busy * SECOND)
    assert row_of(two.look(), 1).lately.promise_kept is kept


@pytest.mark.parametrize(("waited_us", "kept"), [(0, True), (40, True), (100, False)])
def test_a_slowdown_is_kept_where_bursts_waited_less(two: Two, waited_us: int, kept: bool) -> None:
    slot = two.tenant(1, "serve", TenantClass.production)
    slot.slowdown = 50
    two.look()
    assert row_of(two.look(), 1).lately.promise_kept is None, "without a burst nothing is known"
    here = slot.gpus[0]
    here.figures.bursts, here.busy_ns = 100, 100 * 1_000_000
    here.waits, here.waited_ns = 10, 10 * waited_us * 1000
    assert row_of(two.look(), 1).lately.promise_kept is kept


def test_operations_that_take_longer_break_a_slowdown_too(two: Two) -> None:
    slot = two.tenant(1, "serve", TenantClass.production)
    slot.slowdown = 95
    two.look()
    slot.gpus[0].figures.bursts, slot.gpus[0].busy_ns = 10, 10_000_000
    slot.pace[0].now_ns, slot.pace[0].alone_ns = 1100, 1000  # 10 % more
    assert row_of(two.look(), 1).lately.promise_kept is False
    slot.slowdown = 105
    assert row_of(two.look(), 1).lately.promise_kept is True


def test_waits_of_late_are_those_that_ended_while_it_looked(two: Two) -> None:
    slot = two.tenant(1, "train", TenantClass.opportunistic)
    slot.waiting[0].counts[20] = 50
    two.look()
    assert row_of(two.look(), 1).lately.wait_p50_us == pytest.approx(2_147_483.648 * 1.5)
    slot.waiting[0].counts[0] += 100
    late = row_of(two.look(), 1).lately
    assert (late.wait_p50_us, late.wait_p99_us) == pytest.approx((2.048, 4.05504))


@pytest.mark.parametrize(
    ("counts", "part", "us"),
    [
        ([0] * 24, 0.5, None),
        ([10, *[0] * 23], 0.5, 2.048),
        ([0, 10, *[0] * 22], 1.0, 8.192),
        ([0, 10, *[0] * 22], 0.0, 4.096),
        ([*[0] * 23, 1], 0.5, 17_179_869.184),  # longer than the last bound: at least that
        ([1, 0, 1, *[0] * 21], 0.5, 4.096),
        ([1, 0, 1, *[0] * 21], 0.99, 8.192 + 0.98 * 8.192),
    ],
)
def test_a_quantile_lies_evenly_within_its_bucket(counts: list[int], part: float, us: float | None) -> None:
    found = waits.quantile_us(counts, part)
    assert found is us if us is None else found == pytest.approx(us)


def crowd(two: Two) -> Callable[[], Picture]:
    """A production server with a promise, a run of two processes, and a paused tenant."""
    serve = two.tenant(100, "serve.py", TenantClass.production)
    serve.slowdown = 50
    serve.gpus[0].memory_bytes, serve.memory_limit = 6 * GiB, 20 * GiB
    one = two.tenant(201, "train.py", TenantClass.opportunistic, run=7)
    other = two.tenant(202, "train.py", TenantClass.opportunistic, run=7)
    other.gpus[0].gate, other.gpus[0].figures.escaped = 0, 3
    paused = two.tenant(300, "an-application-with-a-long-name", TenantClass.opportunistic)
    paused.residence.where, paused.residence.paused = Where.evicted, 1
    paused.host_bytes, paused.residence.evictions = 3 * GiB, 4
    paused.gpus[0].busy, paused.gpus[0].figures.kernels = 0, 1

    def pass_a_second() -> Picture:
        here = serve.gpus[0]
        here.used_ns += SECOND // 4
        here.figures.bursts += 100
        here.busy_ns += SECOND // 4
        here.waits += 10
        here.waited_ns += 1_000_000
        one.gpus[0].used_ns += SECOND // 2
        serve.waiting[0].counts[5] += 90  # of 66 to 131 us
        serve.waiting[0].counts[8] += 10  # of 0.5 to 1 ms
        other.waiting[0].preemptions += 6000
        return two.look()

    two.look()
    return pass_a_second


def test_the_frame_is_as_in_the_file(two: Two) -> None:
    pass_a_second = crowd(two)
    pass_a_second()
    assert frame.frame(pass_a_second(), 80) + "\n" == FRAME.read_text()


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_a_line_is_not_wider_than_the_terminal(two: Two, width: int) -> None:
    picture = crowd(two)()
    lines = frame.frame(picture, width).splitlines()
    assert max(map(len, lines)) <= width
    head = next(line.split() for line in lines if line.lstrip().startswith("GPU PID"))
    assert {"PID", "JOB", "CLASS", "STATE", "GPU%", "MEMORY"} <= set(head)
    assert [one for one in ("P50", "P99", "PRE", "EVI") if one in head] == {
        60: [],
        80: ["P99"],
        100: ["P50", "P99", "PRE", "EVI"],
        200: ["P50", "P99", "PRE", "EVI"],
    }[width]


def test_many_gpus_have_a_line_each(two: Two) -> None:
    for number in range(1, 8):
        two.written.gpu(number, bytes([number] * 16))
    two.tenant(1, "job", TenantClass.standard).gpus[0].used_ns = 0
    two.look()
    lines = frame.frame(two.look(), 80).splitlines()
    assert [line.split()[:2] for line in lines[1:9]] == [["GPU", str(number)] for number in range(8)]
    assert lines[9].split()[:2] == ["GPU", "PID"]


def test_rows_are_sorted_and_filtered(two: Two) -> None:
    picture = crowd(two)()

    def pids(**how: str) -> list[int]:
        return [row.tenant.pid for row in ordered(picture.rows, **how)]

    assert pids() == [100, 201, 202, 300]
    assert pids(sort="gpu %") == [201, 100, 202, 300]
    assert pids(sort="memory") == [100, 300, 201, 202]
    assert all(sorted(pids(sort=sort)) == pids() for sort in SORTS)
    assert pids(wanted="TRAIN") == [201, 202]
    assert pids(wanted="prod") == [100]
    assert pids(wanted="paused") == [300]
    assert pids(wanted="0707") == [201, 202]
    assert pids(wanted="nobody") == []


def test_the_processes_of_a_run_are_together(two: Two) -> None:
    picture = crowd(two)()
    together = runs(ordered(picture.rows, "gpu %"))
    assert [[row.tenant.pid for row in run] for run in together] == [[201, 202], [100], [300]]
    lines = frame.rows_of(frame.lines_of(picture, tree=True), 80)
    (at,) = (number for number, line in enumerate(lines) if "2 of train.py" in line)
    assert "50%" in lines[at] and lines[at].split()[0] == "2"
    assert ["  train.py" in line for line in lines[at + 1 : at + 3]] == [True, True]


def test_a_run_is_of_one_user_whatever_another_writes_into_a_slot(two: Two) -> None:
    """A key of `top` ends all processes of a run."""
    for pid, uid in ((100, 1000), (101, 1000), (102, 1001)):
        two.tenant(pid, "train.py", TenantClass.standard, run=7).uid = uid
    together = runs(two.look().rows)
    assert [[row.tenant.pid for row in run] for run in together] == [[100, 101], [102]]


def test_a_process_on_two_gpus_counts_on_each_and_once_in_its_run(two: Two) -> None:
    two.written.gpu(1, bytes(16))
    slot = two.tenant(100, "train.py", TenantClass.standard, run=7)
    slot.gpus[1].busy = 1
    slot.host_bytes, slot.residence.evictions = 1 << 30, 3
    two.look()
    slot.gpus[0].used_ns += SECOND // 4
    slot.gpus[1].used_ns += SECOND // 2
    picture = two.look()
    shares = [gpu.share(TenantClass.standard) for gpu in picture.gpus]
    assert shares == pytest.approx([0.25, 0.5])
    line, *_ = frame.lines_of(picture, tree=True)
    cells = dict(zip((column.heading for column in frame.COLUMNS), line.cells, strict=True))
    assert (cells["PID"], cells["GPU%"], cells["HOST"], cells["EVI"]) == ("1 of", "75%", "1G", "3")


def test_nothing_is_kept_of_who_has_ended(two: Two) -> None:
    two.tenant(100, "train.py", TenantClass.standard)
    two.look()
    two.written.slots.clear()
    two.look()
    assert not two.model.delays and not two.model.looks.uses


def test_lanes_stand_under_their_process(two: Two) -> None:
    own = two.tenant(100, "serve.py", TenantClass.production, run=7)
    lane = two.tenant(101, "serve.py", TenantClass.opportunistic, run=9)
    lane.lane, lane.job, own.job = 1, b"server/train", b"server"
    two.tenant(200, "train.py", TenantClass.opportunistic, run=8)
    seen = segment.read(two.written.to(two.path))
    # Of a thread of a process that is not there nothing is known.
    tenants = [replace(one, process=100) if one.lane else one for one in seen.tenants]
    picture = two.model.look(replace(seen, tenants=tuple(tenants)), 2 * SECOND, {})
    names = [line.cells[frame.NAME] for line in frame.lines_of(picture, tree=True)]
    assert names == ["server", "  serve.py", "  lane train", "train.py", "  train.py"]
    pids = [line.cells[1] for line in frame.lines_of(picture, tree=True)]
    assert pids[0] == "1 of", "it is one process"


def test_who_delayed_whom_is_counted_over_looks(two: Two) -> None:
    serve = two.tenant(100, "serve.py", TenantClass.production)
    train = two.tenant(200, "train.py", TenantClass.opportunistic)
    two.written.header.knobs = segment.Knobs(rule=Rule.strict, stale_ms=60_000)
    serve.heartbeat_ns = train.heartbeat_ns = 5 * SECOND
    train.gpus[0].ready = 1
    for gate in (0, 0, 1, 0):
        train.gpus[0].gate = gate
        picture = two.look()
    assert row_of(picture, 200).delayed_by == (("serve.py (100)", 0.75),)
    assert row_of(picture, 100).delayed_by == ()
    assert frame.frame(picture, 1000).splitlines()[-1].endswith("serve.py (100) 75%")
    assert "DELAYED-BY" not in frame.frame(picture, 80)


def test_only_the_jobs_that_were_named_are_shown(cotenant: Run, plain_env: dict[str, str], two: Two) -> None:
    crowd(two)
    env = plain_env | {"COTENANT_SEGMENT": str(two.path)}
    done = cotenant("top", "--interval", "0.1", "serve.py", "202", env=env)
    pids = [line.split()[1] for line in done.stdout.splitlines()[6:]]
    assert (done.returncode, pids) == (0, ["100", "201", "202"]), "both are of one run"
    assert done.stdout.startswith("cotenant: 4 tenants on 1 GPU"), "what classes use is what all use"
    done = cotenant("top", "--once", "serv.py", env=env)
    assert (done.returncode, done.stdout) == (1, "") and "did you mean 'serve.py'?" in done.stderr


def test_a_pipe_gets_one_frame(cotenant: Run, plain_env: dict[str, str], two: Two) -> None:
    crowd(two)
    env = plain_env | {"COTENANT_SEGMENT": str(two.path)}
    done = cotenant("top", "--interval", "0.1", env=env)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("cotenant: 4 tenants on 1 GPU, policy guard")
    assert "no daemon runs" in lines[1]
    assert lines[2].split() == ["production", "0%", "▁"]
    assert lines[5].split() == [column.heading for column in frame.COLUMNS]
    assert lines[6].split() == ["0", "100", "serve.py", "prod", "busy", "0%", "<5%", "6G/20G", *"0000"]
    assert any("an-application-with-a-long-name" in line for line in lines), "nothing is cut off"
    assert "\x1b" not in done.stdout


def test_what_is_no_segment_is_an_error(cotenant: Run, plain_env: dict[str, str]) -> None:
    Path(plain_env["COTENANT_SEGMENT"]).write_bytes(b"somebody's file")
    done = cotenant("top", "--once", env=plain_env)
    assert (done.returncode, done.stdout) == (1, "")
    assert "is not a Cotenant segment" in done.stderr
