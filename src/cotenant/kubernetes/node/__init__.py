"""The node agent: what kubelet asks of a DRA driver, for the GPUs of this node.

protocol          kubelet's messages and services, from their published field numbers
services          the same, served on Unix sockets
preparing         prepare and unprepare: identity file, CDI file, checkpoint
host              what a container gets from the host: native files, preload, segment
device_plugin     extended resources, for clusters without DRA
pods              the node's pods, and which of them a tenant is in
changes           annotations of a running pod, as what its tenants shall have
evictions         which pods are about to be evicted
outsiders         processes in pods that use a GPU past Cotenant
story             Kubernetes' events
tending           what is done for running tenants: story, changes, pauses, broken promises
agent             all of it together, and the ResourceSlice
"""
