#include "shim/driver.h"

#include <dlfcn.h>

#include <algorithm>
#include <utility>

#include "tenant/identity_file.h"
#include "tenant/lazy.h"
#include "tenant/notice.h"

namespace shim {

const char* const names[Index::count] = {
#include "forward_names.inc"
};
void* real[Index::count];

namespace {

// (address, number), sorted by address.
std::pair<void*, int> by_address[Index::count];
int known_addresses = 0;

CUresult not_supported() { return CUDA_ERROR_NOT_SUPPORTED; }

// Where `cotenant run` did not say which file the driver is.
constexpr const char* kUsualPlaces[] = {
    "/usr/local/nvidia/lib64/libcuda.so.1",
    "/usr/lib/" COTENANT_MACHINE "-linux-gnu/libcuda.so.1",
    "/usr/lib/" COTENANT_MACHINE "-linux-gnu/nvidia/libcuda.so.1",  // Jetson, from JetPack 6 on
    "/usr/lib/" COTENANT_MACHINE "-linux-gnu/tegra/libcuda.so.1",   // and before
    "/usr/lib64/libcuda.so.1",
    "/usr/lib/wsl/lib/libcuda.so.1",
};

void* driver_library() {
    const char* told = tenant::setting("COTENANT_DRIVER");
    if (told && *told) return open_past_us(told, RTLD_NOW | RTLD_LOCAL);
    for (const char* place : kUsualPlaces)
        if (void* handle = open_past_us(place, RTLD_NOW | RTLD_LOCAL)) return handle;
    return nullptr;
}

}  // namespace

CUresult no_device() { return CUDA_ERROR_NO_DEVICE; }

Dlopen real_dlopen() {
    static tenant::Lazy<Dlopen> found;
    return found.get([] { return reinterpret_cast<Dlopen>(dlsym(RTLD_NEXT, "dlopen")); });
}

void* open_past_us(const char* path, int flags) { return real_dlopen() ? real_dlopen()(path, flags) : nullptr; }

bool open_driver() {
    void* library = driver_library();
    if (!library) tenant::notice_once("the NVIDIA driver cannot be opened: %s", dlerror());
    known_addresses = 0;
    for (int i = 0; i < Index::count; ++i) {
        void* found = library ? dlsym(library, names[i]) : nullptr;
        if (found) by_address[known_addresses++] = {found, i};
        real[i] = found ? found : reinterpret_cast<void*>(library ? not_supported : no_device);
    }
    std::sort(by_address, by_address + known_addresses);
    return library != nullptr;
}

bool driver_has(int index) { return real[index] != reinterpret_cast<void*>(not_supported); }

int index_of(void* address) {
    auto* end = by_address + known_addresses;
    auto* found = std::lower_bound(by_address, end, std::make_pair(address, -1));
    return found != end && found->first == address ? found->second : -1;
}

}  // namespace shim
