// Nothing: see nvml_hooks.h. What counts is what this library is linked with, and in which order.
