"""What `import cotenant` gives to programs: the figures and acts of the commands, with types, and tenants inside one
process. `cotenant/__init__.py` names the public ones, and loads a module here when one of its names is first used.

figure_types   a tenant's figures as fields, written from cotenant.figures
results        what the functions return
running        status, explain, pause, resume
lane           tenant: tenants inside one process
notebook       %load_ext cotenant
"""

from __future__ import annotations

import keyword


def field_name(figure: str) -> str:
    """Of a figure: `class` is a word of Python's."""
    return f"{figure}_" if keyword.iskeyword(figure) else figure
