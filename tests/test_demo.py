"""The demo: its arithmetic exactly, its processes' manners with stand-ins, and the whole on the software GPU."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import Run, clean_environment, processes_with

pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")
pytest.importorskip("matplotlib", reason="matplotlib is not installed")

from cotenant.commands import demo as demo_command
from cotenant.demo import opportunistic, production
from cotenant.demo.arrivals import poisson_arrivals
from cotenant.demo.figures import PHASES, Figures, Measurement, Samples, percentile, ratio_interval
from cotenant.demo.opportunistic import steps_within
from cotenant.demo.orders import Order
from cotenant.demo.picture import compose
from cotenant.demo.report import doubts, headline, leave, summary, table
from cotenant.demo.rounds import plan, private_folder
from cotenant.demo.stillness import Stillness
from cotenant.demo.workers import Worker, worker_command
from cotenant.errors import Problem

FIGURES = {"p50_ms", "p99_ms", "opportunistic_share"}


def measurement(shared_factor: float = 3.0, cotenant_factor: float = 1.1) -> Measurement:
    """Known latencies: 1 to 100 ms alone, and multiples of that."""
    factors = {"alone": 1.0, "shared": shared_factor, "cotenant": cotenant_factor}
    steps = {"alone": 0.0, "shared": 300.0, "cotenant": 350.0}
    phases = {}
    for phase in PHASES:
        latencies = [factors[phase] * ms for ms in range(1, 101)]
        phases[phase] = Samples(latencies, [2.5] * 100, steps[phase], 10.0)
    return Measurement(
        "a GPU", True, 13000, phases, Samples(steps=100.0, seconds=2.0), rounds=2, load_average=0.5
    )


class TestArrivals:
    def test_the_same_seed_gives_the_same_arrivals_and_another_seed_others(self) -> None:
        assert poisson_arrivals(50, 10, seed=3) == poisson_arrivals(50, 10, seed=3)
        assert poisson_arrivals(50, 10, seed=3) != poisson_arrivals(50, 10, seed=4)

    @given(st.floats(0.1, 500), st.floats(0, 5), st.integers(0, 1000))
    def test_they_are_in_order_and_inside_the_window(self, rate: float, seconds: float, seed: int) -> None:
        arrivals = poisson_arrivals(rate, seconds, seed)
        assert arrivals == sorted(arrivals)
        assert all(0 <= arrival < seconds for arrival in arrivals)

    def test_there_are_as_many_as_the_rate_says(self) -> None:
        # The deviation of a Poisson count is its root: 10,000 is within 5 % by far.
        assert len(poisson_arrivals(100, 100, seed=1)) == pytest.approx(10_000, rel=0.05)

    def test_a_rate_of_nothing_is_refused(self) -> None:
        with pytest.raises(ValueError, match="positive"):
            poisson_arrivals(0, 1, seed=1)


class TestFigures:
    def test_phases_of_different_lengths_are_compared_as_far_as_both_go(self) -> None:
        for longer in ([2.0] * 35, [2.0] * 25 + [9.0] * 10):
            assert ratio_interval(longer, [1.0] * 25, 99) == (2.0, 2.0)
            assert ratio_interval([1.0] * 25, longer, 99) == (0.5, 0.5)
        with pytest.raises(ValueError, match="no samples"):
            percentile([], 50)

    def test_percentiles_of_known_samples(self) -> None:
        samples = [float(n) for n in range(101, 0, -1)]
        assert percentile(samples, 0) == 1
        assert percentile(samples, 50) == 51
        assert percentile(samples, 99) == 100
        assert percentile([1.0, 2.0], 25) == 1.25

    @given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0, 100))
    def test_a_percentile_lies_within_the_samples(self, samples: list[float], percent: float) -> None:
        assert min(samples) <= percentile(samples, percent) <= max(samples)

    def test_the_share_is_of_the_solo_rate_of_the_same_run(self) -> None:
        made = measurement()
        assert made.figures("alone").opportunistic_share == 0.0
        assert made.figures("shared").opportunistic_share == pytest.approx(30 / 50)
        assert made.figures("cotenant").opportunistic_share == pytest.approx(35 / 50)

    def test_the_interval_of_a_ratio_holds_the_ratio_and_narrows_with_the_noise(self) -> None:
        noise = random.Random(1)
        base = [10 + noise.expovariate(0.5) for _ in range(1000)]
        slower = [1.5 * ms for ms in base]
        assert ratio_interval(slower, base, 99) == pytest.approx((1.5, 1.5))
        others = [10 + noise.expovariate(0.5) for _ in range(1000)]
        low, high = ratio_interval(others, base, 99)
        assert low < percentile(others, 99) / percentile(base, 99) < high
        assert ratio_interval([3.0], [2.0], 99) == (1.5, 1.5)

    def test_every_figure_is_of_its_own_samples(self) -> None:
        found = measurement()
        found.phases["cotenant"].stalls_ms += [30.0, 70.0]
        shown = found.figures("cotenant")
        assert dataclasses.astuple(shown) == pytest.approx(
            dataclasses.astuple(
                Figures(
                    p50_ms=1.1 * 50.5,
                    p99_ms=1.1 * 99.01,
                    opportunistic_share=35 / 50,
                    p95_ms=1.1 * 95.05,
                    max_ms=110.0,
                    service_p50_ms=2.5,
                    p99_ratio=1.1,
                    p99_ratio_low=1.1,
                    p99_ratio_high=1.1,
                    requests=100,
                    seconds=10.0,
                    stalls=2,
                    longest_stall_ms=70.0,
                )
            )
        )

    def test_the_ratio_is_of_the_slowest_requests(self) -> None:
        """Twice as slow in the middle is nothing where the slowest are as they were."""
        found = measurement(cotenant_factor=1.0)
        found.phases["alone"].latencies_ms = [*[10.0] * 8, 50.0, 50.0] * 10
        found.phases["cotenant"].latencies_ms = [*[20.0] * 8, 50.0, 50.0] * 10
        shown = found.figures("cotenant")
        assert (shown.p99_ratio, shown.p99_ratio_low, shown.p99_ratio_high) == pytest.approx((1.0, 1.0, 1.0))
        assert shown.p50_ms == 20.0

    def test_production_is_busy_while_it_serves(self) -> None:
        assert measurement().production_busy_share == pytest.approx(100 * 0.0025 / 10)

    def test_the_conclusion_follows_the_figures_even_when_they_are_bad(self) -> None:
        good, bad = measurement(), measurement(shared_factor=1.5, cotenant_factor=2.0)
        assert "3.0 times as slow; with Cotenant, 1.1 times" in good.conclusion()
        assert "did not help: 2.0 times" in headline(bad)
        assert headline(measurement(cotenant_factor=1.0)).endswith("not so with Cotenant.")

    def test_a_busy_machine_is_mentioned(self) -> None:
        assert doubts(measurement()) == ""
        assert "busy (load 1000.0" in doubts(dataclasses.replace(measurement(), load_average=1000.0))

    def test_a_machine_that_stands_still_is_mentioned(self) -> None:
        found = measurement()
        found.phases["cotenant"].stalls_ms += [30.0, 70.4]
        assert "(alone 0, shared 0, with Cotenant 2 times, for up to 70 ms)" in doubts(found)

    def test_a_nap_that_lasts_too_long_is_one(self) -> None:
        now = 0.0
        lengths = iter((0.002, 0.012, 0.1, 0.002))

        def nap(_: float) -> None:
            nonlocal now
            now += next(lengths)

        stillness = Stillness(lambda: now, nap)
        with pytest.raises(StopIteration):
            stillness.watch()
        assert stillness.take() == [pytest.approx(98)]
        assert stillness.take() == []


class TestSteps:
    def test_whole_steps_inside_the_window_count(self) -> None:
        assert steps_within([0, 1, 2, 3, 4], 1, 3) == 2

    def test_a_step_over_an_edge_counts_by_its_part_inside(self) -> None:
        assert steps_within([0, 1, 2, 3], 0.5, 2.25) == pytest.approx(1.75)

    def test_nothing_is_done_before_the_beginning_or_after_the_end(self) -> None:
        assert steps_within([10, 11, 12], 0, 100) == 2
        assert steps_within([10, 11, 12], 20, 30) == 0

    @given(st.lists(st.floats(0.001, 1), min_size=1, max_size=50), st.floats(0, 1), st.floats(0, 1))
    def test_two_halves_make_the_whole(self, lengths: list[float], one: float, other: float) -> None:
        times = [0.0]
        for length in lengths:
            times.append(times[-1] + length)
        begin, middle = sorted((one * times[-1], other * times[-1]))
        whole = steps_within(times, begin, times[-1])
        assert steps_within(times, begin, middle) + steps_within(times, middle, times[-1]) == pytest.approx(
            whole
        )


class TestPlan:
    @given(st.floats(2, 600))
    def test_the_windows_add_up_and_every_round_has_all_phases(self, seconds: float) -> None:
        rounds = plan(seconds)
        assert sum(window.seconds for windows in rounds for window in windows) == pytest.approx(seconds)
        assert all({*PHASES, "solo"} == {window.phase for window in windows} for windows in rounds)

    def test_within_a_round_all_meet_the_same_arrivals_and_the_order_turns(self) -> None:
        rounds = plan(60)
        assert len(rounds) > 2
        assert all(len({window.seed for window in windows}) == 1 for windows in rounds)
        assert len({windows[0].seed for windows in rounds}) == len(rounds)
        assert rounds[0][0].phase != rounds[1][0].phase


class Gpu:
    """Takes as long for a kernel as it is asked to, on a clock of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.free_at, self.bursts, self.events = 100.0, 0.0, 0, dict[object, float]()
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(time, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def submit_burst(self, kernels: int, us: float) -> None:
        self.free_at = max(self.free_at, self.now) + kernels * us / 1e6
        self.bursts += 1

    def synchronise(self) -> None:
        self.now = max(self.now, self.free_at)

    def new_event(self) -> object:
        return object()

    def record(self, event: object) -> None:
        self.events[event] = self.free_at

    def wait(self, event: object) -> None:
        self.now = max(self.now, self.events.get(event, 0.0))


class TestJobs:
    def test_a_latency_counts_from_when_the_request_was_meant_to_arrive(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        gpu = Gpu(monkeypatch)
        arrivals = [0.5, 0.501, 1.0]
        monkeypatch.setattr(production, "poisson_arrivals", lambda rate, seconds, seed: arrivals)
        answer = production.serve(gpu, Order(101.0, 2.0, 7))  # type: ignore[arg-type]
        # A request is 20 kernels of 200 us.
        assert answer["latencies_ms"] == pytest.approx([4.0, 7.0, 4.0])
        assert answer["services_ms"] == pytest.approx([4.0, 4.0, 4.0])
        assert (answer["done"], gpu.bursts) == (3, 3) and gpu.now == pytest.approx(102.004)

    def test_requests_arrive_sixty_times_a_second(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[tuple[float, ...]] = []

        def arrivals(*given: float) -> list[float]:
            asked.append(given)
            return []

        monkeypatch.setattr(production, "poisson_arrivals", arrivals)
        production.serve(Gpu(monkeypatch), Order(101.0, 2.0, 7))  # type: ignore[arg-type]
        assert asked == [(60.0, 2.0, 7)]

    def test_training_runs_around_its_window_and_counts_what_is_inside(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        gpu = Gpu(monkeypatch)
        answer = opportunistic.train(gpu, Order(101.0, 2.0, 0))  # type: ignore[arg-type]
        # A step is 40 kernels of 500 us: fifty a second, from a quarter of a second before to one after.
        assert answer["steps"] == pytest.approx(100.0)
        assert answer["done"] == gpu.bursts and 125 <= gpu.bursts <= 128
        assert gpu.now == pytest.approx(100.75 + 0.02 * gpu.bursts)


class TestReport:
    def test_the_summary_has_what_others_rely_on(self) -> None:
        made = summary(measurement())
        assert (made["gpu"], made["software_gpu"]) == ("a GPU", True)
        for phase in PHASES:
            assert made[phase].keys() >= FIGURES
            assert made[phase]["requests"] == 100
        assert made["alone"]["p50_ms"] == 50.5
        assert made["versions"]["cuda_driver_api"] == "13.0"
        assert json.loads(json.dumps(made)) == made

    def test_the_table_shows_every_phase(self) -> None:
        from rich.console import Console

        console = Console(width=100, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
        console.print(table(measurement()))
        text = console.export_text()
        for words in ("alone", "shared", "with Cotenant", "50.50", "60%", "70%"):
            assert words in text

    def test_every_number_of_the_summary(self) -> None:
        found = measurement()
        found.phases["cotenant"].stalls_ms += [30.0]
        made = summary(found)
        assert made["cotenant"] == {
            "p50_ms": 55.55, "p99_ms": 108.911, "opportunistic_share": 0.7, "p95_ms": 104.555, "max_ms": 110.0,
            "service_p50_ms": 2.5, "p99_ratio": 1.1, "p99_ratio_low": 1.1, "p99_ratio_high": 1.1, "requests": 100,
            "seconds": 10.0, "stalls": 1, "longest_stall_ms": 30.0,
        }  # fmt: skip
        assert made["opportunistic_alone"] == {"steps_per_second": 50.0, "seconds": 2.0}
        assert (made["production_busy_share"], made["rounds"]) == (0.025, 2)
        assert (made["load_average"], made["seconds"]) == (0.5, 32.0)
        older = dataclasses.replace(found, driver_version=12080)
        assert summary(older)["versions"]["cuda_driver_api"] == "12.8"

    def test_every_cell_of_the_table(self) -> None:
        made = table(measurement())
        assert str(made.title) == "Two jobs on one GPU (software GPU, modelled on a GPU)"
        assert [list(column.cells) for column in made.columns] == [
            ["alone", "shared", "with Cotenant"],
            ["100", "100", "100"],
            ["50.50", "151.50", "55.55"],
            ["99.01", "297.03", "108.91"],
            ["1", "3.00 [3.00, 3.00]", "1.10 [1.10, 1.10]"],
            ["-", "60%", "70%"],
        ]
        assert str(made.caption).endswith("production leaves 98% of the time")
        real = dataclasses.replace(measurement(), software_gpu=False)
        assert str(table(real).title) == "Two jobs on one GPU (a GPU)"

    def test_the_picture_shows_what_was_measured(self) -> None:
        figure: Any = compose(measurement())
        latency, work = figure.axes
        curves = [line for line in latency.lines if len(line.get_xdata()) == 100]
        assert [max(line.get_xdata()) for line in curves] == pytest.approx([100.0, 300.0, 110.0])
        assert list(curves[0].get_ydata())[:2] == [1.0, 2.0] and list(curves[0].get_ydata())[-1] == 100.0
        tails = [line.get_xdata()[0] for line in latency.lines if len(line.get_xdata()) == 1]
        assert tails == pytest.approx([99.01, 297.03, 108.911])
        legend = latency.get_legend()
        assert [text.get_text() for text in legend.get_texts()] == [
            "alone:  99.0 ms", "shared:  297 ms", "with Cotenant:  109 ms",
        ]  # fmt: skip
        assert [bar.get_height() for bar in work.patches] == pytest.approx([60.0, 70.0])
        assert [text.get_text() for text in work.texts] == ["60 %", "70 %"]
        assert figure.texts[-1].get_text() == "software GPU modelled on a GPU"

    def test_the_picture_is_a_png_of_some_size(self, tmp_path: Path) -> None:
        leave(measurement(), tmp_path / "deep" / "report")
        picture = (tmp_path / "deep" / "report" / "latency.png").read_bytes()
        assert picture.startswith(b"\x89PNG")
        width, height = (int.from_bytes(picture[at : at + 4], "big") for at in (16, 20))
        assert width >= 1000 and height >= 500

    @pytest.mark.parametrize("factors", [(3.0, 1.1), (123.4, 1.0), (1.5, 123.4)])
    def test_the_title_fits_into_the_picture(self, factors: tuple[float, float]) -> None:
        figure = compose(measurement(*factors))
        figure.draw_without_rendering()
        (title,) = (text for text in figure.texts if "otenant" in text.get_text())
        extent = title.get_window_extent()
        assert extent.x0 >= 0 and extent.x1 <= figure.bbox.width and extent.y1 <= figure.bbox.height
        heads = [axes.title.get_window_extent().y1 for axes in figure.axes]
        assert extent.y0 >= max(heads)

    def test_a_report_that_cannot_be_made_leaves_the_last_one_alone(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        leave(measurement(), tmp_path)
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

        def broken(*_: object) -> None:
            raise OSError("disk full")

        monkeypatch.setattr("cotenant.demo.picture.draw", broken)
        with pytest.raises(Problem, match="disk full"):
            leave(measurement(shared_factor=9), tmp_path)
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


class TestWorkers:
    """With stand-ins for the jobs: small Python programs."""

    def start(self, source: str, folder: Path) -> Worker:
        return Worker("toy", [sys.executable, "-c", source], clean_environment(), folder)

    def test_orders_arrive_and_answers_come_back(self, tmp_path: Path) -> None:
        worker = self.start("for line in __import__('sys').stdin: print(line, end='', flush=True)", tmp_path)
        try:
            order = Order(1.5, 2.0, 3)
            worker.order(order)
            assert Order(**worker.answer()) == order == Order.parse(order.line())
        finally:
            worker.end()

    def test_one_that_dies_is_quoted(self, tmp_path: Path) -> None:
        worker = self.start("import sys; sys.exit('the driver is on fire')", tmp_path)
        with pytest.raises(
            Problem, match=r"(?s)toy job ended early \(exit status 1\).*the driver is on fire"
        ):
            worker.answer()
        worker.order(Order(0, 0, 0))
        worker.end()

    def test_one_killed_by_a_signal_is_named_by_it(self, tmp_path: Path) -> None:
        worker = self.start("import os; os.kill(os.getpid(), 9)", tmp_path)
        with pytest.raises(Problem, match="SIGKILL"):
            worker.answer()
        worker.end()

    def test_nonsense_is_no_answer(self, tmp_path: Path) -> None:
        worker = self.start("print('hello')", tmp_path)
        with pytest.raises(Problem, match="no answer: hello"):
            worker.answer()
        worker.end()

    def test_one_that_will_not_end_is_made_to(self, tmp_path: Path) -> None:
        worker = self.start("print('{}', flush=True)\nwhile True: __import__('time').sleep(60)", tmp_path)
        worker.answer()
        worker.end(within_seconds=0.1)
        with pytest.raises(Problem, match="SIGKILL"):
            worker.answer()

    def test_jobs_are_started_as_a_user_would(self) -> None:
        words = worker_command("a.module", "production", "h200", "--option")
        text = " ".join(words)
        assert text.index("softgpu --device h200") < text.index("run --require --class production --")
        assert words[-3:] == ["-m", "a.module", "--option"]
        assert worker_command("a.module", None, None) == [sys.executable, "-m", "a.module"]


class TestCommand:
    @pytest.mark.parametrize("seconds", ["0", "1.9", "-5", "inf", "nan"])
    def test_too_short_a_time_is_a_usage_error(self, cotenant: Run, seconds: str, tmp_path: Path) -> None:
        done = cotenant("demo", "--seconds", seconds, "--output", tmp_path / "report")
        assert done.returncode == 2
        assert done.stderr.startswith("error: ")
        assert not (tmp_path / "report").exists()

    def test_a_package_that_is_not_there_is_named(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(demo_command, "NEEDED", {"no_such_module": "a-package"})
        with pytest.raises(Problem, match="needs a-package, which is not installed"):
            demo_command.command.callback(tmp_path / "report", 10.0, True)  # type: ignore[misc]

    def test_a_report_without_a_place_is_refused_before_anything_is_measured(self, cotenant: Run) -> None:
        for place, folder in (("/proc/a/report", "/proc"), ("/dev/null/report", "/dev/null")):
            done = cotenant("demo", "--software-gpu", "--seconds", "1000", "--output", place)
            assert (done.returncode, done.stdout) == (2, "")
            error, _ = done.stderr.splitlines()
            assert folder in error

    def test_a_job_that_fails_is_one_error_and_no_report(self, cotenant: Run, tmp_path: Path) -> None:
        env = clean_environment() | {"COTENANT_NATIVE": str(tmp_path / "nothing here")}
        done = cotenant("demo", "--software-gpu", "--seconds", "2", "--output", tmp_path / "report", env=env)
        assert done.returncode == 1
        assert done.stderr.count("Traceback") == 0
        assert "error: the production job ended early" in done.stderr
        assert not (tmp_path / "report").exists()


def softgpu_is_built(native: Path) -> None:
    for part in ("shim/libcuda.so.1", "softgpu/libcuda.so.1", "softgpu/softgpud"):
        if not (native / part).exists():
            pytest.skip(f"{part} is not built")


def test_the_folder_goes_though_a_daemon_writes_there_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    late: list[Path] = []
    remove = os.rmdir

    def rmdir(path: str | Path, *, dir_fd: int | None = None) -> None:
        if not late:
            late.append(folder / "report")
            late[0].touch()
        remove(path, dir_fd=dir_fd)

    with private_folder() as folder:
        (folder / "segment").touch()
        monkeypatch.setattr(os, "rmdir", rmdir)
    assert late and not folder.exists()


def test_the_whole_demo_on_the_software_gpu(native: Path, cotenant: Run, tmp_path: Path) -> None:
    """Structure, not speed: a machine under test is too noisy to promise latencies."""
    softgpu_is_built(native)
    report = tmp_path / "report"
    done = cotenant("demo", "--software-gpu", "--seconds", "4", "--output", report, timeout=150)
    assert done.returncode == 0, done.stderr
    made = json.loads((report / "summary.json").read_text())
    assert made["software_gpu"] is True
    for phase in PHASES:
        assert made[phase].keys() >= FIGURES
        assert 0 < made[phase]["p50_ms"] <= made[phase]["p99_ms"]
    assert made["alone"]["opportunistic_share"] == 0.0
    assert made["shared"]["opportunistic_share"] > 0
    assert made["cotenant"]["opportunistic_share"] > 0
    assert "with Cotenant" in done.stdout
    assert (report / "latency.png").read_bytes().startswith(b"\x89PNG")


def test_ctrl_c_ends_the_jobs_and_leaves_no_report(native: Path, tmp_path: Path) -> None:
    softgpu_is_built(native)
    mark = f"COTENANT_DEMO_OUTPUT={tmp_path / 'report'}"
    env = clean_environment() | dict([mark.split("=", 1)])
    command = [sys.executable, "-m", "cotenant", "demo", "--software-gpu", "--seconds", "300"]
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True, process_group=0) as demo:
        assert demo.stderr is not None
        for line in demo.stderr:
            if "round 1" in line:
                break
        demo.send_signal(signal.SIGINT)
        try:
            assert demo.wait(60) == 130
        finally:
            demo.kill()
    deadline = time.monotonic() + 30
    while (left := processes_with({mark})) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left
    assert not (tmp_path / "report").exists()
