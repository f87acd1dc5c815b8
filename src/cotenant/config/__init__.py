"""What users and administrators set once: every setting with its key, flag and variable, and the files that hold them.

settings    all settings, declared once; a command takes its options from here
files       the machine's and the user's file
live        the daemon's settings in a segment: what it puts into effect, and what `ctl` has set since
page        docs/configuration.md
"""
