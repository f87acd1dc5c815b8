"""What the simulator misses of two jobs that share a GPU, learned from pairs that were measured. Pure.

    ln(slowdown) of production = ln(simulated slowdown) + w . x
    share of the other job     = simulated share

    w by ridge regression: minimise  sum (ln(measured / simulated) - w . x)^2 + PENALTY |w|^2,
    each x scaled by its own root mean square

x are products of the jobs' traits (traits.py) and of how the GPU is shared; each stands for something that the
simulator leaves out:

    long kernels of the other, apart     at its power limit the GPU lowers its clock, for both jobs alike
    copies of the other, together        under MPS, copies and short kernels of two processes disturb each other
    idle inside production x ln(simulated)
                                         a job that waits for its own CPU loses less than is simulated

There is no intercept: where no trait speaks, the simulator's figure stands. So it does where production does not keep
up (SATURATED times slower), since by how much says nothing then. No correction of the other job's share was better on
unseen pairs than none.

The error that counts is that of pairs that were not seen (`unseen`): every pair in turn is left out, in all its modes,
and predicted from the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cotenant.cluster.predict.traits import Traits

SATURATED = 4.0
PENALTY = 1.0
Vector = npt.NDArray[np.float64]

# How the GPU is shared, as bench/pairs names it.
MODES = ("cotenant", "timeslice", "mps", "mps-priority")
TOGETHER = ("mps", "mps-priority")


@dataclass(frozen=True, slots=True)
class Pair:
    """Production and another job: how they are, and how the simulator says they go together."""

    mode: str
    production: Traits
    other: Traits
    slowdown: float  # simulated, of production's median service time
    share: float  # simulated, of what the other job does alone

    @property
    def keeps_up(self) -> bool:
        return self.slowdown < SATURATED


@dataclass(frozen=True, slots=True)
class Observation:
    name: str  # "decode+gpt"
    pair: Pair
    slowdown: float  # measured
    share: float


@dataclass(frozen=True, slots=True)
class Prediction:
    slowdown: float  # of production: 1.05 is 5 % slower than alone
    share: float  # of the other job: 0.7 of its speed alone
    keeps_up: bool = True

    @property
    def other_slowdown(self) -> float:
        return math.inf if self.share <= 0 else 1 / self.share


@dataclass(frozen=True, slots=True)
class Errors:
    """Mean absolute errors in percentage points, and over how many cases."""

    slowdown: float
    slowdowns: int
    share: float
    shares: int


class Model:
    """The simulator's figures, and what was learned on top. Without observations it is the simulator alone."""

    def __init__(self, observations: Iterable[Observation] = ()) -> None:
        seen = [one for one in observations if one.pair.keeps_up and one.slowdown < SATURATED]
        self._correction = Ridge(
            [features(one.pair) for one in seen],
            [math.log(one.slowdown / one.pair.slowdown) for one in seen],
        )

    def predict(self, pair: Pair) -> Prediction:
        if not pair.keeps_up:
            return Prediction(pair.slowdown, pair.share, keeps_up=False)
        return Prediction(pair.slowdown * math.exp(self._correction(features(pair))), pair.share)


class Ridge:
    def __init__(self, rows: Sequence[Vector], targets: Sequence[float]) -> None:
        self._weights: Vector | None = None
        if not rows:
            return
        x, y = np.array(rows), np.array(targets)
        self._scale = np.sqrt((x**2).mean(axis=0)) + 1e-12
        x = x / self._scale
        penalty = PENALTY * np.eye(x.shape[1])
        self._weights = np.linalg.solve(x.T @ x + penalty, x.T @ y)

    def __call__(self, row: Vector) -> float:
        return 0.0 if self._weights is None else float((row / self._scale) @ self._weights)


def features(pair: Pair) -> Vector:
    is_together = pair.mode in TOGETHER
    return np.array(
        [
            0.0 if is_together else pair.other.long_kernels,
            pair.other.host_copies if is_together else 0.0,
            pair.production.idle_inside * math.log(pair.slowdown),
        ]
    )


def unseen(observations: Sequence[Observation]) -> list[tuple[Observation, Prediction]]:
    """Each pair predicted from all others."""
    found = []
    for name in dict.fromkeys(one.name for one in observations):
        model = Model(one for one in observations if one.name != name)
        found += [(one, model.predict(one.pair)) for one in observations if one.name == name]
    return found


def errors(cases: Sequence[tuple[Observation, Prediction]]) -> Errors:
    slowdowns = [abs(one.slowdown - said.slowdown) for one, said in cases if one.slowdown < SATURATED]
    shares = [abs(one.share - said.share) for one, said in cases]
    return Errors(mean_points(slowdowns), len(slowdowns), mean_points(shares), len(shares))


def mean_points(values: Sequence[float]) -> float:
    return 100 * sum(values) / len(values) if values else math.nan


def simulator_alone(observations: Sequence[Observation]) -> list[tuple[Observation, Prediction]]:
    return [(one, Model().predict(one.pair)) for one in observations]
