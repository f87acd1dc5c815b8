// A job on the software GPU that does what it is told on stdin, a line each, and answers each with a line:
//
//   start US    launches a kernel of this length on half of the SMs      the CUresult
//   timed US    the same, and waits for it                               its length in modelled microseconds, or
//   -CUresult sync        waits for everything                                     the CUresult mps         whether
//   contexts are shared by MPS                       0 or 1 handler     lets SIGTERM print "caught" from now on ok
//   joining    ends itself by SIGTERM while a lane of it joins
//
// With JOB_HANDLER in its environment it does so from the beginning.
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char module_text[] = "softgpu 1\nkernel half time=@0us sms=4 params=u64\n";

static void* library;
static void* call(const char* name) {
    void* found = dlsym(library, name);
    if (!found) exit(3);
    return found;
}
#define CALL(name, ...) ((int (*)())call(#name))(__VA_ARGS__)

static void caught(int number) {
    (void)number;
    if (write(1, "caught\n", 7) < 0) _exit(4);
}

struct work {
    void *context, *kernel, **parameters;
};

static void* launch_in_a_lane(void* given) {
    struct work* work = given;
    void* stream;
    int lane = CALL(cotenant_lane_open, "lane", 0, 1000, 0, 0);
    if (lane <= 0 || CALL(cuCtxSetCurrent, work->context) || CALL(cuStreamCreate, &stream, 1)) exit(5);
    CALL(cotenant_lane_enter, lane);
    CALL(cuLaunchKernel, work->kernel, 1, 1, 1, 32, 1, 1, 0, stream, work->parameters, NULL);
    pause();
    return NULL;
}

static int threads(void) {
    int count = 0;
    DIR* folder = opendir("/proc/self/task");
    while (folder && readdir(folder)) ++count;
    if (folder) closedir(folder);
    return count;
}

int main(void) {
    void *context, *module, *kernel, *stream, *begin, *end;
    int device = 0, result = 0;
    if (getenv("JOB_HANDLER")) signal(SIGTERM, caught);
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) return 2;
    result = CALL(cuInit, 0);
    if (!result) result = CALL(cuDevicePrimaryCtxRetain, &context, device);
    if (!result) result = CALL(cuCtxSetCurrent, context);
    if (!result) result = CALL(cuModuleLoadData, &module, module_text);
    if (!result) result = CALL(cuModuleGetFunction, &kernel, module, "half");
    if (!result) result = CALL(cuStreamCreate, &stream, 1);
    if (!result) result = CALL(cuEventCreate, &begin, 0);
    if (!result) result = CALL(cuEventCreate, &end, 0);
    // It is a tenant from its first work on.
    unsigned long long length = 1;
    void* parameters[] = {&length};
    if (!result) result = CALL(cuLaunchKernel, kernel, 8, 1, 1, 1024, 1, 1, 0, stream, parameters, NULL);
    if (!result) result = CALL(cuStreamSynchronize, stream);
    printf("ready %d\n", result);
    fflush(stdout);
    char word[32];
    while (scanf("%31s", word) == 1) {
        if (!strcmp(word, "start") && scanf("%llu", &length) == 1) {
            printf("%d\n", CALL(cuLaunchKernel, kernel, 8, 1, 1, 1024, 1, 1, 0, stream, parameters, NULL));
        } else if (!strcmp(word, "timed") && scanf("%llu", &length) == 1) {
            float ms = 0;
            result = CALL(cuEventRecord, begin, stream);
            if (!result) result = CALL(cuLaunchKernel, kernel, 8, 1, 1, 1024, 1, 1, 0, stream, parameters, NULL);
            if (!result) result = CALL(cuEventRecord, end, stream);
            if (!result) result = CALL(cuStreamSynchronize, stream);
            if (!result) result = CALL(cuEventElapsedTime, &ms, begin, end);
            printf("%.0f\n", result ? -(double)result : ms * 1000.0);
        } else if (!strcmp(word, "sync")) {
            printf("%d\n", CALL(cuCtxSynchronize));
        } else if (!strcmp(word, "mps")) {
            int value = -1;
            CALL(cuDeviceGetAttribute, &value, 133, device);
            printf("%d\n", value);
        } else if (!strcmp(word, "joining")) {
            struct work work = {context, kernel, parameters};
            pthread_t thread;
            int before = threads();
            length = 1;
            if (pthread_create(&thread, NULL, launch_in_a_lane, &work)) return 6;
            while (threads() < before + 2) continue;  // its watcher has begun
            raise(SIGTERM);
        } else if (!strcmp(word, "handler")) {
            signal(SIGTERM, caught);
            printf("ok\n");
        } else if (!strcmp(word, "child")) {
            int status = 0;
            pid_t child = fork();
            struct sigaction action;
            if (child == 0) _exit(sigaction(SIGTERM, NULL, &action) || action.sa_handler != SIG_DFL);
            printf("%d\n", child < 0 || waitpid(child, &status, 0) != child ? -1 : status);
        }
        fflush(stdout);
    }
    return 0;
}
