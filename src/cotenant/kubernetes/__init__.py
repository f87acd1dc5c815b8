"""Cotenant in a Kubernetes cluster: claims by Dynamic Resource Allocation (docs/kubernetes.md).

names             what things are called in the cluster
quantities        amounts as Kubernetes writes them
parameters        what a claim says beyond its capacities: promise, weight, floor
inventory         the GPUs of a node, as a ResourceSlice
claims            an allocated claim, as the terms of a tenant
manifests         all objects of an installation; chart: the same for Helm
node/             the node agent: kubelet's services, CDI files, checkpoint
webhook/          annotations and other projects' spellings, turned into claims
placer/           pods that wait until a GPU is chosen for them
cluster           the API server; mirror: objects of it, kept up to date by watching
"""
