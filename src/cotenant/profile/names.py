"""Names of kernels as people read them. Libraries mangle them, as C++ does."""

from __future__ import annotations

import ctypes
import functools
import re
from typing import Any

NOISE = re.compile(
    r"\bvoid |\(anonymous namespace\)::|<unnamed>::|_GLOBAL__N__\w+::|at::native::|c10::|cutlass__\w+::"
)
LONGEST = 72


@functools.cache
def _demangler() -> Any:
    """Of the C++ library's; None where there is none to load."""
    try:
        function = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
    except (OSError, AttributeError):
        return None
    function.restype = ctypes.c_void_p
    return function


def demangled(name: str) -> str:
    function = _demangler() if name.startswith("_Z") else None
    if function is None:
        return name
    status = ctypes.c_int()
    found = function(name.encode(errors="replace"), None, None, ctypes.byref(status))
    if not found:
        return name
    text = ctypes.string_at(found).decode(errors="replace")
    ctypes.CDLL(None).free(ctypes.c_void_p(found))
    return text


def short(name: str) -> str:
    """What it is called in a table: without its parameters and the namespaces that all have."""
    text = NOISE.sub("", demangled(name))
    head = re.split(r"\((?!anonymous)", text, maxsplit=1)[0].strip() or text
    return head if len(head) <= LONGEST else head[: LONGEST - 1] + "…"
