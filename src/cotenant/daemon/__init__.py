"""The daemon: ticks a policy's controller for each GPU of a segment, and reports what it decided.

It reads the tenants' slots in shared memory and writes knobs there. Nobody waits for it: when it dies the jobs run on.
"""
