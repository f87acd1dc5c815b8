// Linked with NVML, as monitors are: prints total, free and used memory of the first GPU in MiB.
#include <stdio.h>

int nvmlInit_v2(void);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device);
typedef struct {
    unsigned long long total, free, used;
} Memory;
int nvmlDeviceGetMemoryInfo(void* device, Memory* memory);

int main(void) {
    void* device;
    Memory memory;
    if (nvmlInit_v2() || nvmlDeviceGetHandleByIndex_v2(0, &device) || nvmlDeviceGetMemoryInfo(device, &memory))
        return 1;
    printf("%llu %llu %llu\n", memory.total >> 20, memory.free >> 20, memory.used >> 20);
    return 0;
}
