"""`cotenant demo`: a production job and an opportunistic job share one GPU; this measures what that costs.

The workloads are real processes that use NVIDIA's `cuda-bindings`; they run on an NVIDIA GPU or on the
software GPU alike. `rounds` says who runs when, `figures` what is made of the samples, `report` and `picture`
what is left behind.
"""
