"""Policies: one file each, its formula at the head. `interface.py` says what a policy sees and may set.

`guard` is long and has a folder. `back_off.py`, `journal.py` and `window.py` are for all policies.
"""
