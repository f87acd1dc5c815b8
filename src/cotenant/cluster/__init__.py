"""More than one machine: where jobs go, what they will do to each other there, and a cluster in virtual time."""
