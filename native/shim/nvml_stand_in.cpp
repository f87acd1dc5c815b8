// Empty: see nvml_hooks.h. Only the libraries that it is linked with count, and their order.
