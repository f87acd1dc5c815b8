"""The checks of `cotenant doctor`."""
