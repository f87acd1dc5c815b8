"""Policies: one file each, its formula at the head. `interface.py` says what a policy sees and may turn."""
