"""Pods that ask for GPUs in a short form, or in another project's spelling, get claims.

wish          what a pod wants of GPUs, whoever's words it used; as a ResourceClaimTemplate
dialects/     one file a spelling: a pod's words become wishes
mutation      a pod becomes the same pod with claims, or a refusal that says why
server        the admission webhook around it
"""
