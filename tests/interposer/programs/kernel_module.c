// Stands for NVIDIA's kernel module, preloaded behind the interposer: takes a time slice, or refuses all but the
// driver's own, as COTENANT_TEST_REFUSE says, and tells on stdout what it took.
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef struct {
    uint32_t client, object, command, flags;
    uint64_t parameters;
    uint32_t parameters_bytes, status;
} ResourceControl;

int ioctl(int fd, unsigned long request, ...) {
    va_list arguments;
    va_start(arguments, request);
    ResourceControl* control = va_arg(arguments, ResourceControl*);
    va_end(arguments);
    if (_IOC_TYPE(request) != 'F' || fd != 99) return (int)syscall(SYS_ioctl, fd, request, control);
    unsigned long slice = *(uint64_t*)(uintptr_t)control->parameters;
    control->status = getenv("COTENANT_TEST_REFUSE") && slice != 2048 ? 0x1b : 0;
    printf("%lu %s\n", slice, control->status ? "refused" : "taken");
    return 0;
}
