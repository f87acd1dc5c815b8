"""The placer: pods wait behind a scheduling gate until it has chosen a GPU for each (docs/kubernetes.md).

gate           a pod and its claims, gated by the webhook, and released again
offers         the GPUs that nodes offer, and who is on them
wanted         what a gated pod wants, as a job for the placement policies
nodes          whether a node takes a pod
round          one decision: all gated pods at once, by a policy of cotenant.cluster.placement. Pure
slowdowns      what is known of interference: shipped and measured pairs, recorded jobs
sight          all that it looks at, kept up to date by watching
release        pods that wait for a placer that goes away
placer         round after round, carried out
"""
