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

// Null: none. Never closed: it is the process's as much as ours.
const Nvml* nvml() {
    static Nvml found{};
    static const bool usable = [] {
        void* library = open_nvml();
        if (!library) return false;
        found.init = reinterpret_cast<int (*)()>(dlsym(library, "nvmlInit_v2"));
        found.handle_by_uuid =
            reinterpret_cast<int (*)(const char*, void**)>(dlsym(library, "nvmlDeviceGetHandleByUUID"));
        found.processes = reinterpret_cast<int (*)(void*, unsigned int*, ProcessInfo*)>(
            dlsym(library, "nvmlDeviceGetComputeRunningProcesses_v3"));
        return found.init && found.handle_by_uuid && found.processes;
    }();
    return usable ? &found : nullptr;
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

bool nvml_bytes_of_this_process(const uint8_t uuid[16], uint64_t* bytes) {
    const Nvml* library = nvml();
    if (!library || !is_started(*library)) return false;
    void* device = nullptr;
    char name[48];
    uuid_text(uuid, "GPU-", name);
    if (library->handle_by_uuid(name, &device) != kSuccess) {
        uuid_text(uuid, "MIG-", name);
        if (library->handle_by_uuid(name, &device) != kSuccess) return false;
    }
    unsigned int count = 256;
    std::unique_ptr<ProcessInfo[]> found(new (std::nothrow) ProcessInfo[count]);
    if (!found || library->processes(device, &count, found.get()) != kSuccess) return false;
    for (unsigned int i = 0; i < count; ++i) {
        if (found[i].pid != static_cast<unsigned int>(getpid()) || found[i].bytes == kNotAvailable) continue;
        *bytes = found[i].bytes;
        return true;
    }
    return false;
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
