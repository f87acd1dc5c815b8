"""A cluster in virtual time: logged arrivals, a placement policy, and what jobs on one GPU do to each other."""
