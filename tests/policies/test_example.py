"""The policy that docs/published-policies.md shows works as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

from cotenant.classes import TenantClass
from cotenant.policies import registry
from cotenant.policies.interface import Tenant, TenantKnobs, View
from tests.compiling import TREE

PAGE = TREE / "docs" / "published-policies.md"


def test_the_page_s_example_is_found_by_its_path_and_caps_the_others(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    file = tmp_path / "cap.py"
    file.write_text(example)
    policy = registry.find(str(file))()
    production, *others = [
        Tenant(1, TenantClass.production),
        Tenant(2, TenantClass.opportunistic),
        Tenant(3, TenantClass.standard),
    ]
    assert policy.tick(View(0, [production, *others])).tenants == {
        1: TenantKnobs(tolerant=True),
        2: TenantKnobs(rate=0.15),
        3: TenantKnobs(rate=0.15),
    }
    assert not policy.tick(View(0, others)).tenants
    assert policy.explain(2)


def test_every_built_in_policy_is_on_a_page() -> None:
    sections = [line for line in PAGE.read_text().splitlines() if line.startswith("#")]
    for name in set(registry.BUILT_IN) - {"guard", "guard-spatial", "strict", "fair", "none"}:
        assert any(re.search(rf"\b{name}\b", line) for line in sections), name
