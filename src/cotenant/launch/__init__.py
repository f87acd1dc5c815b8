"""Turning a command into a tenant: the driver it gets, the interposer before it, and the environment that says so."""
