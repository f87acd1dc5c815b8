// `host_memory MEMBERSHIP GROUPS [no descriptors]`: what there is for a process in these groups, and whether that is
// known.
#include "tenant/memory/host_memory.h"

#include <sys/resource.h>

#include <cinttypes>
#include <cstdio>
#include <cstring>

int main(int count, char** arguments) {
    if (count > 3 && !strcmp(arguments[3], "no descriptors")) {
        rlimit none{0, 0};
        if (setrlimit(RLIMIT_NOFILE, &none) != 0) return 1;
    }
    tenant::HostMemory memory = tenant::host_memory(arguments[1], arguments[2]);
    printf("%" PRIu64 " %d\n", memory.bytes, memory.is_known);
    return 0;
}
