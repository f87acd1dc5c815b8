#include "tenant/memory/nvml.h"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>

#include "tenant/identity_file.h"

namespace tenant {

namespace {

// NVML's header is no part of CUDA's: the little that is used of it.
constexpr int kSuccess = 0;
constexpr uint64_t kNotAvailable = UINT64_MAX;
struct ProcessInfo {
    unsigned int pid;
    unsigned long long bytes;
    unsigned int gpu_instance, compute_instance;
};

struct Nvml {
    int (*init)();
    int (*handle_by_uuid)(const char*, void**);
    int (*processes)(void*, unsigned int*, ProcessInfo*);
};

void* open_nvml() {
    const char* driver = setting("COTENANT_DRIVER");
    const char* slash = driver ? strrchr(driver, '/') : nullptr;
    std::unique_ptr<char[]> beside(slash ? new (std::nothrow) char[PATH_MAX] : nullptr);
    if (beside &&
        snprintf(beside.get(), PATH_MAX, "%.*s/libnvidia-ml.so.1", static_cast<int>(slash - driver), driver) < PATH_MAX)
        if (void* library = dlopen(beside.get(), RTLD_LAZY | RTLD_LOCAL)) return library;
    return dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
}

Nvml find_nvml() {
    void* library = open_nvml();
    if (!library) return {};
    return {reinterpret_cast<int (*)()>(dlsym(library, "nvmlInit_v2")),
            reinterpret_cast<int (*)(const char*, void**)>(dlsym(library, "nvmlDeviceGetHandleByUUID")),
            reinterpret_cast<int (*)(void*, unsigned int*, ProcessInfo*)>(
                dlsym(library, "nvmlDeviceGetComputeRunningProcesses_v3"))};
}

// Null: none. Never closed: it is the process's as much as ours. Two threads may both find it, and no lock is held
// meanwhile, which a child of the process would find taken.
const Nvml* nvml() {
    static std::atomic<const Nvml*> known{nullptr};
    const Nvml* library = known.load();
    if (!library) {
        auto* found = new (std::nothrow) Nvml(find_nvml());
        if (!found) return nullptr;
        if (known.compare_exchange_strong(library, found))
            library = found;
        else
            delete found;
    }
    return library->init && library->handle_by_uuid && library->processes ? library : nullptr;
}

bool is_started(const Nvml& library) {
    static std::atomic<int> started_by{0};
    int self = getpid();
    if (started_by.load() == self) return true;
    if (library.init() != kSuccess) return false;
    started_by.store(self);
    return true;
}

}  // namespace

std::optional<uint64_t> nvml_bytes_of_this_process(const Uuid& gpu) {
    const Nvml* library = nvml();
    if (!library || !is_started(*library)) return {};
    void* device = nullptr;
    char name[48];
    uuid_text(gpu.data(), "GPU-", name);
    if (library->handle_by_uuid(name, &device) != kSuccess) {
        uuid_text(gpu.data(), "MIG-", name);
        if (library->handle_by_uuid(name, &device) != kSuccess) return {};
    }
    unsigned int count = 256;
    std::unique_ptr<ProcessInfo[]> found(new (std::nothrow) ProcessInfo[count]);
    if (!found || library->processes(device, &count, found.get()) != kSuccess) return {};
    for (unsigned int i = 0; i < count; ++i)
        if (found[i].pid == static_cast<unsigned int>(getpid()) && found[i].bytes != kNotAvailable)
            return found[i].bytes;
    return {};
}

void uuid_text(const uint8_t u[16], const char* prefix, char out[48]) {
    snprintf(out, 48, "%s%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", prefix, u[0], u[1],
             u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
}

bool uuid_from_text(const char* text, uint8_t out[16]) {
    const char* at = strchr(text, '-');  // behind GPU or MIG
    for (int i = 0; at && i < 16; ++i) {
        at += *at == '-';
        unsigned int byte = 0;
        if (sscanf(at, "%2x", &byte) != 1) return false;
        out[i] = static_cast<uint8_t>(byte);
        at += 2;
    }
    return at && *at == '\0';
}

}  // namespace tenant
