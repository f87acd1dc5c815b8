"""What a coverage program says at its end: digests of its results and the versions it ran with, in one JSON line.

Programs import this before the libraries they are about: it fixes what must be fixed before those are loaded.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import json
import os
import sys
from typing import Any, NoReturn

MARK = "coverage-evidence "

# Same sums in every run: cuBLAS with one workspace a stream.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
# Several programs share the GPU while the coverage runs.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def digest(data: bytes | bytearray | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def digest_array(array: Any) -> str:
    """Of a numpy array: its type, its shape and its bytes."""
    return digest(f"{array.dtype}{array.shape}".encode() + array.tobytes())


def digest_tensor(tensor: Any) -> str:
    return digest_array(tensor.detach().float().cpu().numpy())


def digest_model(model: Any) -> str:
    return digest("".join(digest_tensor(p) for p in model.parameters()).encode())


def need(module: str) -> Any:
    """The module, or the end of this program as skipped."""
    try:
        return importlib.import_module(module)
    except Exception as error:  # a library broken by another one's version raises what it likes
        skip(f"{module}: {type(error).__name__}: {error}")


def skip(reason: str) -> NoReturn:
    print(MARK + json.dumps({"skipped": reason}), flush=True)
    sys.exit(0)


def report(digests: dict[str, str], *packages: str) -> None:
    versions = {package: importlib.metadata.version(package) for package in packages}
    print(MARK + json.dumps({"digests": digests, "versions": versions}), flush=True)


def deterministic_torch(seed: int = 1234) -> Any:
    """PyTorch with a fixed seed and deterministic algorithms only, on a GPU that it can use."""
    torch = need("torch")
    if not torch.cuda.is_available():
        skip("torch sees no GPU")
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    return torch
