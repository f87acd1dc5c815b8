"""What commands say about running tenants, and what they ask of them."""
