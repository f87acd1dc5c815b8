"""What kernels are like: their time, the SMs they fill, their throughput and their class; kept per model of GPU."""
