// A driver that makes no green contexts, or launches nothing into their streams, and else is the one that it is linked
// with, and that COTENANT_TEST_DRIVER names. COTENANT_TEST_GREEN says which.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

typedef void* P;
typedef unsigned U;

static P driver;
__attribute__((constructor)) static void begin(void) {
    driver = dlopen(getenv("COTENANT_TEST_DRIVER"), RTLD_NOW | RTLD_LOCAL);
}

static int says(const char* what) {
    const char* told = getenv("COTENANT_TEST_GREEN");
    return told && strcmp(told, what) == 0;
}

int cuGreenCtxCreate(P* green, P description, int device, U flags) {
    if (says("no contexts")) return 801;
    return ((int (*)(P*, P, int, U))dlsym(driver, "cuGreenCtxCreate"))(green, description, device, flags);
}

int cuLaunchKernel(P function, U gx, U gy, U gz, U bx, U by, U bz, U shared, P stream, P* parameters, P* extra) {
    P context = 0, green = 0;
    if (says("no launches") && (unsigned long)stream > 2) {
        ((int (*)(P, P*, P*))dlsym(driver, "cuStreamGetCtx_v2"))(stream, &context, &green);
        if (green) return 912;
    }
    return ((int (*)(P, U, U, U, U, U, U, U, P, P*, P*))dlsym(driver, "cuLaunchKernel"))(
        function, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra);
}

// Only the stream of the configuration is of interest: its dimensions and its shared memory are before it.
struct Config {
    U before[7];
    P stream;
};
int cuLaunchKernelEx(const struct Config* config, P function, P* parameters, P* extra) {
    P context = 0, green = 0;
    if (says("no launches") && config && (unsigned long)config->stream > 2) {
        ((int (*)(P, P*, P*))dlsym(driver, "cuStreamGetCtx_v2"))(config->stream, &context, &green);
        if (green) return 912;
    }
    return ((int (*)(const struct Config*, P, P*, P*))dlsym(driver, "cuLaunchKernelEx"))(config, function, parameters,
                                                                                         extra);
}

int cuGetProcAddress(const char* name, P* function, int version, unsigned long flags);
int cuGetProcAddress_v2(const char* name, P* function, int version, unsigned long flags, P status);

static int swap(int result, P* function) {
    const struct {
        const char* name;
        P ours;
    } swapped[] = {{"cuGreenCtxCreate", (P)cuGreenCtxCreate},
                   {"cuLaunchKernel", (P)cuLaunchKernel},
                   {"cuLaunchKernelEx", (P)cuLaunchKernelEx},
                   {"cuGetProcAddress", (P)cuGetProcAddress},
                   {"cuGetProcAddress_v2", (P)cuGetProcAddress_v2}};
    for (int i = 0; i < 5; ++i)
        if (result == 0 && *function == dlsym(driver, swapped[i].name)) *function = swapped[i].ours;
    return result;
}

int cuGetProcAddress(const char* name, P* function, int version, unsigned long flags) {
    return swap(((int (*)(const char*, P*, int, unsigned long))dlsym(driver, "cuGetProcAddress"))(name, function,
                                                                                                  version, flags),
                function);
}

int cuGetProcAddress_v2(const char* name, P* function, int version, unsigned long flags, P status) {
    return swap(((int (*)(const char*, P*, int, unsigned long, P))dlsym(driver, "cuGetProcAddress_v2"))(
                    name, function, version, flags, status),
                function);
}
