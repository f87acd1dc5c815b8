"""Every function that cuda.h declares, old versions and per-thread-stream variants included.

The header goes through the compiler's preprocessor first, so that its version macros are already resolved and what is
left is plain declarations.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

DECLARATION = re.compile(r"\bCUresult\s+(cu[A-Z]\w*)\s*\(([^;{}]*?)\)\s*;")
PARAMETER_NAME = re.compile(r"(\w+)\s*((?:\[\w*\])?)$")
VARIANT = re.compile(r"(_v\d)?(_ptsz|_ptds)?$")


@dataclass(frozen=True)
class Parameter:
    type: str
    name: str


@dataclass(frozen=True)
class Function:
    name: str
    parameters: tuple[Parameter, ...]

    @property
    def base(self) -> str:
        """The name that cuGetProcAddress takes: without version and stream suffix."""
        return VARIANT.sub("", self.name, count=1)

    @property
    def per_thread(self) -> bool:
        return self.name.endswith(("_ptsz", "_ptds"))


def parse_parameter(text: str, position: int) -> Parameter:
    text = " ".join(text.split())
    match = PARAMETER_NAME.search(text)
    if not match or match.start() == 0:
        return Parameter(text, f"a{position}")
    kind = text[: match.start()].strip()
    return Parameter(kind + (" *" if match.group(2) else ""), match.group(1))


def parse(preprocessed: str) -> dict[str, Function]:
    functions: dict[str, Function] = {}
    for name, parameters in DECLARATION.findall(preprocessed):
        text = parameters.strip()
        parts = [] if text in ("", "void") else text.split(",")
        functions.setdefault(
            name, Function(name, tuple(parse_parameter(part, i) for i, part in enumerate(parts)))
        )
    return functions


def read(compiler: str, include: Path) -> dict[str, Function]:
    """Functions by exported name, from the cuda.h in this folder."""
    result = subprocess.run(
        [
            compiler,
            "-x",
            "c++",
            "-E",
            "-P",
            "-D__CUDA_API_VERSION_INTERNAL",
            f"-I{include}",
            str(include / "cuda.h"),
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    functions = parse(result.stdout)
    if len(functions) < 400:
        raise SystemExit(
            f"error: only {len(functions)} functions found in {include / 'cuda.h'}: is it CUDA's header?"
        )
    return functions
