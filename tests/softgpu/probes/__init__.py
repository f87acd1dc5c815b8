"""What the driver answers to calls that are wrong, or nearly: one named probe each, by subject."""

from __future__ import annotations

from tests.softgpu.probes import captures as captures
from tests.softgpu.probes import contexts as contexts
from tests.softgpu.probes import copies as copies
from tests.softgpu.probes import destroyed as destroyed
from tests.softgpu.probes import graphs as graphs
from tests.softgpu.probes import kernels as kernels
from tests.softgpu.probes import memory as memory
from tests.softgpu.probes import pools as pools
from tests.softgpu.probes import streams as streams
from tests.softgpu.probes import virtual_memory as virtual_memory
from tests.softgpu.probes.table import PROBES as PROBES
from tests.softgpu.probes.table import Probe as Probe
