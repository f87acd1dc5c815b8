"""The memory bandwidth of known GPUs, for what was recorded without it: the recorder asks the driver."""

from __future__ import annotations

# As the makers' data sheets have it, GB/s. The first that is in the GPU's name counts.
GBPS = (
    ("B300", 8000), ("B200", 8000), ("GB200", 8000), ("GH200", 4000), ("H200", 4800), ("H100 PCIe", 2039),
    ("H100 NVL", 3938), ("H100", 3350), ("H800", 3350), ("H20", 4000), ("A100-SXM4-40GB", 1555),
    ("A100-PCIE-40GB", 1555), ("A100", 2039), ("A800", 2039), ("A30", 933), ("A40", 696), ("A10", 600), ("L40S", 864),
    ("L40", 864), ("L4", 300), ("V100", 900), ("T4", 320), ("RTX 5090", 1792), ("RTX 4090", 1008), ("RTX 3090", 936),
)  # fmt: skip


def memory_gbps(gpu: str) -> float:
    """0: not known."""
    return next((float(gbps) for word, gbps in GBPS if word in gpu), 0.0)
