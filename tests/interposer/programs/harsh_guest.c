// A guest that lives under hard conditions, each named by the first argument; "ran" says that it came to its end. With
// "stack" it says how much of its stack a thread has used, in bytes. Compiled with AT_LOAD it is a library that works
// in its constructor, while the loader's lock is held.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

typedef int (*Call)();
static void* driver;
static Call function(const char* name) { return (Call)dlsym(driver, name); }

static int launch(void) {
    return function("cuLaunchKernel")((void*)0, 1, 1, 1, 1, 1, 1, 0, (void*)0, (void*)0, (void*)0);
}

static int work(void) {
    int device = 0;
    void* context = 0;
    unsigned long long memory = 0;
    if (function("cuInit")(0) || function("cuDeviceGet")(&device, 0)) return 3;
    if (function("cuDevicePrimaryCtxRetain")(&context, device) || function("cuCtxSetCurrent")(context)) return 4;
    if (function("cuMemAlloc_v2")(&memory, (size_t)4096)) return 5;
    for (int i = 0; i < 50; ++i)
        if (function("cuMemsetD8Async")(memory, 0, (size_t)64, (void*)0)) return 6;
    if (function("cuCtxSynchronize")()) return 7;
    return function("cuMemFree_v2")(memory) ? 8 : 0;
}

#ifdef AT_LOAD
int failed_at_load;
__attribute__((constructor)) static void work_at_load(void) {
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    failed_at_load = driver ? work() : 2;
}
#endif
static int work_in_a_constructor(const char* library) {
    void* loaded = dlopen(library, RTLD_NOW);
    int* failed = loaded ? dlsym(loaded, "failed_at_load") : 0;
    return failed ? *failed : 15;
}

// The driver's threads are not in the child, so it waits for nothing: what it launches is never done.
static int in_a_bare_clone(void) {
    unsigned long long memory = 0;
    if (function("cuMemAlloc_v2")(&memory, (size_t)4096)) return 11;
    if (function("cuMemsetD8Async")(memory, 0, (size_t)64, (void*)0)) return 12;
    // A lock that a thread of the driver's holds now would stay locked in the child.
    if (function("cuCtxSynchronize")()) return 19;
    pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (!child) {
        alarm(60);
        for (int i = 0; i < 50; ++i) function("cuMemsetD8Async")(memory, 0, (size_t)64, (void*)0);
        exit(7);
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 7) return 13;
    return function("cuCtxSynchronize")() || function("cuMemFree_v2")(memory) ? 14 : 0;
}

// Where the interposer listens for importers of its memory, the program has a file of its own from now on.
static int file_at_our_number(void) {
    unsigned long long memory = 0;
    char handle[64];
    int ours = -1, file = open("/dev/null", O_RDWR);
    if (function("cuMemAlloc_v2")(&memory, (size_t)4096) || function("cuIpcGetMemHandle")(handle, memory)) return 15;
    for (int fd = 3, listens = 0; fd < 256; ++fd) {
        socklen_t bytes = sizeof listens;
        if (!getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) && listens) ours = fd;
    }
    if (ours < 0 || dup2(file, ours) != ours) return 16;
    pid_t child = fork();
    if (!child) _exit(fcntl(ours, F_GETFD) < 0);
    int status = 0;
    if (waitpid(child, &status, 0) != child || status) return 17;
    return function("cuMemFree_v2")(memory) ? 18 : 0;
}

