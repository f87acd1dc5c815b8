"""JAX: jitted training steps, short and long, vmap, scan"""

import importlib.util
import mmap
import os
from pathlib import Path

import evidence


def known_flags(*flags):
    """Those that this XLA has: it aborts on one that it does not know."""
    known = set()
    for package in ("jax_cuda13_plugin", "jax_cuda12_plugin", "jaxlib"):
        spec = importlib.util.find_spec(package)
        for folder in spec.submodule_search_locations if spec else ():
            for library in Path(folder).glob("*.so"):
                with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
                    known.update(flag for flag in flags if text.find(flag.split("=")[0].encode()) >= 0)
    return [f"--{flag}" for flag in flags if flag in known]


# No algorithm is chosen by timing it, or results would differ from run to run.
os.environ["XLA_FLAGS"] = " ".join(known_flags("xla_gpu_deterministic_ops=true", "xla_gpu_autotune_level=0"))
jax = evidence.need("jax")
import jax.numpy as jnp
import numpy

if jax.default_backend() != "gpu":
    evidence.skip("jax sees no GPU")


def new_weights(key):
    first, second = jax.random.split(key)
    return {
        "first": jax.random.normal(first, (128, 256)) * 0.05,
        "second": jax.random.normal(second, (256, 10)) * 0.05,
    }


def loss_of(weights, x, y):
    logits = jax.nn.relu(x @ weights["first"]) @ weights["second"]
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], axis=1)
    return -jnp.mean(chosen)


@jax.jit
def step(weights, x, y):
    loss, gradient = jax.value_and_grad(loss_of)(weights, x, y)
    return jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradient), loss


# Milliseconds of matrix products, which XLA keeps as one graph: before each step it updates the child graphs in it.
@jax.jit
def long_step(layers, x):
    def loss_of_deep(layers):
        y = x
        for layer in layers:
            y = jax.nn.gelu(y @ layer)
        return jnp.mean(y.astype(jnp.float32) ** 2)

    gradient = jax.grad(loss_of_deep)(layers)
    return [layer - (0.1 * one).astype(layer.dtype) for layer, one in zip(layers, gradient, strict=True)]


key = jax.random.key(0)
weights = new_weights(key)
x = jax.random.normal(jax.random.key(1), (512, 128))
y = jax.random.randint(jax.random.key(2), (512,), 0, 10)
losses = []
for _ in range(100):
    weights, loss = step(weights, x, y)
    losses.append(float(loss))
wide = jax.random.normal(jax.random.key(3), (4096, 4096), jnp.bfloat16)
layers = [jax.random.normal(jax.random.key(4 + i), (4096, 4096), jnp.bfloat16) * 0.02 for i in range(6)]
for _ in range(10):
    layers = long_step(layers, wide)
scanned, _ = jax.jit(lambda start: jax.lax.scan(lambda c, _: (jnp.sin(c) + 0.5, None), start, length=200))(x)
mapped = jax.jit(jax.vmap(lambda row: jnp.outer(row, row).sum()))(x)
evidence.report(
    {
        "losses": evidence.digest(repr(losses).encode()),
        "first": evidence.digest_array(numpy.asarray(weights["first"])),
        "second": evidence.digest_array(numpy.asarray(weights["second"])),
        "long steps": evidence.digest_array(numpy.asarray(layers[0].astype(jnp.float32))),
        "scan": evidence.digest_array(numpy.asarray(scanned)),
        "vmap": evidence.digest_array(numpy.asarray(mapped)),
    },
    "jax",
    "jaxlib",
)
