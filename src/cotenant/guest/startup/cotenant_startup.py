"""Loads the PyTorch helper, ../torch.py, once the program has imported PyTorch, and nothing before.

It runs in the program's own Python, 3.9 or newer, where Cotenant need not be installed: by path, and with the standard
library alone. Whatever fails here, the import of PyTorch continues as it would without it.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

HELPER = "_cotenant_torch"


class AfterTorch:
    """Finds PyTorch where the others do, and has its loader load the helper afterwards."""

    def __init__(self) -> None:
        self.is_asking = False

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        # Others may ask all finders too.
        if name != "torch" or self.is_asking:
            return None
        self.is_asking = True
        try:
            for finder in list(sys.meta_path):
                if finder is not self and hasattr(finder, "find_spec"):
                    spec = finder.find_spec(name, path, target)
                    if spec is not None:
                        self.follow(spec)
                        return spec
        finally:
            self.is_asking = False
        return None

    def follow(self, spec: ModuleSpec) -> None:
        loader = spec.loader
        execute = getattr(loader, "exec_module", None)
        if loader is None or execute is None:
            return

        def exec_module(module: ModuleType) -> None:
            vars(loader).pop("exec_module", None)
            execute(module)
            self.stop()
            load_helper()

        try:
            # On this one object: its class, and so the module's __loader__ and __spec__, are what they always are.
            loader.exec_module = exec_module  # type: ignore[method-assign]
        except (AttributeError, TypeError):
            self.stop()

    def stop(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)


def load_helper() -> None:
    if "cotenant.guest.torch" in sys.modules or HELPER in sys.modules:
        return
    try:
        from importlib.util import module_from_spec, spec_from_file_location

        package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        spec = spec_from_file_location(HELPER, os.path.join(package, "torch.py"))
        assert spec and spec.loader
        sys.modules[HELPER] = helper = module_from_spec(spec)
        spec.loader.exec_module(helper)
    except Exception:
        sys.modules.pop(HELPER, None)


def watch() -> None:
    """Once in a process."""
    if "torch" not in sys.modules and not any(isinstance(finder, AfterTorch) for finder in sys.meta_path):
        sys.meta_path.insert(0, AfterTorch())
