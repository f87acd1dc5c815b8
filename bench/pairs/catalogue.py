"""What there is to measure: jobs, pairs of them, and the modes in which a pair shares the GPU. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from cotenant.errors import USAGE, Problem, unknown


@dataclasses.dataclass(frozen=True)
class Promise:
    """What production may cost beside another job, as ratios to running alone."""

    service_p50: float
    latency_p99: float
    least_of_ideal: float = 0.95  # the other job's work
    at_same_clock: bool = False  # corrected where the clock is lower than alone


GPU_BOUND = Promise(1.03, 1.05)
SHORT_REQUESTS = Promise(1.12, 1.15, 0.93, at_same_clock=True)


@dataclasses.dataclass(frozen=True)
class Job:
    name: str
    kind: str  # "production" or "opportunistic"
    source: str  # module:class, loaded by the worker alone
    title: str
    rate: float = 0.0  # requests a second; 0: the job sets its own pace
    promise: Promise | None = None
    compiles: bool = False  # when it starts; a second one finds in a cache what the first has compiled


_JOBS = (
    Job("decode", "production", "production:Decode", "16 decoding steps in CUDA graphs", 20.0, GPU_BOUND),
    Job("tokens", "production", "production:Tokens", "each token to the host", 15.0, GPU_BOUND),
    Job("encoder", "production", "production:Encoder", "one graph of 1 to 2 ms", 100.0, SHORT_REQUESTS),
    Job("dense", "production", "production:Encoder", "the same, little time between", 400.0, SHORT_REQUESTS),
    Job("busy", "production", "production:BusyEncoder", "the same, one after the other"),
    Job("vision", "production", "production:Vision", "eager ResNet-50, batch 4", 40.0),
    Job("training", "production", "production:Training", "training, slow data loader", 0.0, GPU_BOUND),
    Job(
        "compiled",
        "production",
        "short_requests:Compiled",
        "torch.compile, 1 to 2 ms",
        50.0,
        SHORT_REQUESTS,
        compiles=True,
    ),
    Job("pinned", "production", "short_requests:PinnedCopy", "a graph behind a copy", 100.0, SHORT_REQUESTS),
    Job("copied", "production", "short_requests:BehindCopies", "behind copies aside", 100.0, SHORT_REQUESTS),
    Job("ranked", "production", "short_requests:BeforeLaunches", "launches behind it", 100.0, SHORT_REQUESTS),
    Job("small", "production", "production:SmallEncoder", "one graph of small kernels", 100.0, GPU_BOUND),
    Job("small-8", "production", "production:SmallEncoder8", "the same, batch 8", 100.0, GPU_BOUND),
    Job("generate", "production", "generation:Generate", "eager GPT-2, CPU-bound, 8 tokens", 8.0),
    Job("gpt", "opportunistic", "opportunistic:Gpt", "transformer training"),
    Job("resnet", "opportunistic", "opportunistic:Resnet", "ResNet-50 training"),
    Job("longk", "opportunistic", "opportunistic:LongKernels", "matrix products of 10 ms"),
    Job("jax", "opportunistic", "matrix_products:JaxProducts", "JAX matrix products of 0.4 ms"),
    Job("longk-zeros", "opportunistic", "opportunistic:LongKernelsOfZeros", "the same, of zeros"),
    Job("graph", "opportunistic", "opportunistic:ManyKernelGraph", "a graph of 200 small kernels"),
    Job("streams", "opportunistic", "opportunistic:Streams", "eight streams and events"),
    Job("copies", "opportunistic", "opportunistic:Copies", "64 MiB host<->device copies"),
    Job("eager", "opportunistic", "opportunistic:Eager", "small eager training, CPU-bound"),
    Job("vision-batch", "opportunistic", "unpaced:Vision", "vision, one request after the other"),
    Job("generate-batch", "opportunistic", "unpaced:Generate", "generate, one request after the other"),
    Job("tiny", "production", "spinning:Tiny", "one tiny kernel at random moments", 100.0),
    Job("ten", "production", "spinning:Ten", "ten tiny kernels, one after the other", 30.0),
    Job("send", "production", "copying:Send", "1 MiB to the GPU, pinned", 600.0),
    Job("fetch", "production", "copying:Fetch", "1 MiB from the GPU, pinned", 600.0),
    Job("send-pageable", "production", "copying:SendPageable", "1 MiB to the GPU, pageable", 600.0),
    Job("fetch-pageable", "production", "copying:FetchPageable", "1 MiB from the GPU, pageable", 600.0),
    Job("flood", "opportunistic", "copying:Flood", "copies both ways without pause, pinned"),
    Job("flood-pageable", "opportunistic", "copying:FloodPageable", "the same, pageable"),
    Job("spin-11ms", "opportunistic", "spinning:Spin11ms", "spinning kernels of 11 ms"),
    Job("spin-100us", "opportunistic", "spinning:Spin100us", "spinning kernels of 100 us"),
    Job("toy-service", "production", "toy:Service", "sleeps; needs no GPU", 100.0),
    Job("toy-training", "production", "toy:Training", "sleeps at its own pace; needs no GPU"),
    Job("toy-work", "opportunistic", "toy:Work", "sleeps step after step; needs no GPU"),
    Job("toy-missing", "opportunistic", "toy:Missing", "needs a library that does not exist"),
    Job("toy-dying", "opportunistic", "toy:Dying", "ends in the middle of its window"),
)
JOBS = {job.name: job for job in _JOBS}

# Neighbours have a job in common where possible: its workers then live on.
PAIRS = (
    "decode+longk",
    "decode+gpt",
    "encoder+gpt",
    "encoder+longk",
    "encoder+copies",
    "decode+copies",
    "training+gpt",
    "vision+graph",
    "vision+resnet",
)
SHORT_PAIRS = (
    "encoder+jax",
    "dense+gpt",
    "compiled+jax",
    "compiled+gpt",
    "compiled+longk",
    "pinned+longk",
    "pinned+gpt",
    "copied+gpt",
    "ranked+gpt",
    "generate+gpt",
)
# Production leaves SMs or most of its time free: the pairs for which overlap is meant.
LIGHT_PAIRS = (
    "generate+gpt",
    "generate+longk",
    "generate+copies",
    "generate+vision-batch",
    "small+gpt",
    "small+longk",
    "small+copies",
    "small+generate-batch",
    "small-8+gpt",
    "small-8+longk",
    "small-8+copies",
    "vision+gpt",
    "vision+longk",
    "vision+resnet",
    "vision+copies",
    "vision+generate-batch",
)
QUICK_PAIRS = ("decode+longk", "decode+gpt", "encoder+gpt", "vision+resnet")

# How a worker is started. The last two: under `cotenant run` with that class.
PLAIN, MPS, MPS_LOW, AS_PRODUCTION, AS_OPPORTUNISTIC = (
    "plain",
    "mps",
    "mps-low",
    "production",
    "opportunistic",
)
SOLO = "solo"  # the opportunistic job alone: what its work is compared with

# Below normal priority, and this share of the SMs.
SM_SHARES = {f"{MPS_LOW}, {share:.0%} of the SMs": share for share in (0.8, 0.6, 0.4)}

# Production under `cotenant run --slowdown`.
_PROMISES = (0.02, 0.05, 0.10, 0.20)


def with_promise(promise: float) -> str:
    return f"{AS_PRODUCTION}, at most {promise:.0%} slower"


def beside_promise(promise: float) -> str:
    return f"{AS_OPPORTUNISTIC}, beside {promise:.0%}"


# The opportunistic job under `cotenant run --floor`.
_FLOORS = (0.05, 0.20, 0.50)


def with_floor(floor: float) -> str:
    return f"{AS_OPPORTUNISTIC}, at least {floor:.0%}"


def beside_floor(floor: float) -> str:
    return f"{AS_PRODUCTION}, beside a floor of {floor:.0%}"


# In a segment of their own that has no daemon: whoever measures sets the rate.
UNSTEERED_PRODUCTION, UNSTEERED_OPPORTUNISTIC = "production, unsteered", "opportunistic, unsteered"
UNSTEERED = (UNSTEERED_PRODUCTION, UNSTEERED_OPPORTUNISTIC)

# In a segment of their own, and in an MPS daemon of Cotenant's.
SPATIAL = ("production, spatial", "opportunistic, spatial")
SPATIAL_PROMISE = 0.10
SPATIAL_PROMISED = tuple(f"{start}, at most {SPATIAL_PROMISE:.0%} slower" for start in SPATIAL)
ORION = ("production, orion", "opportunistic, orion")
IN_OWN_MPS = (*SPATIAL, *SPATIAL_PROMISED, *ORION)
# In a segment of their own, in turns.
STRICT = ("production, strict", "opportunistic, strict")
OWN_SEGMENTS = {
    start: name
    for name, starts in (
        ("unsteered", UNSTEERED),
        ("spatial", SPATIAL),
        ("spatial-promise", SPATIAL_PROMISED),
        ("orion", ORION),
        ("strict", STRICT),
    )
    for start in starts
}
# Each promise and each floor, too: production has other time slices beside another production job, even an idle one.
OWN_SEGMENTS |= {
    start(p): f"promise-{100 * p:.0f}" for p in _PROMISES for start in (with_promise, beside_promise)
}
OWN_SEGMENTS |= {start(f): f"floor-{100 * f:.0f}" for f in _FLOORS for start in (with_floor, beside_floor)}

# How `cotenant run` is told.
RUN_OPTIONS: dict[str, list[str]] = {
    AS_PRODUCTION: ["--class", "production"],
    AS_OPPORTUNISTIC: ["--class", "opportunistic"],
    UNSTEERED_PRODUCTION: ["--class", "production", "--no-daemon"],
    UNSTEERED_OPPORTUNISTIC: ["--class", "opportunistic", "--no-daemon"],
    SPATIAL[0]: ["--class", "production", "--share", "spatial"],
    SPATIAL[1]: ["--class", "opportunistic", "--share", "spatial"],
    SPATIAL_PROMISED[0]: [
        "--class",
        "production",
        "--share",
        "spatial",
        "--slowdown",
        f"{SPATIAL_PROMISE:.0%}",
    ],
    SPATIAL_PROMISED[1]: ["--class", "opportunistic", "--share", "spatial"],
    ORION[0]: ["--class", "production", "--share", "spatial", "--policy", "orion"],
    ORION[1]: ["--class", "opportunistic", "--share", "spatial", "--sms", "all", "--policy", "orion"],
    STRICT[0]: ["--class", "production", "--policy", "strict"],
    STRICT[1]: ["--class", "opportunistic", "--policy", "strict"],
}
RUN_OPTIONS |= {with_promise(p): ["--class", "production", "--slowdown", f"{p:.0%}"] for p in _PROMISES}
RUN_OPTIONS |= {beside_promise(p): RUN_OPTIONS[AS_OPPORTUNISTIC] for p in _PROMISES}
RUN_OPTIONS |= {with_floor(f): ["--class", "opportunistic", "--floor", f"{f:.0%}"] for f in _FLOORS}
RUN_OPTIONS |= {beside_floor(f): RUN_OPTIONS[AS_PRODUCTION] for f in _FLOORS}

# Who runs in a mode: how production is started, and how the opportunistic job.
MODES: dict[str, tuple[str | None, str | None]] = {
    "alone": (PLAIN, None),
    "timeslice": (PLAIN, PLAIN),
    "mps": (MPS, MPS),
    "mps-priority": (MPS, MPS_LOW),
    "cotenant": (AS_PRODUCTION, AS_OPPORTUNISTIC),
    SOLO: (None, PLAIN),
}
DEFAULT_MODES = tuple(mode for mode in MODES if mode != SOLO)
# Beside nobody, once more: by how much windows differ of which nothing differs.
CONTROL = "alone again"
MODES[CONTROL] = MODES["alone"]
# A mode for each promise: what it promises.
PROMISED = {f"cotenant {promise:.0%}": promise for promise in _PROMISES}
MODES |= {mode: (with_promise(promise), beside_promise(promise)) for mode, promise in PROMISED.items()}
MODES |= {f"floor {floor:.0%}": (beside_floor(floor), with_floor(floor)) for floor in _FLOORS}
# A constant rate of the other job, of the GPU's time. 0: it stands at its gate.
DUTIES = {f"duty {duty:.0%}": duty for duty in (0.0, 0.10, 0.25, 0.45, 0.70, 1.0)}
MODES |= {mode: (UNSTEERED_PRODUCTION, UNSTEERED_OPPORTUNISTIC) for mode in DUTIES}
MODES |= {f"mps {share:.0%}": (MPS, start) for start, share in SM_SHARES.items()}
MODES |= {"orion": ORION, "strict": STRICT, "spatial": SPATIAL}
MODES |= {f"spatial {SPATIAL_PROMISE:.0%}": (SPATIAL_PROMISED[0], SPATIAL_PROMISED[1])}
CHOOSABLE = tuple(mode for mode in MODES if mode != SOLO)
PROMISE_PAIRS = ("encoder+gpt", "compiled+gpt", "training+gpt", "generate+gpt", "decode+longk")
SHORT_MODES = ("alone", "timeslice", "mps-priority", "cotenant")
# All that the light pairs are compared in, in one table.
LIGHT_MODES = (
    "alone",
    "timeslice",
    "mps",
    "mps-priority",
    "mps 80%",
    "mps 60%",
    "mps 40%",
    "orion",
    "strict",
    "cotenant",
    "spatial",
    "spatial 10%",
)
QUICK_MODES = ("alone", "timeslice", "cotenant")


@dataclasses.dataclass(frozen=True)
class Pair:
    production: Job
    opportunistic: Job

    @property
    def name(self) -> str:
        return f"{self.production.name}+{self.opportunistic.name}"

    def workers(self, modes: Sequence[str]) -> list[tuple[Job, str]]:
        """Each job in each way of starting it that these modes need, once."""
        wanted: dict[tuple[Job, str], None] = {}
        for mode in (*modes, SOLO):
            for job, start in zip((self.production, self.opportunistic), MODES[mode], strict=True):
                if start is not None:
                    wanted[job, start] = None
        return list(wanted)


def parse_job(name: str, kind: str) -> Job:
    known = [job.name for job in JOBS.values() if job.kind == kind]
    if name not in known:
        raise unknown(f"{kind} job", name, known)
    return JOBS[name]


def parse_pairs(words: Sequence[str]) -> list[Pair]:
    pairs = []
    for word in words:
        first, plus, second = word.partition("+")
        if not plus:
            raise Problem(f"'{word}' is no pair", "a pair is PRODUCTION+OPPORTUNISTIC, as decode+gpt", USAGE)
        pairs.append(Pair(parse_job(first, "production"), parse_job(second, "opportunistic")))
    return pairs


def parse_modes(words: Sequence[str]) -> list[str]:
    """In the order of MODES. `alone` is always among them: everything is compared with it."""
    for word in words:
        if word not in CHOOSABLE:
            raise unknown("mode", word, CHOOSABLE)
    return [mode for mode in CHOOSABLE if mode == "alone" or mode in words]
