"""What can be said of a kernel without the GPU's counters: from its name, its grid and its time. Pure.

The class follows from the name, where a library's names tell what its kernels do, and from what is possible at all:

    on tensor cores, or another matrix product or convolution    compute
      but the smaller side of the name's tile is at most 32      memory: it reads its weights for a few rows
    elementwise, reduction, normalisation, softmax, optimiser    memory
    it fills less than 60 % of the SMs                           not compute: it cannot reach 60 % of the GPU's
    it fills less than 20 % of the SMs                           not memory
    a memory kernel of known throughput below 60 % of the GPU's  unknown
    it takes less than 5 us                                      unknown: it begins and ends for 2 of them

The memory throughput of PyTorch's elementwise kernels follows from their names, too: the number of tensors, the type
and the elements a thread, times grid and block, by time. It counts what the kernel asks for; caches may have a part.
Compute throughput cannot be had this way: how deep a matrix product goes is in no name.
"""

from __future__ import annotations

import re

from cotenant.profile.columns import BOUND, Columns, KernelClass

FILLS_ENOUGH_FOR_MEMORY = 0.2
FEW_ROWS = 32
SHORT_US = 5.0

TENSOR = re.compile(
    r"nvjet|tensorop|wgmma|[hi]mma|_mma_|[hsi](?:884|1688|16816|161616|16832|8816)(?!\d)|tensor\d+x\d+x\d+"
    r"|xmma.*(?:f16|tf32|[ius]8|e[45]m[23])|(?:bf16|fp16|f16f16|fp8|tf32)\w*gemm|gemm\w*(?:bf16|fp16|fp8|tf32)"
    r"|flash_?(?:fwd|bwd|attn|attention)|fmha|_sdpa_|cutlass3x",
    re.IGNORECASE,
)
PRODUCT = re.compile(
    r"gemm(?!v|SN)|matmul|convolve|conv\dd|implicit_gemm|[fd]prop|[dw]grad|winograd|cutlass|_sdpa_|attention"
    r"|dot_kernel_.*mm|_mm_",
    re.IGNORECASE,
)
STREAMS = re.compile(
    r"elementwise|element_wise|reduce|softmax|(?:layer|batch|group|rms|instance)_?norm|norm_kernel|multi_tensor"
    r"|gather|scatter|embedding|index|(?:^|_|\d)copy|transpose|permute|(?:^|_|\d)cat|fill|dropout|nll_loss|gemv|gemmSN"
    r"|splitK|pool(?:ing)?|padding|upsample|adam|sgd|triton_(?:poi|red|per)|arange|cast|scale|bias|where|cumsum|scan"
    r"|sort|radix|memset|LayerNorm|GammaBeta|nhwc|nchw",
    re.IGNORECASE,
)
# Work that prepares or finishes a product and carries its name.
AROUND_PRODUCTS = re.compile(
    r"splitK_?reduce|ReduceSplitK|init_device_workspace|nhwcToNchw|nchwToNhwc|AddPadding", re.I
)
TILE = re.compile(r"(?<![\dx])(\d{1,3})x(\d{1,3})(?=[_x])")
TENSORS = re.compile(
    r"(?:St5array|std::array|detail5Array|detail::Array)(?:I|<)(?:Pc|char ?\*)(?:Lm|Li|, ?)(\d+)"
)
ELEMENTS_A_THREAD = re.compile(r"vectorized_elementwise_kernel(?:ILi|<)(\d+)")
LEAST_ELEMENTS_A_THREAD = 4
# In PyTorch's names, mangled or not; the widest that is named first would be wrong, so the first that is named counts.
TYPES = (
    ("BFloat16", 2), ("4Half", 2), ("Half>", 2), ("FunctorIf", 4), ("FillFunctorIi", 4), ("FunctorIi", 4),
    ("_addIf", 4), ("_addIi", 4), ("_addIl", 8), ("_addIh", 1), ("<float", 4), ("<double", 8), ("<int", 4),
    ("<long", 8), ("<bool", 1), ("FunctorIb", 1), ("FunctorIl", 8), ("FunctorIh", 1), ("FunctorId", 8),
)  # fmt: skip


def of_kernel(
    name: str,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    sms: int,
    gpu_sms: int,
    mean_us: float,
    gpu_gbps: float,
) -> Columns:
    """`sms`: that it fills; a 0 anywhere is not known."""
    if not name:
        return Columns()
    fills = sms / gpu_sms if sms and gpu_sms else 1.0
    around = AROUND_PRODUCTS.search(name) is not None
    tensor = not around and TENSOR.search(name) is not None
    gbps = memory_gbps(name, grid, block, mean_us)
    if gbps is not None and gpu_gbps:
        gbps = min(gbps, gpu_gbps)
    if not around and (tensor or PRODUCT.search(name)):
        found = KernelClass.memory if 0 < smaller_side(name) <= FEW_ROWS else KernelClass.compute
    elif around or STREAMS.search(name):
        found = KernelClass.memory
    else:
        found = KernelClass.unknown
    if (found is KernelClass.compute and fills < BOUND) or 0 < mean_us < SHORT_US:
        found = KernelClass.unknown
    if found is KernelClass.memory:
        too_slow = gbps is not None and gpu_gbps and gbps < BOUND * gpu_gbps
        if fills < FILLS_ENOUGH_FOR_MEMORY or too_slow:
            found = KernelClass.unknown
    return Columns(found, tensor, memory_gbps=gbps)


def of_copy(size: int, mean_us: float, on_device: bool, reads: bool, gpu_gbps: float) -> Columns:
    """A copy, or a fill, which only writes. What goes over the bus is no matter of the GPU's memory."""
    if not on_device or not size or mean_us <= 0:
        return Columns(KernelClass.copy)
    gbps = size * (2 if reads else 1) / mean_us / 1e3
    return Columns(KernelClass.copy, memory_gbps=min(gbps, gpu_gbps) if gpu_gbps else gbps)


def smaller_side(name: str) -> int:
    """Of the tile that a product works on; 0: its name does not tell."""
    tile = TILE.search(name)
    return min(int(tile.group(1)), int(tile.group(2))) if tile else 0


def memory_gbps(
    name: str, grid: tuple[int, int, int], block: tuple[int, int, int], mean_us: float
) -> float | None:
    """What an elementwise kernel of PyTorch's asks of the memory; None: not to be known."""
    vector, tensors = ELEMENTS_A_THREAD.search(name), TENSORS.search(name)
    if mean_us <= 0 or vector is None or tensors is None:
        return None
    places = [(name.find(word), size) for word, size in TYPES if word in name]
    if not places:
        return None
    threads = grid[0] * grid[1] * grid[2] * block[0] * block[1] * block[2]
    size, count = min(places)[1], int(tensors.group(1))
    a_thread = max(int(vector.group(1)), LEAST_ELEMENTS_A_THREAD)
    if size == 1:  # of bytes a thread takes more than one vector
        a_thread = max(a_thread, 16 if count == 1 else 8)
    return threads * a_thread * size * count / mean_us / 1e3
