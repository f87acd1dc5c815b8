"""The policy guard in its parts; policy.py has the formula and says where each part is."""
