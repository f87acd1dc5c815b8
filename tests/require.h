// For test programs: what must hold, or the program ends with status 1 and says which line does not.
#pragma once

#include <unistd.h>

#include <cstdio>

// _exit: a forked child shares its parent's buffers.
#define REQUIRE(condition)                                                                \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
            _exit(1);                                                                     \
        }                                                                                 \
    } while (0)