enum { kStack = 1 << 20, kPaint = 0x5a };
static int failed_on_stack;
static void* on_a_painted_stack(void* context) {
    unsigned long long memory = 0, other = 0;
    void* stream = 0;
    int failed = function("cuCtxSetCurrent")(context) ? 1 : 0;
    // The first of each in this process.
    for (int i = 0; i < 3 && !failed; ++i) {
        if (function("cuMemAlloc_v2")(&memory, (size_t)(1 << 20))) failed = 2;
        if (function("cuMemsetD8Async")(memory, 0, (size_t)64, (void*)0)) failed = 3;
        if (function("cuStreamCreate")(&stream, 1)) failed = 4;
        if (function("cuMemAllocAsync")(&other, (size_t)4096, stream)) failed = 5;
        if (function("cuMemsetD8Async")(other, 0, (size_t)64, stream)) failed = 6;
        if (function("cuMemFreeAsync")(other, stream)) failed = 7;
        if (function("cuStreamSynchronize")(stream) || function("cuStreamDestroy_v2")(stream)) failed = 8;
        if (function("cuMemFree_v2")(memory)) failed = 9;
        function("cuMemAlloc_v2")(&memory, (size_t)1 << 60);  // fails, when all has been tried
    }
    failed_on_stack = failed;
    return 0;
}
static int stack_used(void) {
    void* context = 0;
    if (function("cuInit")(0) || function("cuDevicePrimaryCtxRetain")(&context, 0)) return 3;
    unsigned char* stack = aligned_alloc(4096, kStack);
    memset(stack, kPaint, kStack);
    pthread_attr_t own;
    pthread_t thread;
    pthread_attr_init(&own);
    if (pthread_attr_setstack(&own, stack, kStack)) return 4;
    if (pthread_create(&thread, &own, on_a_painted_stack, context) || pthread_join(thread, 0)) return 5;
    long unused = 0;
    while (stack[unused] == kPaint) ++unused;
    printf("%ld\n", kStack - unused);
    return failed_on_stack;
}

// The process's first launch is a thread's that is cancelled as soon as it makes a call of the system that allows it.
static void* cancelled(void* unused) {
    int before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    pthread_cancel(pthread_self());
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &before);
    launch();
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return unused;
}
static int cancelled_in_a_launch(void) {
    pthread_t thread;
    if (function("cuInit")(0)) return 3;
    if (pthread_create(&thread, 0, cancelled, 0) || pthread_join(thread, 0)) return 4;
    return launch() ? 5 : 0;
}

// Nothing can be read from it any more, or written into it without waiting.
static void put_a_pipe_at_stderr(int is_read) {
    int ends[2];
    if (pipe(ends)) _exit(20);
    if (is_read) {
        fcntl(ends[1], F_SETFL, O_NONBLOCK);
        while (write(ends[1], "a page", 6) > 0) continue;
        fcntl(ends[1], F_SETFL, 0);
    } else {
        close(ends[0]);
    }
    dup2(ends[1], 2);
}

int main(int count, char** words) {
    const char* harsh = count > 1 ? words[1] : "";
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return 2;
    if (!strcmp(harsh, "stack")) return stack_used();
    if (!strcmp(harsh, "cancelled")) exit(cancelled_in_a_launch());
    if (!strcmp(harsh, "no room in files")) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_FSIZE, &none);
    } else if (!strcmp(harsh, "small stacks")) {
        pthread_attr_t small;
        pthread_attr_init(&small);
        pthread_attr_setstacksize(&small, 16384);
        pthread_setattr_default_np(&small);
    } else if (!strcmp(harsh, "empty environment")) {
        clearenv();
    } else if (!strcmp(harsh, "stderr that nobody reads")) {
        put_a_pipe_at_stderr(0);
    } else if (!strcmp(harsh, "full stderr")) {
        put_a_pipe_at_stderr(1);
    } else if (strcmp(harsh, "bare clone") && strcmp(harsh, "constructor") && strcmp(harsh, "file at our number")) {
        return 2;
    }
    int failed = count > 2 ? work_in_a_constructor(words[2]) : work();
    if (!failed && !strcmp(harsh, "bare clone")) failed = in_a_bare_clone();
    if (!failed && !strcmp(harsh, "file at our number")) failed = file_at_our_number();
    sigset_t pending;
    sigpending(&pending);
    if (!failed && (sigismember(&pending, SIGPIPE) || sigismember(&pending, SIGXFSZ))) failed = 9;
    if (!failed && write(1, "ran\n", 4) != 4) failed = 10;  // to a pipe, which may have any size
    exit(failed);
}
