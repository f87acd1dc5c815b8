#include "shim/resolve.h"

#include <dlfcn.h>
#include <string.h>

#include <atomic>

#include "shim/hooks.h"
#include "shim/missing_symbols.h"
#include "shim/nvml_hooks.h"
#include "tenant/fork.h"
#include "tenant/locked.h"

namespace shim {

namespace {

// The driver is opened at the first CUDA call, never before.
std::atomic<bool> opened{false};
tenant::Lock opening_lock{tenant::Rank::opening_driver};
thread_local bool opening_here __attribute__((tls_model("initial-exec"))) = false;

// A child forked while another thread was opening the driver starts over.
void reset_in_child() { opening_lock.renew(); }
using tenant::AtFork;
LISTEN(AtFork, tenant::ForkStep::driver, reset_in_child)

const char* own_path() {
    Dl_info about;
    return dladdr(reinterpret_cast<void*>(&own_path), &about) ? about.dli_fname : nullptr;
}

void fill_slots() {
    if (open_driver()) {
        prepare_hooks();
        hide_missing_symbols(own_path());
    }
    // Once a slot leads on, other threads go through it: to the hook from the first call on.
    for (int i = 0; i < Index::count; ++i)
        __atomic_store_n(&shim_slots[i], hook_for(i) ? hook_for(i) : real[i], __ATOMIC_RELEASE);
}

void open_once() {
    tenant::mind_forks();
    tenant::Locked locked(opening_lock);
    if (opened.load()) return;
    opening_here = true;
    fill_slots();
    opening_here = false;
    opened.store(true);
}

bool is_driver_name(const char* path) {
    constexpr char kName[] = "libcuda.so";
    const char* base = strrchr(path, '/');
    base = base ? base + 1 : path;
    if (strncmp(base, kName, sizeof kName - 1) != 0) return false;
    char next = base[sizeof kName - 1];
    return next == '\0' || next == '.';
}

}  // namespace

}  // namespace shim

// Called by the trampoline of a function on its first use: where shall it go?
extern "C" __attribute__((visibility("hidden"))) void* shim_resolve(int index) {
    using namespace shim;
    // The driver's own start-up code came back to us before there is a driver to forward to.
    if (opening_here) return reinterpret_cast<void*>(no_device);
    if (!opened.load(std::memory_order_acquire)) open_once();
    return __atomic_load_n(&shim_slots[index], __ATOMIC_ACQUIRE);
}

extern "C" {
__attribute__((visibility("hidden"))) void* shim_real_dlopen = nullptr;
}

// A program that names the driver's file gets us, as one that names its SONAME does. All else is left as it is; entry/
// jumps on to the C library's dlopen with the caller's return address, which decides whose RUNPATH is searched.
extern "C" __attribute__((visibility("hidden"))) const char* shim_redirect(const char* path) {
    // Several threads may be here at once, and all have the same to store.
    if (!__atomic_load_n(&shim_real_dlopen, __ATOMIC_RELAXED))
        __atomic_store_n(&shim_real_dlopen, reinterpret_cast<void*>(shim::real_dlopen()), __ATOMIC_RELAXED);
    if (path && shim::is_nvml_name(path)) return shim::nvml_stand_in(path, shim::own_path());
    if (!path || !shim::is_driver_name(path)) return path;
    const char* own = shim::own_path();
    return own ? own : path;
}
