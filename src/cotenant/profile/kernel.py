"""One kernel of a profile: a name with its dimensions, and what all runs have found of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from cotenant.profile.columns import Columns, KernelClass

Size = tuple[int, int, int]
Key = tuple[str, str, Size, Size, int, int]
ENOUGH_SAMPLES = 10_000  # of earlier runs: what is new counts in any case


@dataclass(frozen=True, slots=True)
class Kernel:
    kind: str  # kernel, graph, copy or fill
    name: str
    grid: Size
    block: Size
    shared_bytes: int  # that the launch asks for
    bytes: int  # of a copy or fill, rounded to an eighth
    launches: int = 0
    runs: int = 1
    samples: int = 0  # timed launches; 0: the times say nothing
    mean_us: float = 0.0
    min_us: float = 0.0
    max_us: float = 0.0
    sms: int = 0  # that it fills; 0: not known
    blocks_per_sm: int = 0
    registers: int = 0
    static_shared_bytes: int = 0
    columns: Columns = field(default_factory=Columns)
    seen: str = ""  # the day of its last run

    @property
    def key(self) -> Key:
        return self.kind, self.name, self.grid, self.block, self.shared_bytes, self.bytes

    @property
    def total_us(self) -> float:
        return self.launches * self.mean_us


def merged(old: Kernel, new: Kernel) -> Kernel:
    """Counts add up, times are averaged by their samples, and what was measured stays before an estimate."""
    before = min(old.samples, ENOUGH_SAMPLES)
    samples = before + new.samples
    mean = (old.mean_us * before + new.mean_us * new.samples) / samples if samples else 0.0
    timed = [one for one in (old, new) if one.samples]
    keep_old = old.columns.measured and not new.columns.measured
    return replace(
        new,
        launches=old.launches + new.launches,
        runs=old.runs + new.runs,
        samples=samples,
        mean_us=mean,
        min_us=min((one.min_us for one in timed), default=0.0),
        max_us=max((one.max_us for one in timed), default=0.0),
        sms=new.sms or old.sms,
        blocks_per_sm=new.blocks_per_sm or old.blocks_per_sm,
        registers=new.registers or old.registers,
        static_shared_bytes=new.static_shared_bytes or old.static_shared_bytes,
        columns=old.columns if keep_old else new.columns,
        seen=max(old.seen, new.seen),
    )


def as_json(kernel: Kernel) -> dict[str, Any]:
    values: dict[str, Any] = asdict(kernel)
    columns: dict[str, Any] = values.pop("columns")
    return values | {"class": columns.pop("kernel_class").name} | columns


def from_json(values: Mapping[str, Any]) -> Kernel:
    """Raises ValueError, KeyError or TypeError for what no writer has written."""
    columns = Columns(
        KernelClass[values["class"]],
        bool(values["tensor"]),
        bool(values["measured"]),
        *(None if values[name] is None else float(values[name]) for name in ("compute", "memory_gbps")),
    )
    x, y, z = map(int, values["grid"])
    u, v, w = map(int, values["block"])
    texts = {name: str(values[name]) for name in ("kind", "name", "seen")}
    times = {name: float(values[name]) for name in ("mean_us", "min_us", "max_us")}
    done = {*texts, *times, "grid", "block", "columns"}
    counts = {one.name: int(values[one.name]) for one in fields(Kernel) if one.name not in done}
    return Kernel(grid=(x, y, z), block=(u, v, w), columns=columns, **texts, **times, **counts)  # type: ignore[arg-type]
