"""A process that ends while its other threads launch: they go on, and nothing of ours is in their way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cotenant import segment
from tests.waiting import wait_for

if TYPE_CHECKING:
    from tests.interposer.conftest import Compile, Tenant

    Start = Callable[..., Tenant]

ROUNDS = 6


@pytest.mark.parametrize(
    ("tenant_class", "settings"),
    [
        ("production", {}),
        ("opportunistic", {}),
        ("standard", {"COTENANT_MEMORY": "256M"}),
        ("production", {"COTENANT_RECORD": "trace"}),
    ],
    ids=["production", "movable memory", "limited memory", "recorded"],
)
def test_threads_that_launch_while_the_process_ends_go_on_to_its_end(
    tenant: Start, compiled: Compile, tmp_path: Path, tenant_class: str, settings: dict[str, str]
) -> None:
    program = compiled("exit_while_launching", "-pthread")
    settings = {name: str(tmp_path / text) if text == "trace" else text for name, text in settings.items()}

    def nobody_is_left() -> bool:
        left = segment.read(Path(one.env["COTENANT_SEGMENT"]))
        return (left.tenants, left.lost) == ((), 0)

    for _ in range(ROUNDS):
        one = tenant(tenant_class, [str(program)], **settings)
        assert one.finish() == "ended\n"
        # It has left once, and nobody has joined again for it.
        assert [line["class"] for line in one.figures()] == [tenant_class]
        wait_for(nobody_is_left)
