"""NVIDIA's MPS for jobs that overlap: the user's own control daemon, who uses it, and which jobs go through it."""
