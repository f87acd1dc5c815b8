"""First in PYTHONPATH under `cotenant run`: Python runs it when it starts. It looks out for the program's own import of
PyTorch (cotenant_startup.py); then the sitecustomize that would have run without it runs, if there is one.

Every Python that the command starts reads this, old ones too: no newer syntax here, and nothing that takes time.
"""

import os
import sys

_folder = os.path.dirname(os.path.abspath(__file__))
try:
    if sys.version_info >= (3, 9) and os.environ.get("COTENANT_TORCH") not in ("0", "no", "false"):
        __import__("cotenant_startup").watch()
except Exception:
    pass  # the program runs as it would without us

sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != _folder]
sys.path_importer_cache.pop(_folder, None)
# Kept in a name of its own: Python 2 empties a module that nobody refers to.
_this = sys.modules.pop("sitecustomize", None)
# Where there is none, Python expects just this error; what is wrong in one, Python itself shall say.
__import__("sitecustomize")
