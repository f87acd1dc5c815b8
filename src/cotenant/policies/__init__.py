"""Policies: one file each, its formula at the head. `interface.py` says what a policy sees and may turn.

`guard` is long: `guard_*.py` are its parts. `back_off.py`, `journal.py` and `window.py` are there for all.
"""
