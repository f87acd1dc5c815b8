"""One real cluster for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kubernetes.real.control_plane import PROGRAMS, ControlPlane, binaries


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    binaries(*PROGRAMS)
    made = ControlPlane(tmp_path_factory.mktemp("control-plane"))
    try:
        made.start()
        yield made
    finally:
        made.stop()
