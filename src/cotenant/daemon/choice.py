"""Choosing the policy of a segment: a name in its header, which the daemon follows while it runs."""

from __future__ import annotations

import os

from cotenant import segment
from cotenant.errors import USAGE, Problem
from cotenant.policies import patience, registry


def for_segment(name: str) -> str:
    """As the daemon, which works in another folder, must be told it. Raises a Problem where there is no such policy."""
    told = os.path.abspath(name) if registry.is_file(name) else name
    try:
        encoded = told.encode()
    except UnicodeEncodeError:
        raise Problem(f"{told} is not UTF-8", "put the file where its path is", USAGE) from None
    with patience.of_a_command(told):
        registry.find_live(told)
    if len(encoded) > segment.LONGEST_POLICY_NAME:
        hint = "put the file where its path is shorter"
        raise Problem(f"{told} has over {segment.LONGEST_POLICY_NAME} characters", hint, USAGE)
    return told
