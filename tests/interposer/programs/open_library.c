// open_library LIBRARY DRIVER COUNT FLAGS [deepbind]: opens the library and has it launch kernels.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) {
    if (argc < 5) return 2;
    void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL | (argc > 5 ? RTLD_DEEPBIND : 0));
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    int (*run)(const char*, int, uint64_t) = (int (*)(const char*, int, uint64_t))dlsym(library, "run_kernels");
    return run(argv[2], atoi(argv[3]), strtoull(argv[4], NULL, 10)) ? 1 : 0;
}
