"""Which GPU a job goes to. One file a policy; `interface.py` says what a policy sees and what it decides."""
