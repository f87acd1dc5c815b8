#include "shim/nvml_hooks.h"

#include <dlfcn.h>
#include <string.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "shim/driver.h"
#include "tenant/identity_file.h"
#include "tenant/lazy.h"
#include "tenant/memory/nvml.h"
#include "tenant/memory/reported_memory.h"

namespace shim {

namespace {

constexpr char kNvml[] = "libnvidia-ml.so.1";
constexpr int kSuccess = 0, kFunctionNotFound = 13;

// As nvml.h has them.
struct Memory {
    unsigned long long total, free, used;
};
struct MemoryV2 {
    unsigned int version;
    unsigned long long total, reserved, free, used;
};

void* nvml_function(const char* name) {
    // By its SONAME, which the stand-in does not have: what is loaded is the program's own NVML.
    static tenant::Lazy<void*> found;
    void* library = found.get([] { return open_past_us(kNvml, RTLD_LAZY | RTLD_LOCAL); });
    return library ? dlsym(library, name) : nullptr;
}

bool limit(void* device, tenant::ReportedMemory* answer) {
    using GetUuid = int (*)(void*, char*, unsigned int);
    auto get_uuid = reinterpret_cast<GetUuid>(nvml_function("nvmlDeviceGetUUID"));
    char text[96];
    uint8_t uuid[16];
    return get_uuid && get_uuid(device, text, sizeof text) == kSuccess && tenant::uuid_from_text(text, uuid) &&
           tenant::limit_report(uuid, answer);
}

}  // namespace

bool is_nvml_name(const char* path) {
    constexpr char kName[] = "libnvidia-ml.so";
    const char* base = strrchr(path, '/');
    base = base ? base + 1 : path;
    return strncmp(base, kName, sizeof kName - 1) == 0 &&
           (base[sizeof kName - 1] == '\0' || base[sizeof kName - 1] == '.');
}

const char* nvml_stand_in(const char* path, const char* own_path) {
    // Never freed: a thread may be about to open it.
    static tenant::Lazy<const char*> found;
    const char* limited = tenant::setting("COTENANT_MEMORY");
    const char* slash = own_path ? strrchr(own_path, '/') : nullptr;
    if (!limited || !*limited || !slash) return path;
    const char* stand_in = found.get([&]() -> const char* {
        char* text = nullptr;
        int length = asprintf(&text, "%.*s/libcotenant-nvml.so.1", static_cast<int>(slash - own_path), own_path);
        return length > 0 ? text : nullptr;
    });
    if (!stand_in) return path;
    // The file that the program names, so that the one the stand-in needs is loaded already.
    open_past_us(path, RTLD_LAZY | RTLD_LOCAL);
    return open_past_us(stand_in, RTLD_LAZY | RTLD_LOCAL) ? stand_in : path;
}

}  // namespace shim

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int nvmlDeviceGetMemoryInfo(void* device, shim::Memory* out) {
    auto real = reinterpret_cast<int (*)(void*, shim::Memory*)>(shim::nvml_function("nvmlDeviceGetMemoryInfo"));
    int result = real ? real(device, out) : shim::kFunctionNotFound;
    if (result != shim::kSuccess) return result;
    tenant::ReportedMemory answer{out->total, out->free, out->used};
    if (shim::limit(device, &answer)) *out = {answer.total, answer.free, std::min(answer.used, answer.total)};
    return result;
}

EXPORT int nvmlDeviceGetMemoryInfo_v2(void* device, shim::MemoryV2* out) {
    auto real = reinterpret_cast<int (*)(void*, shim::MemoryV2*)>(shim::nvml_function("nvmlDeviceGetMemoryInfo_v2"));
    int result = real ? real(device, out) : shim::kFunctionNotFound;
    if (result != shim::kSuccess) return result;
    tenant::ReportedMemory answer{out->total, out->free, out->used};
    if (shim::limit(device, &answer))
        *out = {out->version, answer.total, 0, answer.free, std::min(answer.used, answer.total)};
    return result;
}
