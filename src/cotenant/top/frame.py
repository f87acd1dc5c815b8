"""A picture of the model as lines of text: the screen shows them, and a pipe gets them as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from cotenant import classes, figures, table, units
from cotenant.policies import registry
from cotenant.terminal import BARS
from cotenant.top.model import GpuRow, Picture, Row, ordered, runs

MOST_IN_FULL = 2  # GPUs that get a line for each class; more of them get one line each
LEAST_NAME = 8
SHORT = {"production": "prod", "standard": "std", "opportunistic": "opp"}


@dataclass(frozen=True)
class Line:
    """Of the table: what it shows, and the rows that it stands for."""

    cells: tuple[str, ...]
    rows: tuple[Row, ...]
    is_run: bool = False


@dataclass(frozen=True)
class Column(table.Column):
    cell: Callable[[Row], str] = lambda row: ""


def percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def class_of(row: Row) -> str:
    name = figures.class_name(row.tenant)
    return SHORT.get(name, name)


def delayed_by(row: Row) -> str:
    return ", ".join(f"{name} {share:.0%}" for name, share in row.delayed_by[:2])


def number_of_gpu(row: Row) -> str:
    return "" if row.here.use is figures.NO_USE else str(row.here.use.gpu)


COLUMNS = (
    Column("GPU", True, cell=number_of_gpu),
    Column("PID", True, cell=lambda row: str(row.tenant.pid)),
    Column("JOB", is_name=True, cell=lambda row: row.tenant.job),
    Column("CLASS", cell=class_of),
    Column("STATE", cell=lambda row: figures.state(row.here)),
    Column("GPU%", True, cell=lambda row: percent(row.lately.gpu_share)),
    Column("PROMISE", goes=1, cell=lambda row: figures.promise(row.here)),
    Column("SHARE", True, goes=2, cell=lambda row: figures.share(row.here)),
    Column("MEMORY", True, cell=lambda row: figures.memory(row.here)),
    Column("HOST", True, goes=4, cell=lambda row: units.size_shown(row.tenant.host_bytes)),
    Column("P50", True, goes=8, cell=lambda row: units.duration_shown(row.lately.wait_p50_us)),
    Column("P99", True, goes=3, cell=lambda row: units.duration_shown(row.lately.wait_p99_us)),
    Column("PRE", True, goes=6, cell=lambda row: units.count_shown(row.here.use.preemptions)),
    Column("EVI", True, goes=7, cell=lambda row: str(row.tenant.evictions)),
    Column("ESC", True, goes=5, cell=lambda row: str(row.here.use.figures["escaped"])),
    Column("DELAYED-BY", goes=9, cell=delayed_by),
)
NAME = 2


def frame(picture: Picture, width: int) -> str:
    """All of it, once."""
    return "\n".join(
        [title(picture)[:width], *gpu_lines(picture.gpus, width), *rows_of(lines_of(picture), width)]
    )


def title(picture: Picture) -> str:
    policy = picture.seen.policy or registry.DEFAULT
    counts = f"{counted(len(picture.seen.tenants), 'tenant')} on {counted(len(picture.gpus), 'GPU')}"
    over = f", over {picture.elapsed_ns / 1e9:.1f} s" if picture.elapsed_ns else ""
    return f"cotenant: {counts}, policy {policy}{over}"


def counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def gpu_lines(gpus: Sequence[GpuRow], width: int) -> Iterator[str]:
    for gpu in gpus:
        head = f"GPU {gpu.number} {percent(gpu.total):>5}"
        if len(gpus) > MOST_IN_FULL:
            shares = " ".join(
                f"{SHORT[one.name]} {percent(gpu.share(one)):>4}" for one in classes.TenantClass
            )
            start = f"{head}  {shares}  {clock_and_power(gpu, brief=True)}  "
            everybody = [min(sum(at_once), 1.0) for at_once in zip(*gpu.history.values(), strict=True)]
            yield f"{start}{sparkline(everybody, width - len(start))}"[:width].rstrip()
            continue
        yield f"{head}  {clock_and_power(gpu)}"[:width]
        for one in classes.TenantClass:
            start = f"  {one.name:<13} {percent(gpu.share(one)):>4} "
            yield (start + sparkline(gpu.history[one], width - len(start))).rstrip()


def clock_and_power(gpu: GpuRow, brief: bool = False) -> str:
    """As the daemon last saw them."""
    clock, power = gpu.state.get("clock_mhz"), gpu.state.get("power_w")
    known = []
    if clock:
        most = "" if brief else most_of(gpu.state.get("highest_mhz"))
        known.append(f"{clock:.0f}{most} MHz")
    if power:
        most = "" if brief else most_of(gpu.state.get("power_limit_w"))
        known.append(f"{power:.0f}{most} W")
    if not brief and gpu.state.get("slowed_by"):
        known.append(f"slowed by: {', '.join(gpu.state['slowed_by'])}")
    if not known and not brief:
        known.append(str(gpu.state.get("in_words", "")))
    if not brief and gpu.state.get("outsiders"):
        known.append(f"processes outside Cotenant: {gpu.state['outsiders']}")
    return "  ".join(known)


def most_of(figure: float | None) -> str:
    return f" of {figure:.0f}" if figure else ""


def sparkline(shares: Sequence[float], width: int) -> str:
    """The newest at the right; nothing at all is the lowest bar."""
    return "".join(BARS[min(int(one * len(BARS)), len(BARS) - 1)] for one in shares[-width:] if width > 0)


def lines_of(picture: Picture, sort: str = "gpu", wanted: str = "", tree: bool = False) -> list[Line]:
    rows = ordered(picture.rows, sort, wanted)
    if not tree:
        return [line_of(row) for row in rows]
    lines = []
    for run in runs(rows):
        if run[0].is_of_a_run:
            lines += [run_line(run), *(line_of(row, f"  {part_of_run(row, run)}") for row in run)]
        else:
            lines += [line_of(row) for row in run]
    return lines


def part_of_run(row: Row, run: Sequence[Row]) -> str:
    """A process by its program, a lane by its name."""
    if not row.tenant.lane:
        return row.tenant.program
    own = next((one.tenant.job for one in run if one.tenant.pid == row.tenant.process), "")
    return f"lane {row.tenant.job.removeprefix(f'{own}/')}"


def line_of(row: Row, name: str = "") -> Line:
    cells = [column.cell(row) for column in COLUMNS]
    cells[NAME] = name or cells[NAME]
    return Line(tuple(cells), (row,))


def run_line(run: Sequence[Row]) -> Line:
    """Of a run as a whole: the sums."""
    shares = [row.lately.gpu_share for row in run if row.lately.gpu_share is not None]
    tenants = {row.tenant.pid: row.tenant for row in run}.values()
    processes = {row.tenant.process for row in run}
    sums = {
        "PID": f"{len(processes)} of",
        "JOB": run[0].tenant.job,
        "CLASS": class_of(run[0]) if len({row.tenant.tenant_class for row in run}) == 1 else "",
        "GPU%": percent(sum(shares) if shares else None),
        "MEMORY": units.size_shown(sum(row.here.use.memory_bytes for row in run)),
        "HOST": units.size_shown(sum(tenant.host_bytes for tenant in tenants)),
        "PRE": units.count_shown(sum(row.here.use.preemptions for row in run)),
        "EVI": str(sum(tenant.evictions for tenant in tenants)),
        "ESC": str(sum(row.here.use.figures["escaped"] for row in run)),
    }
    return Line(tuple(sums.get(column.heading, "") for column in COLUMNS), tuple(run), is_run=True)


def rows_of(lines: Sequence[Line], width: int) -> list[str]:
    """The heading and a text for each line."""
    return table.lines(COLUMNS, [line.cells for line in lines], width, gap=1)
