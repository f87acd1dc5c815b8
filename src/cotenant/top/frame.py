"""A picture of the model as lines of text: the screen shows them, and a pipe gets them as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from cotenant import classes, figures, units
from cotenant.policies import registry
from cotenant.top.model import GpuRow, Picture, Row, ordered, runs

BARS = "▁▂▃▄▅▆▇█"
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
class Column:
    heading: str
    cell: Callable[[Row], str]
    is_number: bool = False
    # Where the table is too wide, the highest goes first; 0: stays.
    goes: int = 0


def percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def promise(row: Row) -> str:
    promised = figures.promise(row.tenant)
    if not promised or row.promise_kept is None:
        return promised
    return f"{promised} {'kept' if row.promise_kept else 'BROKEN'}"


def share(row: Row) -> str:
    """Among its equals, got and asked for."""
    if row.share_asked is None:
        return ""
    got = "-" if row.share_got is None else f"{100 * row.share_got:.0f}"
    return f"{got}/{100 * row.share_asked:.0f}%"


def class_of(row: Row) -> str:
    name = figures.class_name(row.tenant)
    return SHORT.get(name, name)


COLUMNS = (
    Column("GPU", lambda row: "" if row.here.use is figures.NO_USE else str(row.here.use.gpu), True),
    Column("PID", lambda row: str(row.tenant.pid), True),
    Column("JOB", lambda row: row.tenant.job),
    Column("CLASS", class_of),
    Column("STATE", lambda row: figures.state(row.here)),
    Column("GPU%", lambda row: percent(row.gpu_share), True),
    Column("PROMISE", promise, goes=1),
    Column("SHARE", share, True, goes=3),
    Column("MEMORY", lambda row: figures.memory(row.here), True),
    Column("HOST", lambda row: units.size_shown(row.tenant.host_bytes), True, goes=4),
    Column("EVI", lambda row: str(row.tenant.evictions), True, goes=5),
    Column("ESC", lambda row: str(row.here.use.figures["escaped"]), True, goes=2),
)
NAME = 2


WHOLE = 1000  # into a pipe or file nothing is cut off


def width_of_stdout() -> int:
    import shutil
    import sys

    return shutil.get_terminal_size().columns if sys.stdout.isatty() else WHOLE


def frame(picture: Picture, width: int) -> str:
    """All of it, once."""
    return "\n".join([title(picture), *gpu_lines(picture.gpus, width), *table(lines_of(picture), width)])


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
        return str(gpu.state.get("in_words", ""))
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
            lines += [run_line(run), *(line_of(row, f"  {row.tenant.program}") for row in run)]
        else:
            lines += [line_of(row) for row in run]
    return lines


def line_of(row: Row, name: str = "") -> Line:
    cells = [column.cell(row) for column in COLUMNS]
    cells[NAME] = name or cells[NAME]
    return Line(tuple(cells), (row,))


def run_line(run: Sequence[Row]) -> Line:
    """Of a run as a whole: the sums."""
    shares = [row.gpu_share for row in run if row.gpu_share is not None]
    tenants = {row.tenant.pid: row.tenant for row in run}.values()
    sums = {
        "PID": f"{len(tenants)} of",
        "JOB": run[0].tenant.job,
        "CLASS": class_of(run[0]) if len({row.tenant.tenant_class for row in run}) == 1 else "",
        "GPU%": percent(sum(shares) if shares else None),
        "MEMORY": units.size_shown(sum(row.here.use.memory_bytes for row in run)),
        "HOST": units.size_shown(sum(tenant.host_bytes for tenant in tenants)),
        "EVI": str(sum(tenant.evictions for tenant in tenants)),
        "ESC": str(sum(row.here.use.figures["escaped"] for row in run)),
    }
    return Line(tuple(sums.get(column.heading, "") for column in COLUMNS), tuple(run), is_run=True)


def table(lines: Sequence[Line], width: int) -> list[str]:
    """The heading and a text for each line. A column that does not fit is left out, the least important first."""
    shown = list(range(len(COLUMNS)))
    widths = [
        max(len(column.heading), *(len(line.cells[at]) for line in lines)) if lines else len(column.heading)
        for at, column in enumerate(COLUMNS)
    ]
    while True:
        spare = width - sum(widths[at] for at in shown) - (len(shown) - 1)
        name = min(widths[NAME], max(LEAST_NAME, widths[NAME] + min(spare, 0)))
        unneeded = max(shown, key=lambda at: COLUMNS[at].goes)
        if spare + widths[NAME] - name >= 0 or not COLUMNS[unneeded].goes:
            break
        shown.remove(unneeded)
    widths[NAME] = name
    heads = [column.heading for column in COLUMNS]
    return [text(cells, shown, widths) for cells in (heads, *(line.cells for line in lines))]


def text(cells: Sequence[str], shown: Iterable[int], widths: Sequence[int]) -> str:
    parts = []
    for at in shown:
        cell = cells[at][: widths[at]]
        parts.append(cell.rjust(widths[at]) if COLUMNS[at].is_number else cell.ljust(widths[at]))
    return " ".join(parts).rstrip()
