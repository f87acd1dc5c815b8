"""The node agent: what kubelet asks of a DRA driver, for the GPUs of this node.

protocol          kubelet's messages and services, from their published field numbers
services          the same, served on Unix sockets
preparing         prepare and unprepare: identity file, CDI file, checkpoint
checkpoint        which claims are prepared, on disk
host              what a container gets from the host: native files, preload, segment
device_plugin     extended resources, for clusters without DRA
agent             all of it together, and the ResourceSlice
"""
