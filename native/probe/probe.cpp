// Launches empty kernels through whatever libcuda.so.1 this process gets and says what that costs, as one JSON
// line on stdout. Behind the interposer it launches in turns through it and past it, so that the difference is measured
// in one process.
//
//   cotenant-probe [--batches N] [--stream legacy|own|per-thread] [--stops]
//
// With --stops it stops itself before and after each batch, for a tracer that counts instructions (bench/launch).
#include <cuda.h>
#include <dlfcn.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr int kBatch = 256;  // well under what the driver queues before a launch has to wait

constexpr char kPtx[] =
    ".version 6.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry probe()\n{\n    ret;\n}\n";
constexpr char kSoftwareModule[] = "softgpu 1\nkernel probe time=1us sms=1\n";

[[noreturn]] void fail(const char* what, int result) {
    fprintf(stderr, "cotenant-probe: %s failed with CUDA error %d\n", what, result);
    exit(1);
}

void* driver_library() {
    void* handle = dlopen("libcuda.so.1", RTLD_NOW);
    if (!handle) {
        fprintf(stderr, "cotenant-probe: %s\n", dlerror());
        exit(1);
    }
    return handle;
}

template <class Function>
Function* driver_function(const char* name) {
    static void* library = driver_library();
    void* found = dlsym(library, name);
    if (!found) fail(name, 500);
    return reinterpret_cast<Function*>(found);
}
#define DRIVER(name) driver_function<decltype(name)>(#name)

double now_ns() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e9 + now.tv_nsec;
}

using Launch = decltype(cuLaunchKernel);

double median(std::vector<double> values) {
    std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
    return values[values.size() / 2];
}

// One end of the 95 % interval of the median, by order statistics: no assumption about the noise's shape.
double median_bound(std::vector<double> values, int side) {
    std::sort(values.begin(), values.end());
    double place = values.size() / 2.0 + side * 0.98 * std::sqrt(static_cast<double>(values.size()));
    return values[static_cast<size_t>(std::clamp(place, 0.0, values.size() - 1.0))];
}

int launch_batch(Launch* launch, CUfunction kernel, CUstream stream) {
    int result = 0;
    for (int i = 0; i < kBatch; ++i) result |= launch(kernel, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr);
    return result;
}

}  // namespace

int main(int argc, char** argv) {
    int batches = 40;
    std::string stream_kind = "own";
    bool stops = false;
    for (int i = 1; i < argc; ++i) {
        if (!strcmp(argv[i], "--batches") && i + 1 < argc)
            batches = std::max(1, atoi(argv[++i]));
        else if (!strcmp(argv[i], "--stream") && i + 1 < argc)
            stream_kind = argv[++i];
        else if (!strcmp(argv[i], "--stops"))
            stops = true;
        else {
            fprintf(stderr, "usage: cotenant-probe [--batches N] [--stream legacy|own|per-thread] [--stops]\n");
            return 2;
        }
    }
    auto check = [](const char* what, CUresult result) {
        if (result != CUDA_SUCCESS) fail(what, result);
    };
    check("cuInit", DRIVER(cuInit)(0));
    int version = 0;
    check("cuDriverGetVersion", DRIVER(cuDriverGetVersion)(&version));
    CUdevice device;
    check("cuDeviceGet", DRIVER(cuDeviceGet)(&device, 0));
    char name[128] = "";
    check("cuDeviceGetName", DRIVER(cuDeviceGetName)(name, sizeof name, device));
    CUuuid uuid;
    check("cuDeviceGetUuid", DRIVER(cuDeviceGetUuid)(&uuid, device));
    CUcontext context;
    check("cuDevicePrimaryCtxRetain", DRIVER(cuDevicePrimaryCtxRetain)(&context, device));
    check("cuCtxSetCurrent", DRIVER(cuCtxSetCurrent)(context));
    CUmodule module;
    CUresult loaded = DRIVER(cuModuleLoadData)(&module, kPtx);
    if (loaded == CUDA_ERROR_NO_BINARY_FOR_GPU) loaded = DRIVER(cuModuleLoadData)(&module, kSoftwareModule);
    check("cuModuleLoadData", loaded);
    CUfunction kernel;
    check("cuModuleGetFunction", DRIVER(cuModuleGetFunction)(&kernel, module, "probe"));
    CUstream stream = nullptr;
    if (stream_kind == "own") check("cuStreamCreate", DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    if (stream_kind == "per-thread") stream = CU_STREAM_PER_THREAD;

    Launch* through = DRIVER(cuLaunchKernel);
    auto* behind = reinterpret_cast<void* (*)(const char*)>(dlsym(RTLD_DEFAULT, "cotenant_driver_function"));
    Launch* direct = behind ? reinterpret_cast<Launch*>(behind("cuLaunchKernel")) : nullptr;

    std::vector<double> through_ns, direct_ns, added_ns;
    for (int batch = -3; batch < batches; ++batch) {
        double times[2] = {};
        for (int turn = 0; turn < (direct ? 2 : 1); ++turn) {
            bool past = direct && (turn + batch) % 2 != 0;
            if (stops && batch >= 0) raise(SIGSTOP);
            double start = now_ns();
            int result = launch_batch(past ? direct : through, kernel, stream);
            times[past] = (now_ns() - start) / kBatch;
            if (stops && batch >= 0) raise(SIGSTOP);
            if (result) fail("cuLaunchKernel", result);
            check("cuCtxSynchronize", DRIVER(cuCtxSynchronize)());
        }
        if (batch < 0) continue;
        through_ns.push_back(times[0]);
        direct_ns.push_back(times[1]);
        added_ns.push_back(times[0] - times[1]);
    }
    printf("{\"device\": \"%s\", \"uuid\": \"GPU-", name);
    for (int i = 0; i < 16; ++i)
        printf("%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", static_cast<unsigned char>(uuid.bytes[i]));
    printf(
        "\", \"driver_version\": %d, \"interposed\": %s, \"stream\": \"%s\", \"launches\": %d, \"ns_per_launch\": %.1f",
        version, direct ? "true" : "false", stream_kind.c_str(), batches * kBatch, median(through_ns));
    if (direct)
        printf(", \"ns_direct\": %.1f, \"ns_added\": %.1f, \"ns_added_low\": %.1f, \"ns_added_high\": %.1f",
               median(direct_ns), median(added_ns), median_bound(added_ns, -1), median_bound(added_ns, +1));
    if (auto* slice_of = reinterpret_cast<void (*)(uint32_t*)>(dlsym(RTLD_DEFAULT, "cotenant_time_slice"))) {
        uint32_t slice[3] = {};
        slice_of(slice);
        printf(", \"time_slice\": {\"asked_us\": %u, \"granted_us\": %u, \"refused\": %s}", slice[0], slice[1],
               slice[2] ? "true" : "false");
    }
    printf("}\n");
    return 0;
}
