#include "tenant/green_contexts.h"

#include <atomic>

namespace tenant {

namespace {

// More of them at once are taken for contexts of their own.
constexpr uint32_t kMost = 256;

struct Green {
    std::atomic<CUgreenCtx> handle{nullptr};
    std::atomic<CUcontext> context{nullptr};  // its handle as a context
    std::atomic<CUcontext> primary{nullptr};
    std::atomic<CUdevice> device{-1};
} greens[kMost];
std::atomic<uint32_t> known{0};  // no entry beyond

}  // namespace

void know_green_context(CUgreenCtx green, CUdevice device) {
    CUcontext context = nullptr, primary = nullptr;
    if (driver.cuCtxFromGreenCtx(&context, green) != CUDA_SUCCESS) return;
    // The green context holds it, so that it stays.
    if (driver.cuDevicePrimaryCtxRetain(&primary, device) != CUDA_SUCCESS) return;
    driver.cuDevicePrimaryCtxRelease_v2(device);
    for (uint32_t i = 0; i < kMost; ++i) {
        CUgreenCtx none = nullptr;
        if (!greens[i].handle.compare_exchange_strong(none, green)) continue;
        greens[i].primary.store(primary);
        greens[i].device.store(device);
        greens[i].context.store(context);
        for (uint32_t before = known.load(); before <= i && !known.compare_exchange_weak(before, i + 1);) {
        }
        return;
    }
}

CUdevice device_of(CUgreenCtx green) {
    for (const Green& one : greens)
        if (one.handle.load() == green) return one.device.load();
    return -1;
}

CUcontext owner_of(CUcontext context) {
    uint32_t count = known.load(std::memory_order_acquire);
    for (uint32_t i = 0; i < count; ++i)
        if (context && greens[i].context.load() == context) return greens[i].primary.load();
    return context;
}

CUcontext owner_of(CUstream stream) {
    CUcontext context = nullptr;
    CUgreenCtx green = nullptr;
    // The first version answers with the green context, or not at all.
    if (driver.cuStreamGetCtx_v2(stream, &context, &green) == CUDA_SUCCESS) return context;
    return driver.cuStreamGetCtx(stream, &context) == CUDA_SUCCESS ? owner_of(context) : nullptr;
}

void forget_green_context(CUgreenCtx green) {
    for (Green& one : greens) {
        if (one.handle.load() != green) continue;
        one.context.store(nullptr);
        one.handle.store(nullptr);
    }
}

}  // namespace tenant
