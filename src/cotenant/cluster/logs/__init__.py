"""Public logs of GPU clusters, read as arrivals: who came when, for how long, with how many GPUs. One file a schema."""
