"""The GPUs of this machine: how they are named, what NVML and the daemon say of them."""
