// A job of the soak. It does what stdin says, one word and its numbers a line, and answers each line with one of its
// own. It opens the driver as programs do, starts in milliseconds, and ends in every way a process can.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef int (*Call)();  // the driver's functions take what they take; each is called with its own types below

#define CALLS(X)                   \
    X(cuInit)                      \
    X(cuDevicePrimaryCtxRetain)    \
    X(cuCtxSetCurrent)             \
    X(cuCtxSynchronize)            \
    X(cuModuleLoadData)            \
    X(cuModuleGetFunction)         \
    X(cuLaunchKernel)              \
    X(cuMemAlloc_v2)               \
    X(cuMemFree_v2)                \
    X(cuMemsetD32_v2)              \
    X(cuMemcpyDtoH_v2)             \
    X(cuMemGetInfo_v2)             \
    X(cuStreamCreate)              \
    X(cuStreamSynchronize)         \
    X(cuStreamDestroy_v2)          \
    X(cuStreamBeginCapture_v2)     \
    X(cuStreamEndCapture)          \
    X(cuGraphInstantiateWithFlags) \
    X(cuGraphLaunch)               \
    X(cuGraphExecDestroy)          \
    X(cuGraphDestroy)

#define DECLARE(name) static Call name;
CALLS(DECLARE)

#define MOST_PIECES 64
typedef struct {
    uint64_t address, words;
    uint32_t value;
} Piece;

static Piece pieces[MOST_PIECES];
static int count;
static uint32_t last_value;
static void *context, *spin;

static int opened(void) {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW);
    int good = driver != NULL;
#define FIND(name) good = good && (name = (Call)dlsym(driver, #name));
    CALLS(FIND)
    return good;
}

static int launch(void* stream, uint64_t us) {
    void* parameters[] = {&us};
    return cuLaunchKernel(spin, 64u, 1u, 1u, 64u, 1u, 1u, 0u, stream, parameters, NULL);
}

static int launches(void* stream, int kernels, uint64_t us) {
    int result = 0;
    for (int i = 0; !result && i < kernels; ++i) result = launch(stream, us);
    return result;
}

static int use_gpu(void) {
    static const char text[] = "softgpu 1\nkernel spin time=@0us params=u64\n";
    void* module = NULL;
    if (spin) return 0;
    int result = cuInit(0u);
    if (!result) result = cuDevicePrimaryCtxRetain(&context, 0);
    if (!result) result = cuCtxSetCurrent(context);
    if (!result) result = cuModuleLoadData(&module, text);
    if (!result) result = cuModuleGetFunction(&spin, module, "spin");
    return result;
}

static int add(uint64_t bytes) {
    if (count == MOST_PIECES) return 0;
    Piece piece = {0, bytes / 4, ++last_value};
    int result = cuMemAlloc_v2(&piece.address, (size_t)bytes);
    if (result) return result == 2 ? 0 : result;  // out of memory is an answer, too
    pieces[count++] = piece;
    return cuMemsetD32_v2(piece.address, piece.value, (size_t)piece.words);
}

static int give_all(void) {
    int result = 0;
    while (!result && count) result = cuMemFree_v2(pieces[--count].address);
    return result;
}

// 0: every piece holds what was written there.
static int check(void) {
    int result = 0;
    for (int i = 0; !result && i < count; ++i) {
        uint32_t* host = malloc(pieces[i].words * 4);
        result = cuMemcpyDtoH_v2(host, pieces[i].address, (size_t)pieces[i].words * 4);
        for (uint64_t word = 0; !result && word < pieces[i].words; ++word)
            if (host[word] != pieces[i].value) result = -1;
        free(host);
    }
    return result;
}

static int streams(int number) {
    int result = 0;
    for (int i = 0; !result && i < number; ++i) {
        void* stream = NULL;
        result = cuStreamCreate(&stream, 1u);
        if (!result) result = launch(stream, 20);
        if (!result && i % 2) result = cuStreamSynchronize(stream);
        if (stream) cuStreamDestroy_v2(stream);
    }
    return result ? result : cuCtxSynchronize();
}

static int graph(int kernels) {
    void *stream = NULL, *made = NULL, *exec = NULL;
    int result = cuStreamCreate(&stream, 1u);
    if (!result) result = cuStreamBeginCapture_v2(stream, 2);
    if (!result) result = launches(stream, kernels, 50);
    if (!result) result = cuStreamEndCapture(stream, &made);
    if (!result) result = cuGraphInstantiateWithFlags(&exec, made, 0ULL);
    if (!result) result = cuGraphLaunch(exec, stream);
    if (!result) result = cuStreamSynchronize(stream);
    if (exec) cuGraphExecDestroy(exec);
    if (made) cuGraphDestroy(made);
    if (stream) cuStreamDestroy_v2(stream);
    return result;
}

// A child without CUDA that ends at once, or another job of its own; both as PyTorch's data loaders and shells do it.
static int have_child(const char* program, int is_job) {
    pid_t child = fork();
    if (child == 0) {
        if (is_job) execl(program, program, "once", (char*)NULL);
        _exit(0);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child) return -2;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -3;
}

static void* launch_for_ever(void* unused) {
    cuCtxSetCurrent(context);
    for (;;) launch(NULL, 10);
    return unused;
}

static void crash(const char* way) {
    launches(NULL, 50, 200);
    if (strcmp(way, "segv") == 0) *(volatile int*)NULL = 0;
    if (strcmp(way, "abort") == 0) abort();
    if (strcmp(way, "_exit") == 0) _exit(7);
    pthread_t thread;
    if (pthread_create(&thread, NULL, launch_for_ever, NULL) == 0) usleep(2000);
    exit(7);
}

static int obey(const char* program, const char* line) {
    char what[16] = "", way[16] = "";
    unsigned long long number = 0, us = 0;
    sscanf(line, "%15s %llu %llu", what, &number, &us);
    if (strcmp(what, "fork") == 0) return have_child(program, number != 0);
    int result = use_gpu();
    if (result) return result;
    if (strcmp(what, "step") == 0) {
        result = launches(NULL, (int)number, us);
        return result ? result : cuCtxSynchronize();
    }
    if (strcmp(what, "queue") == 0) return launches(NULL, (int)number, us);
    if (strcmp(what, "add") == 0) return add(number);
    if (strcmp(what, "give") == 0) return give_all();
    if (strcmp(what, "check") == 0) return check();
    if (strcmp(what, "streams") == 0) return streams((int)number);
    if (strcmp(what, "graph") == 0) return graph((int)number);
    if (strcmp(what, "crash") == 0 && sscanf(line, "%*s %15s", way) == 1) crash(way);
    if (strcmp(what, "free") == 0) {
        size_t free_bytes = 0, total = 0;
        result = cuMemGetInfo_v2(&free_bytes, &total);
        if (!result) printf("%zu ", free_bytes);
        return result;
    }
    return -4;
}

int main(int arguments, char** words) {
    if (!opened()) return 1;
    if (arguments > 1) return use_gpu() || launches(NULL, 3, 50) || cuCtxSynchronize();
    setvbuf(stdout, NULL, _IOLBF, 0);
    char line[128];
    while (fgets(line, sizeof line, stdin)) {
        int result = obey(words[0], line);
        if (result)
            printf("error %d\n", result);
        else
            puts("done");
    }
    return 0;
}
