"""Policies: one file each, its formula at the head. `interface.py` says what a policy sees and may turn.

`guard` is long: a folder. `back_off.py`, `journal.py` and `window.py` are there for all.
"""
