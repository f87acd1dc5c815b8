"""MIG: how a GPU can be partitioned, and which partition suits a list of jobs. Changes nothing on the card."""
