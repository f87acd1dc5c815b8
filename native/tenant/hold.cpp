#include "tenant/hold.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "tenant/context.h"
#include "tenant/detour_places.h"
#include "tenant/green_contexts.h"
#include "tenant/mps.h"
#include "tenant/settings.h"

namespace tenant {

namespace {

// What hold.ptx is on GPUs of a generation, from this one on. PTX alone would do for all, but then the driver has to
// load its compiler first, and the job's launch waits for that: 99 ms on an H200.
struct Code {
    int major, minor;
    const uint64_t* image;
};
#include "tenant/hold_code.inc"

// Read as the library is loaded: later, on a thread of ours, the program might be changing its environment.
const bool is_wanted = hold_from_environment();

const uint64_t* code_for_current_gpu() {
    CUdevice device = 0;
    int major = 0, minor = 0;
    bool is_known =
        driver.cuCtxGetDevice(&device) == CUDA_SUCCESS &&
        driver.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device) == CUDA_SUCCESS &&
        driver.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device) == CUDA_SUCCESS;
    const uint64_t* found = nullptr;
    for (const Code& code : kCode)
        if (is_known && code.major == major && code.minor <= minor) found = code.image;
    return found;
}

}  // namespace

bool Hold::is_possible() {
    return is_wanted && !mps::is_here.load(std::memory_order_relaxed) && !detour::is_installed.load();
}

bool Hold::is_due() const {
    State state = state_.load();
    return (state == State::unmet || (state == State::ready && queued() < kEnough)) &&
           admission::is_worth_holding(gaps_.load(), gaps_now_.load());
}

void Hold::fill(CUcontext context) {
    if (waiting_for_all.load() || !is_possible() || current_context() != context) return;
    if (state_.load() == State::unmet && owner_of(context) == context) {
        context_ = context;
        state_.store(State::met);
    }
    if (state_.load() != State::ready || context != context_) return;
    // Not more at a time, should they not wait for each other.
    for (uint32_t i = 0; i < kQueued && queued() < kQueued; ++i)
        if (!launch()) return state_.store(State::without);
    // Who has begun to wait since we looked has released those before.
    if (waiting_for_all.load()) release();
}

void Hold::prepare() { state_.store(load() ? State::ready : State::without); }

bool Hold::load() {
    InContext there(context_);
    const uint64_t* code = there.is_there() ? code_for_current_gpu() : nullptr;
    CUmodule module = nullptr;
    return code && map_words() && driver.cuModuleLoadData(&module, code) == CUDA_SUCCESS &&
           driver.cuModuleGetFunction(&function_, module, "cotenant_hold") == CUDA_SUCCESS &&
           // The lowest priority is the default.
           driver.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS;
}

bool Hold::map_words() {
    auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    void* page = words_.load();
    if (!page) {
        // Shared: a fork does not part us from the page that the GPU writes to.
        page = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED) return false;
        words_.store(static_cast<Words*>(page));
    }
    // Kernels of a context that ended unfinished have not begun.
    words_.load()->begun.store(launched_.load());
    CUresult mapped = driver.cuMemHostRegister_v2(page, bytes, CU_MEMHOSTREGISTER_DEVICEMAP);
    if (mapped != CUDA_SUCCESS && mapped != CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED) return false;
    return driver.cuMemHostGetDevicePointer_v2(&address_, page, 0) == CUDA_SUCCESS;
}

// Of those that have not begun, and have not been told to end. The GPU may have written anything.
uint32_t Hold::queued() const {
    const Words* words = words_.load();
    uint32_t launched = launched_.load();
    return std::min(launched - words->begun.load(), launched - words->ended.load());
}

bool Hold::launch() {
    uint32_t number = launched_.load() + 1, life_ns = kLifeNs;
    // First, so that whoever releases releases this one, too.
    launched_.store(number);
    void* parameters[] = {&address_, &number, &life_ns};
    return driver.cuLaunchKernel(function_, 1, 1, 1, 1, 1, 1, 0, stream_, parameters, nullptr) == CUDA_SUCCESS;
}

void Hold::release() {
    if (Words* words = words_.load()) words->ended.store(launched_.load());
}

void Hold::forget(CUcontext context) {
    if (state_.load() == State::unmet || context_ != context) return;
    release();
    state_.store(State::unmet);
}

}  // namespace tenant
