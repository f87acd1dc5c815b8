"""What happened to the tenants of a segment: who came and went, whose memory was evicted and why, which promise was
broken. The daemon writes it down; `cotenant events` prints it.

    for event in cotenant.events.read(path):
        print(event.at, event.kind, event.subject, event.cause)

kinds       what can happen, declared once
log         the file in which events are kept
observer    what happened between two looks at a segment
watching    what the daemon writes down
"""

from __future__ import annotations

from cotenant.events.kinds import SCHEMA, Event, Kind
from cotenant.events.log import follow, read

__all__ = ["SCHEMA", "Event", "Kind", "follow", "read"]
