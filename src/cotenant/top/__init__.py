"""`cotenant top`: the tenants of a segment, live.

looking     reads the segment, and what its daemon saw
model       two snapshots in, rows and histories out
frame       these as lines of text, for the screen and for a pipe
screen      the screen, in a terminal
actions     what its keys do to tenants
"""
