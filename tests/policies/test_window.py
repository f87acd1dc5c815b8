"""A window is two looks at counts that only grow."""

from __future__ import annotations

from cotenant.classes import TenantClass
from cotenant.policies.interface import Tenant, View
from cotenant.policies.window import Growth, Window


def tenant(number: int, times: int) -> Tenant:
    return Tenant(
        number,
        TenantClass.standard,
        operations=times,
        bursts=2 * times,
        used_us=3.0 * times,
        busy_us=4.0 * times,
        sm_us=5.0 * times,
        gap_us=6.0 * times,
        blocked_us=7.0 * times,
        blocking_calls=8 * times,
    )


def test_it_says_how_much_everything_has_grown() -> None:
    window = Window()
    assert window.look(View(100, [tenant(1, 10), tenant(2, 1)])) == 0
    assert window.look(View(600, [tenant(1, 13), tenant(2, 2)])) == 500
    assert window.growth([tenant(1, 13)]) == Growth(3, 6, 9.0, 12.0, 15.0, 18.0, 21.0, 24)
    assert window.growth([tenant(1, 13), tenant(2, 2)]) == Growth(4, 8, 12.0, 16.0, 20.0, 24.0, 28.0, 32)


def test_who_comes_later_counts_from_then_on_and_who_left_is_forgotten() -> None:
    window = Window()
    window.look(View(0, [tenant(1, 10)]))
    window.look(View(1, [tenant(2, 100)]))
    assert window.growth([tenant(2, 101)]).operations == 1
    window.look(View(2, [tenant(1, 20), tenant(2, 101)]))
    assert window.growth([tenant(1, 20)]).operations == 0
    assert window.growth([tenant(3, 50)]).operations == 0


def test_it_begins_anew_with_who_is_there() -> None:
    window = Window()
    window.look(View(0, [tenant(1, 10)]))
    window.restart(View(50, [tenant(1, 12)]))
    assert window.look(View(60, [tenant(1, 13)])) == 10
    assert window.growth([tenant(1, 13)]).operations == 1
