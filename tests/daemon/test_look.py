"""A look of the daemon: its rows say what the slots say, word by word."""

from __future__ import annotations

from cotenant import segment
from cotenant.daemon.attachment import Attachment
from cotenant.segment import wire

FAR = 1 << 62


def rows(attachment: Attachment, gpu: int = 0) -> list[wire.Row]:
    return [place.row for place in attachment.look().places[gpu]]


def test_a_row_has_every_word_of_its_slot(attachment: Attachment) -> None:
    slot = attachment.slots[70]
    here = slot.gpus[0]
    slot.started, slot.weight, slot.slowdown, slot.floor = 11, 12, 13, 14
    slot.profiled_kernels, slot.unprofiled_kernels, slot.sms_refused, slot.mps_daemon = 15, 16, 1, 17
    slot.residence.since_ns = 18
    here.used_ns, here.busy_ns, here.gap_ns, here.blocked_ns, here.blocking_calls = 21, 22, 23, 24, 25
    slot.own[0].cpu_ns, slot.own[0].asleep_ns = 32, 33
    here.shut_until_ns, here.tolerant_until_ns, here.in_flight_us, here.sms = 26, 27, 28, 29
    here.rate, here.rate_until_ns = 300, segment.now_ns() + 1_000_000_000
    here.figures = segment.Figures(kernels=1000, graphs=200, copies=30, memory_ops=4, bursts=31)
    here.gate = 0
    other, row = rows(attachment)
    assert other.slot == 0 and other.pid == 100 and other.slowdown == 50 and other.is_held == 0
    expected = {
        "started": 11,
        "used_ns": 21,
        "busy_ns": 22,
        "gap_ns": 23,
        "blocked_ns": 24,
        "blocking_calls": 25,
        "own_cpu_ns": 32,
        "asleep_ns": 33,
        "operations": 1234,
        "bursts": 31,
        "moved_ns": 18,
        "shut_until_ns": 26,
        "tolerant_until_ns": 27,
        "slot": 70,
        "gpu": 0,
        "pid": 200,
        "tenant_class": 2,
        "weight": 12,
        "slowdown": 13,
        "floor": 14,
        "has_work": 1,
        "is_held": 1,
        "in_flight_us": 28,
        "rate": 300,
        "profiled_kernels": 15,
        "unprofiled_kernels": 16,
        "sms": 29,
        "sms_refused": 1,
        "mps_daemon": 17,
    }
    assert row._asdict() == expected
    # A daemon that has failed is none, a rate that has run out is none, and memory on its way is on its way now.
    slot.mps_fault, here.rate_until_ns, slot.residence.where = 1, 1, segment.Where.evicting
    before = segment.now_ns()
    _, row = rows(attachment)
    assert (row.mps_daemon, row.rate) == (0, 0) and row.moved_ns >= before
    slot.residence.where, slot.residence.since_ns = segment.Where.evicted, FAR
    _, row = rows(attachment)
    assert before <= row.moved_ns <= segment.now_ns(), "a moment that has not come yet is none"


def test_what_only_grows_does_not_shrink_while_it_is_the_same_tenant(attachment: Attachment) -> None:
    """A reader may see a word before another that was written earlier, and a guest may write what it likes."""
    slot, here = attachment.slots[70], attachment.slots[70].gpus[0]
    own = ("own_cpu_ns", "asleep_ns")
    words = ("used_ns", "busy_ns", "gap_ns", "blocked_ns", "blocking_calls", *own)

    def write(value: int) -> None:
        for word in set(words) - set(own):
            setattr(here, word, value)
        slot.own[0].cpu_ns = slot.own[0].asleep_ns = value

    write(50)
    rows(attachment)
    write(40)
    here.figures = segment.Figures(kernels=1, bursts=1)
    _, row = rows(attachment)
    assert [getattr(row, word) for word in words] == [50] * len(words)
    assert (row.operations, row.bursts) == (11, 4)
    slot.started += 1
    _, row = rows(attachment)
    assert [getattr(row, word) for word in words] == [40] * len(words) and row.operations == 1


def test_only_gpus_that_are_known_and_were_used_have_rows(attachment: Attachment) -> None:
    for slot in (attachment.slots[0], attachment.slots[70]):
        slot.gpus[1].busy = 1
        slot.gpus[1].figures = segment.Figures(kernels=1, bursts=1)
    assert list(attachment.look().places) == [0]
    attachment.header.gpus[1].known = segment.GPU_VALID
    assert [row.gpu for row in rows(attachment, 1)] == [1, 1]
    attachment.slots[0].gpus[1].busy = 0
    assert [row.has_work for row in rows(attachment, 1)] == [0, 1]
    attachment.slots[0].gpus[1].figures = segment.Figures()
    assert [row.slot for row in rows(attachment, 1)] == [70]


def test_a_tenant_of_no_class_has_no_row_and_counts_as_live(attachment: Attachment) -> None:
    attachment.slots[70].tenant_class = 3
    look = attachment.look()
    assert look.live == 2 and [place.row.slot for place in look.places[0]] == [0]


def test_a_slot_whose_owner_is_gone_is_freed(attachment: Attachment) -> None:
    attachment.slots[0].owner = 0x40000000 | 100  # as the kernel leaves it
    look = attachment.look()
    assert look.live == 1 and [place.row.slot for place in look.places[0]] == [70]
    assert attachment.header.members[0][0] == 0
