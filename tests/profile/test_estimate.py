"""What is said of a kernel without counters. The names, dimensions and times are those of jobs on an H200."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from cotenant.profile import ncu, peaks
from cotenant.profile.columns import Columns, KernelClass, class_by_throughput
from cotenant.profile.estimate import of_copy, of_kernel
from cotenant.profile.names import demangled, short
from cotenant.traces import Direction, Kind, read
from cotenant.traces.writer import write
from tests.traces import made_up

COMPUTE, MEMORY, UNKNOWN = KernelClass.compute, KernelClass.memory, KernelClass.unknown
ADD = (
    "_ZN2at6native29vectorized_elementwise_kernel"
    "ILi8ENS0_15CUDAFunctor_addIN3c108BFloat16EEESt5arrayIPcLm3EEEEviT0_T1_"
)
NORM = (
    "_ZN2at6native47batch_norm_transform_input_channels_last_kernelIN3c108BFloat16EfS3_Li4EEEvPKT_S6_PKT0_S9_"
)
CUDNN = "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_g1"
CUTLASS = "cutlass_tensorop_bf16_s16816fprop_optimized_bf16_256x64_32x4_nhwc_align8"
EXAMPLES = Path(__file__).parents[2] / "examples" / "traces"


@pytest.mark.parametrize(
    ("name", "sms", "us", "kernel_class", "tensor"),
    [
        ("nvjet_sm90_tst_192x192_64x3_2x1_v_bz_coopB_NNN", 132, 12340.0, COMPUTE, True),
        ("nvjet_sm90_tst_192x192_64x3_2x1_v_bz_coopB_NNN", 60, 12340.0, UNKNOWN, True),  # cannot reach 60 %
        ("nvjet_sm90_tst_64x16_64x16_1x2_h_bz_TNT", 128, 20.0, MEMORY, True),  # reads weights for 16 rows
        ("nvjet_sm90_tst_64x16_64x16_1x2_h_bz_TNT", 128, 4.1, UNKNOWN, True),  # too short for either
        (CUDNN, 132, 31.0, COMPUTE, True),
        (CUTLASS, 132, 390.0, COMPUTE, True),
        ("void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4> >", 132, 90.0, COMPUTE, True),
        ("ampere_sgemm_128x64_tn", 132, 90.0, COMPUTE, False),
        ("_ZN8cublasLt19splitKreduce_kernelILi32ELi16Eif13__nv_bfloat16f", 128, 8.0, MEMORY, False),
        (NORM, 132, 103.0, MEMORY, False),
        (NORM, 8, 6.7, UNKNOWN, False),
        ("triton_poi_fused_add_mul_0", 132, 30.0, MEMORY, False),
        ("my_kernel", 132, 300.0, UNKNOWN, False),
        ("", 132, 300.0, UNKNOWN, False),
    ],
)  # fmt: skip
def test_the_class_follows_from_the_name_and_from_what_is_possible(
    name: str, sms: int, us: float, kernel_class: KernelClass, tensor: bool
) -> None:
    found = of_kernel(name, (sms, 1, 1), (128, 1, 1), sms, 132, us, 4814)
    assert (found.kernel_class, found.tensor, found.measured) == (kernel_class, tensor, False)
    assert found.compute is None  # no name tells it


def test_an_elementwise_kernel_asks_for_its_tensors_bytes() -> None:
    # 8 elements a thread of 2 bytes, of three tensors.
    found = of_kernel(ADD, (50_000, 1, 1), (128, 1, 1), 132, 132, 73.0, 4814)
    assert found.memory_gbps == pytest.approx(50_000 * 128 * 8 * 2 * 3 / 73e-6 / 1e9)
    assert found.kernel_class is MEMORY
    slow = of_kernel(ADD, (5_000, 1, 1), (128, 1, 1), 132, 132, 73.0, 4814)
    assert slow.kernel_class is UNKNOWN
    # Caches may answer faster than the memory could.
    assert of_kernel(ADD, (50_000, 1, 1), (128, 1, 1), 132, 132, 5.0, 4814).memory_gbps == 4814


def test_a_copy_on_the_device_reads_and_writes_and_one_over_the_bus_does_neither() -> None:
    assert of_copy(1 << 20, 10.0, True, True, 4814) == Columns(KernelClass.copy, memory_gbps=2 * 2**20 / 1e4)
    assert of_copy(1 << 20, 10.0, True, False, 4814) == Columns(KernelClass.copy, memory_gbps=2**20 / 1e4)
    assert of_copy(1 << 20, 10.0, False, True, 4814) == Columns(KernelClass.copy)


@pytest.mark.parametrize(
    ("compute", "memory", "kernel_class"),
    [
        (0.8, 0.3, COMPUTE),
        (0.3, 0.8, MEMORY),
        (0.7, 0.9, MEMORY),
        (0.5, 0.59, UNKNOWN),
        (None, None, UNKNOWN),
    ],
)
def test_over_60_percent_of_the_peak_is_bound(
    compute: float | None, memory: float | None, kernel_class: KernelClass
) -> None:
    assert class_by_throughput(compute, memory) is kernel_class


@pytest.mark.parametrize(
    ("name", "pipe", "tensor"),
    [
        ("softmax_kernel", 0.02, False),
        ("softmax_kernel", 0.3, True),
        (CUTLASS, 0.02, True),
        (CUTLASS, 0.0, False),
    ],
)
def test_a_pipe_that_is_hardly_active_shows_no_use_of_tensor_cores(
    name: str, pipe: float, tensor: bool
) -> None:
    found = ncu.kernel(ncu.Measured(name, (64, 1, 1), (128, 1, 1), {ncu.TENSOR_PIPE: pipe}), 132, "")
    assert found.columns.tensor is tensor


def test_traces_of_before_have_estimates(tmp_path: Path) -> None:
    trace = read(EXAMPLES / "longk.trace")
    by_name = {shape.name: one for shape, one in zip(trace.shapes, trace.columns, strict=True)}
    product = by_name["nvjet_sm90_tst_192x192_64x3_2x1_v_bz_coopB_NNN"]
    assert (product.kernel_class, product.tensor) == (COMPUTE, True)
    assert all(shape.columns is None and shape.registers == 0 for shape in trace.shapes)


def test_a_trace_carries_what_a_profile_said(tmp_path: Path) -> None:
    measured = Columns(MEMORY, True, True, 0.25, 3210.5)
    shapes = [
        made_up.shape(name="first", us=10.0, registers=64, static_shared_bytes=1024, columns=measured),
        made_up.shape(name="second", us=20.0, columns=Columns(UNKNOWN)),
        made_up.shape(Kind.copy, us=5.0, direction=Direction.on_device, bytes=4096, sms=0),
    ]
    trace = made_up.trace(shapes, [(Kind.kernel, 0, 1.0, 0.0, 0), (Kind.kernel, 1, 1.0, 0.0, 0)])
    gpu = dataclasses.replace(made_up.GPU, memory_gbps=2000)
    write(dataclasses.replace(trace, gpus=(gpu,)), tmp_path / "one.trace")
    again = read(tmp_path / "one.trace")
    assert again.shapes == tuple(shapes)
    assert again.gpus == (gpu,)
    assert again.columns == (
        measured,
        Columns(UNKNOWN),
        Columns(KernelClass.copy, memory_gbps=2 * 4096 / 5e3),
    )


def test_names_are_readable_and_known_gpus_have_a_bandwidth() -> None:
    assert demangled("nvjet_x") == "nvjet_x"
    assert demangled("_ZN2at6native") == "_ZN2at6native"  # none
    if demangled(ADD) != ADD:  # there is a C++ library
        assert short(ADD).startswith("vectorized_elementwise_kernel<8, CUDAFunctor_add<BFloat16>")
    assert peaks.memory_gbps("NVIDIA H200") == 4800
    assert peaks.memory_gbps("NVIDIA A100-SXM4-40GB") == 1555
    assert peaks.memory_gbps("Something else") == 0


@pytest.mark.parametrize(
    ("name", "gbps"),
    [
        ("NVIDIA B200", 8000), ("NVIDIA GH200 480GB", 4000), ("NVIDIA H100 PCIe", 2039), ("NVIDIA H100 NVL", 3938),
        ("NVIDIA H100 80GB HBM3", 3350), ("NVIDIA H20", 4000), ("NVIDIA A100-PCIE-40GB", 1555),
        ("NVIDIA A100-SXM4-80GB", 2039), ("NVIDIA A30", 933), ("NVIDIA A40", 696), ("NVIDIA A10", 600),
        ("NVIDIA L40S", 864), ("NVIDIA L4", 300), ("Tesla V100-SXM2-16GB", 900), ("Tesla T4", 320),
        ("NVIDIA GeForce RTX 4090", 1008), ("NVIDIA GeForce RTX 3090", 936), ("NVIDIA GeForce RTX 5090", 1792),
    ],
)  # fmt: skip
def test_a_bandwidth_is_the_data_sheets(name: str, gbps: float) -> None:
    assert peaks.memory_gbps(name) == gbps


@pytest.mark.parametrize(
    ("sms", "us", "kernel_class"),
    [(20, 5.0, MEMORY), (19, 5.0, UNKNOWN), (20, 4.9, UNKNOWN), (20, 0.0, MEMORY), (0, 5.0, MEMORY)],
)
def test_what_streams_must_fill_a_fifth_and_take_5_us(sms: int, us: float, kernel_class: KernelClass) -> None:
    found = of_kernel("triton_poi_fused_add_0", (1, 1, 1), (128, 1, 1), sms, 100, us, 4814)
    assert found.kernel_class is kernel_class


@pytest.mark.parametrize(("sms", "kernel_class"), [(60, COMPUTE), (59, UNKNOWN), (0, COMPUTE)])
def test_what_computes_must_fill_60_percent(sms: int, kernel_class: KernelClass) -> None:
    assert of_kernel("my_matmul", (1, 1, 1), (1, 1, 1), sms, 100, 9.0, 0).kernel_class is kernel_class


@pytest.mark.parametrize(
    ("name", "kernel_class"),
    [("sgemm_32x128_x", MEMORY), ("sgemm_128x32_x", MEMORY), ("sgemm_33x128_x", COMPUTE), ("sgemm", COMPUTE)],
)
def test_a_product_of_few_rows_reads_its_weights(name: str, kernel_class: KernelClass) -> None:
    assert of_kernel(name, (1, 1, 1), (1, 1, 1), 100, 100, 9.0, 0).kernel_class is kernel_class


@pytest.mark.parametrize(
    ("vector", "of", "tensors", "a_thread"),
    [
        (8, "FunctorIf", 3, 8 * 4 * 3),
        (2, "FunctorId", 2, 4 * 8 * 2),  # never fewer than four elements a thread
        (4, "FunctorIh", 1, 16 * 1),  # and of bytes more
        (4, "FunctorIh", 2, 8 * 2),
        (4, "FunctorIl", 1, 4 * 8),
        (4, "FunctorIi", 1, 4 * 4),
    ],
)
def test_bytes_of_an_elementwise_kernel(vector: int, of: str, tensors: int, a_thread: int) -> None:
    name = f"vectorized_elementwise_kernelILi{vector}{of}ESt5arrayIPcLm{tensors}E"
    found = of_kernel(name, (5, 3, 2), (32, 2, 1), 100, 100, 10.0, 0).memory_gbps
    assert found == pytest.approx(30 * 64 * a_thread / 10e-6 / 1e9)
    assert of_kernel(name, (5, 3, 2), (32, 2, 1), 100, 100, 0.0, 0).memory_gbps is None


def test_a_copy_is_no_faster_than_the_memory_and_an_untimed_one_is_unknown() -> None:
    assert of_copy(1 << 30, 1.0, True, True, 4814).memory_gbps == 4814
    assert of_copy(1000, 1.0, True, False, 0).memory_gbps == 1
    for size, us in ((0, 1.0), (1000, 0.0)):
        assert of_copy(size, us, True, True, 4814).memory_gbps is None


def test_at_60_percent_a_kernel_is_bound_and_of_equals_by_compute() -> None:
    assert class_by_throughput(0.6, None) is COMPUTE and class_by_throughput(None, 0.6) is MEMORY
    assert class_by_throughput(0.7, 0.7) is COMPUTE


def test_a_long_name_is_cut() -> None:
    assert short("void at::native::k(int, float)") == "k"
    assert short("x" * 72) == "x" * 72 and short("x" * 73) == "x" * 71 + "…"


@pytest.mark.parametrize(
    "array",
    [
        "St5arrayIPcLm3E", "std::array<char*, 3ul>", "std::array<char *, 3>", "detail5ArrayIPcLi3E",
        "at::detail::Array<char*, 3>",
    ],
)  # fmt: skip
def test_the_number_of_tensors_is_read_mangled_or_not(array: str) -> None:
    name = f"void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<float>, {array} >"
    found = of_kernel(name, (10, 1, 1), (100, 1, 1), 100, 100, 10.0, 0).memory_gbps
    assert found == pytest.approx(1000 * 4 * 4 * 3 / 10e-6 / 1e9)
