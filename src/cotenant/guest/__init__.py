"""What runs inside the tenants' own Python: the PyTorch helper, and how it gets there (startup/)."""
