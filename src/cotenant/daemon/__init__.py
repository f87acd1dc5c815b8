"""The daemon: ticks a policy's controller for each GPU of a segment, and shows what it decided.

It looks at the tenants in shared memory and turns knobs there. Nobody waits for it: when it dies the jobs go on.
"""
