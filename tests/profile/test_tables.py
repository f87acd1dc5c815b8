"""Profiles as people and programs read them."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from cotenant.profile import roofline, tables
from cotenant.profile.columns import Columns, KernelClass
from cotenant.profile.job import Job
from cotenant.profile.kernel import Kernel
from cotenant.profile.store import Model, Profile

PRODUCT = Kernel(
    "kernel", "void product(int)", (64, 2, 1), (128, 1, 1), 7, 0, launches=3, runs=2, samples=5, mean_us=250.0,
    min_us=240.0, max_us=260.5, sms=8, blocks_per_sm=4, registers=32, static_shared_bytes=16,
    columns=Columns(KernelClass.compute, True, True, 0.835, 1200.4), seen="2026-01-02",
)  # fmt: skip
COPY = Kernel(
    "copy", "copy to device", (0, 0, 0), (0, 0, 0), 0, 4096, launches=10, samples=1, mean_us=25.0,
    columns=Columns(KernelClass.copy, memory_gbps=0.4),
)  # fmt: skip
UNTIMED = Kernel("kernel", "never", (1, 1, 1), (32, 4, 1), 0, 0, launches=1)
PROFILE = Profile(Model("NVIDIA H200", 132, 4814.0), {one.key: one for one in (COPY, PRODUCT, UNTIMED)})


@pytest.mark.parametrize(
    ("classes", "tensor", "words"),
    [
        ({"compute": 0.612, "memory": 0.3}, 0.58, "compute 61% (tensor cores 58%), memory 30%"),
        ({"compute": 0.995, "copy": 0.005, "unknown": 0.004}, 0.004, "compute 100%, copy 0%"),
        ({"unknown": 1.0}, 0.25, "unknown 100%, on tensor cores 25%"),
        ({}, 0.0, "nothing was timed"),
    ],
)
def test_classes_in_words(classes: dict[str, float], tensor: float, words: str) -> None:
    assert tables.in_words(classes, tensor) == words


def test_a_job_in_words() -> None:
    job = Job(12.34, 0.75, 0.5, 3 << 29, 80 << 30, {}, 0.0)
    assert tables.about(job) == "12.3 s at work, waits for its own CPU 25%, fills 50% of the SMs, 1.5 GiB"
    assert tables.about(Job(0.0, None, None, 1 << 30, 0, {}, 0.0)) == "1.0 GiB"


def test_a_kernels_row() -> None:
    assert tables.cells(PRODUCT, 1000.0) == (
        "75.0 %", "0.75", "250.00", "3", "8", "32", "compute", "yes", "84%", "1200", "64,2 x 128", "product",
    )  # fmt: skip
    assert tables.cells(COPY, 1000.0) == (
        "25.0 %", "0.25", "25.00", "10", "", "", "copy", "", "", "~0", "4096 bytes", "copy to device",
    )  # fmt: skip
    assert tables.cells(UNTIMED, 1000.0) == (
        "?", "?", "?", "1", "", "", "~unknown", "", "", "", "1 x 32,4", "never",
    )  # fmt: skip


def test_a_table_begins_with_the_gpu_and_the_classes(capsys: pytest.CaptureFixture[str]) -> None:
    tables.print_profile(PROFILE, 2)
    gpu, classes, head, first, second, mark = capsys.readouterr().out.splitlines()
    assert gpu == "NVIDIA H200, 132 SMs, 4814 GB/s: 3 kernels, copies and graphs"
    assert classes == "time by class: compute 75% (tensor cores 75%), copy 25%"
    assert head.split() == [
        "SHARE",
        "TOTAL",
        "ms",
        "MEAN",
        "us",
        "COUNT",
        "SMS",
        "REGS",
        "CLASS",
        "TC",
        "COMPUTE",
        "GB/s",
        "GRID",
        "x",
        "BLOCK",
        "KERNEL",
    ]
    assert first.split()[:3] == ["75.0", "%", "0.75"] and second.split()[:3] == ["25.0", "%", "0.25"]
    assert mark.startswith("~ is an estimate")
    tables.print_profile(Profile(Model("x", 1, 0.0), {PRODUCT.key: PRODUCT}), 5)
    out = capsys.readouterr().out
    assert out.startswith("x, 1 SMs: 1 kernels") and "~" not in out


def test_json_and_csv_have_the_same_rows() -> None:
    (found,) = tables.as_json([PROFILE], {}, 1)["gpus"]
    assert found["gpu"] == {"name": "NVIDIA H200", "sms": 132, "memory_gbps": 4814.0}
    assert (found["classes"]["copy"], found["tensor"]) == (0.25, 0.75)
    (row,) = found["kernels"]
    assert (row["name"], row["total_us"], row["class"]) == ("void product(int)", 750.0, "compute")
    out = io.StringIO()
    tables.write_csv([PROFILE], 3, out)
    first, second, third = csv.DictReader(io.StringIO(out.getvalue()))
    assert first == {
        "gpu": "NVIDIA H200", "kind": "kernel", "name": "void product(int)", "grid": "64,2", "block": "128",
        "shared_bytes": "7", "bytes": "0", "launches": "3", "runs": "2", "samples": "5", "mean_us": "250.0",
        "min_us": "240.0", "max_us": "260.5", "total_us": "750.0", "sms": "8", "blocks_per_sm": "4",
        "registers": "32", "static_shared_bytes": "16", "class": "compute", "tensor": "True", "measured": "True",
        "compute": "0.835", "memory_gbps": "1200.4", "seen": "2026-01-02",
    }  # fmt: skip
    assert (second["kind"], second["compute"]) == ("copy", "") and third["name"] == "never"


def test_a_kernels_place_under_the_roof() -> None:
    def at(compute: float | None, gbps: float | None, peak: float = 1000.0) -> tuple[float, float] | None:
        columns = Columns(KernelClass.compute, compute=compute, memory_gbps=gbps)
        return roofline.place(Kernel("kernel", "k", (1, 1, 1), (1, 1, 1), 0, 0, columns=columns), peak)

    assert at(0.5, 250.0) == (2.0, 0.5)
    assert at(0.0, 1000.0) == (0.001, 0.001)  # what the picture shows at least
    assert at(0.5, 0.0) == (500.0, 0.5)
    assert at(None, 1.0) is None and at(0.5, None) is None and at(0.5, 1.0, 0.0) is None
    assert roofline.area(PRODUCT, 1500.0) == 12 + 450


def test_a_picture_has_each_kernel_where_it_belongs(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from matplotlib import pyplot

    figure = roofline.composed(PROFILE)
    left, right = figure.axes
    (roof,) = left.collections
    assert roof.get_offsets().tolist() == [pytest.approx([0.835 / (1200.4 / 4814), 0.835])]
    (fill,) = right.collections
    assert fill.get_offsets().tolist() == [pytest.approx([8 / 132, 250.0])]
    assert figure.get_suptitle() == "NVIDIA H200: 2 kernels, 0.00 s on the GPU; areas are time"
    assert [text.get_text() for text in left.texts] == ["product"]
    assert [text.get_text() for text in right.get_legend().get_texts()] == [
        "compute",
        "memory",
        "copy",
        "unknown",
    ]
    pyplot.close(figure)
    figure = roofline.composed(Profile(PROFILE.gpu, {}))
    assert "no kernel has both throughputs" in figure.axes[0].texts[0].get_text()
    pyplot.close(figure)
