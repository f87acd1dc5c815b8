"""Turns a command into a tenant: finds the driver, puts the interposer before it, and sets the environment."""
