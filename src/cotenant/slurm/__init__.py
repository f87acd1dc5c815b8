"""Slurm: which class and limits a job gets, and the task prolog that puts it under Cotenant."""
