"""Memory that moves, in an administrator's segment: what holds among one user's tenants holds among several users'."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

# The claims of other files, here with the segment of several users.
from tests.interposer.test_oversubscription import (  # noqa: F401
    test_a_lower_limit_sends_an_opportunistic_job_away,
    test_as_few_leave_as_are_needed_and_the_least_valuable_first,
    test_headroom_is_kept_for_the_classes_above,
    test_jobs_that_do_not_fit_together_take_turns,
    test_production_gets_what_an_opportunistic_job_has,
    test_production_grows_while_others_come_and_go,
    test_whoever_is_killed_on_the_way_leaves_nothing_behind,
    test_without_room_on_the_host_nobody_leaves,
)
from tests.interposer.test_two_users import softgpu_env  # noqa: F401
from tests.interposer.test_waiting_for_memory import (  # noqa: F401
    test_one_that_was_stopped_while_it_waits_lets_the_others_pass,
)

if TYPE_CHECKING:
    from tests.conftest import Run


@pytest.fixture(autouse=True)
def knobs(softgpu_env: dict[str, str], cotenant: Run) -> Callable[..., None]:  # noqa: F811
    def change(*options: str) -> None:
        done = cotenant("ctl", *options, env=softgpu_env)
        assert done.returncode == 0, done.stderr

    change("--capacity", "64M", "--headroom", "0", "--stay", "50ms")
    return change
