"""How much would two jobs slow each other down on one GPU?

from cotenant.cluster.predict import predict

said = predict("serving.trace", "training.trace", rate=20)
print(said.slowdown, said.other_slowdown)

The simulator plays the two recorded jobs; a regression over pairs that were measured on an H200 adds what it misses.
"""

from __future__ import annotations

from cotenant.cluster.predict.model import Model, Observation, Pair, Prediction
from cotenant.cluster.predict.observations import shipped
from cotenant.cluster.predict.pairs import predict, simulated
from cotenant.cluster.predict.traits import Traits

__all__ = ["Model", "Observation", "Pair", "Prediction", "Traits", "predict", "shipped", "simulated"]
