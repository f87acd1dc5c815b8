// `host_memory MEMBERSHIP GROUPS MACHINE [no descriptors]`: what there is for a process in these groups, whether that
// is known, and what is left of it.
#include "tenant/memory/host_memory.h"

#include <sys/resource.h>

#include <cinttypes>
#include <cstdio>
#include <cstring>

int main(int count, char** arguments) {
    if (count > 4 && !strcmp(arguments[4], "no descriptors")) {
        rlimit none{0, 0};
        if (setrlimit(RLIMIT_NOFILE, &none) != 0) return 1;
    }
    tenant::HostMemory memory = tenant::host_memory(arguments[1], arguments[2], arguments[3]);
    printf("%" PRIu64 " %d %" PRIu64 "\n", memory.bytes, memory.is_known, memory.left);
    return 0;
}
