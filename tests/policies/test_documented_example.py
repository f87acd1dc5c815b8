"""The example in docs/policies.md is a policy that does what its page says."""

from __future__ import annotations

import re
from pathlib import Path

from cotenant.classes import TenantClass
from cotenant.policies import registry
from cotenant.policies.interface import Tenant, View

PAGE = Path(__file__).parent.parent.parent / "docs" / "policies.md"


def test_the_example_runs(tmp_path: Path) -> None:
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found
    file = tmp_path / "mine.py"
    file.write_text(found[1])
    policy = registry.find_live(f"{file}:EveryOther")()
    tenants = [Tenant(1, TenantClass.production), Tenant(2, TenantClass.opportunistic)]
    first, second = policy.tick(View(0, tenants)), policy.tick(View(150_000, tenants))
    assert first.tenants[1].tolerant and 2 not in first.tenants
    assert second.tenants[2].shut and 1 not in second.tenants


def test_the_page_names_every_policy_of_ours() -> None:
    page = PAGE.read_text()
    for name in ("guard", "strict", "fair", "none"):
        assert f"| `{name}`" in page
