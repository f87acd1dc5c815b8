"""Whether there are GPUs, and in which mode they are shared."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cotenant.doctor.finding import Finding, Machine
from cotenant.gpus import naming


def gpu_list(machine: Machine) -> Finding:
    if machine.listed is None:
        return Finding(
            "gpu", "warn", "NVML is not installed: GPUs cannot be listed", "install libnvidia-ml.so.1"
        )
    if not machine.listed:
        return Finding("gpu", "fail", "NVML lists no GPU", "check `nvidia-smi` and the container's devices")
    visible = naming.visible_now(machine.environment)
    facts = {"gpus": [vars(gpu) for gpu in machine.listed], "visible": visible}
    if visible == []:
        return Finding("gpu", "fail", "CUDA_VISIBLE_DEVICES hides every GPU", "unset it or name a GPU", facts)
    lost = [gpu for gpu in machine.listed if gpu.problem]
    if lost:
        them = ", ".join(f"{gpu.index} ({gpu.problem})" for gpu in lost)
        cause = f"GPU {them} does not answer"
        fix = (
            f"reset it (nvidia-smi --gpu-reset -i {lost[0].index}) or restart the machine; `dmesg` says more"
        )
        if len(lost) == len(machine.listed):
            return Finding("gpu", "fail", cause, fix, facts)
        return Finding("gpu", "warn", cause, fix, facts)
    listed = "; ".join(f"{gpu.index} {gpu.name} {gpu.uuid}" for gpu in machine.listed)
    return Finding("gpu", "ok", listed, facts=facts)


def mps(machine: Machine) -> Finding:
    pipe = Path(machine.environment.get("CUDA_MPS_PIPE_DIRECTORY") or "/tmp/nvidia-mps") / "control"
    running = any(name.startswith("nvidia-cuda-mps") for name in process_names())
    facts = {"pipe": str(pipe), "pipe_there": pipe.exists(), "running": running}
    if machine.soft or not (running or pipe.exists()):
        return Finding("mps", "ok", "not in use", facts=facts)
    if not running:
        return Finding(
            "mps",
            "warn",
            f"{pipe} is there, but no control daemon in this PID namespace",
            "if a stopped MPS left it behind, remove it: programs would wait for its server",
            facts,
        )
    if not pipe.exists():
        return Finding(
            "mps", "ok", "only in daemons of their own folders, for jobs that overlap", facts=facts
        )
    return Finding(
        "mps",
        "warn",
        "MPS runs: tenants share one GPU context, so kernels overlap and no time slices apply",
        "for the strongest isolation stop it: echo quit | nvidia-cuda-mps-control",
        facts,
    )


def process_names() -> Iterator[str]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                yield (entry / "comm").read_text(errors="replace").strip()
            except OSError:
                continue


def mig(machine: Machine) -> Finding:
    divided = [gpu for gpu in machine.listed or () if gpu.mig]
    parts = {gpu.index: dict(zip(gpu.instances, gpu.instance_names, strict=False)) for gpu in divided}
    facts = {"gpus": [gpu.index for gpu in divided], "instances": parts}
    if not divided:
        return Finding("mig", "ok", "off", facts=facts)
    if empty := [gpu.index for gpu in divided if not gpu.instances]:
        return Finding(
            "mig",
            "warn",
            f"on for GPU {', '.join(map(str, empty))}, which has no instances: CUDA finds no GPU there",
            "`cotenant mig plan` proposes some, or switch it off: nvidia-smi -mig 0",
            facts,
        )
    listed = "; ".join(
        f"GPU {index}: " + ", ".join(f"{name.split()[-1]} {uuid}" for uuid, name in there.items())
        for index, there in parts.items()
    )
    return Finding(
        "mig",
        "warn",
        f"on, each instance is scheduled like a GPU of its own: {listed}",
        "give tenants that share the same `--gpu MIG-...`, or switch it off: nvidia-smi -mig 0",
        facts,
    )
