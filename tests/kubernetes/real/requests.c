// The demo's two jobs as pods have them, with its kernels: `requests serve FOLDER` and `requests train FOLDER`.
//
// serve   every 10 ms a request of 20 kernels of 200 us; a line a request in FOLDER/served: when it ended (monotonic
//         seconds), and how many milliseconds it took
// train   while FOLDER/go exists, steps of 40 kernels of 500 us; a line a step in FOLDER/NAME, NAME the third word
//
// Both end when FOLDER/stop exists.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef int (*Call)();
static const char module_text[] = "softgpu 1\nkernel spin time=@0us params=u64 sms=all\n";
static Call launch, synchronize;
static void *spin, *stream;
static char path[512];

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + at.tv_nsec / 1e9;
}

static int exists(const char* folder, const char* name) {
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

static int burst(int kernels, unsigned long long us) {
    void* parameters[] = {&us};
    int failed = 0;
    for (int i = 0; i < kernels && !failed; ++i) failed = launch(spin, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
    if (!failed) failed = synchronize(stream);
    if (failed) printf("CUDA error %d\n", failed);
    return !failed;
}

int main(int count, char** words) {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver || count < 3) return 2;
#define FOUND(name) ((Call)dlsym(driver, name))
    launch = FOUND("cuLaunchKernel"), synchronize = FOUND("cuStreamSynchronize");
    int device = 0;
    void *context = NULL, *module = NULL;
    if (FOUND("cuInit")(0) || FOUND("cuDeviceGet")(&device, 0) || FOUND("cuDevicePrimaryCtxRetain")(&context, device) ||
        FOUND("cuCtxSetCurrent")(context) || FOUND("cuModuleLoadData")(&module, module_text) ||
        FOUND("cuModuleGetFunction")(&spin, module, "spin") || FOUND("cuStreamCreate")(&stream, 1))
        return 3;
    int is_serving = strcmp(words[1], "serve") == 0;
    snprintf(path, sizeof path, "%s/%s", words[2], is_serving ? "served" : words[3]);
    FILE* log = fopen(path, "a");
    if (!log) return 4;
    setvbuf(log, NULL, _IOLBF, 0);
    while (!exists(words[2], "stop")) {
        struct timespec pause = {0, 10 * 1000 * 1000};
        if (is_serving || !exists(words[2], "go")) nanosleep(&pause, NULL);
        if (!is_serving && !exists(words[2], "go")) continue;
        double begin = now();
        if (!burst(is_serving ? 20 : 40, is_serving ? 200 : 500)) return 5;
        double end = now();
        fprintf(log, "%.6f %.3f\n", end, 1000 * (end - begin));
    }
    return 0;
}
