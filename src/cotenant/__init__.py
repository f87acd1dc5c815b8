"""Cotenant: several jobs share one GPU, and the job that matters does not notice."""

from __future__ import annotations

__version__ = "0.1.0"
