#include "tenant/gpu_pages.h"

#include <sys/mman.h>

#include "tenant/relaxed.h"

namespace tenant {

GpuPages::Addresses GpuPages::of(CUcontext current, wire::Slot& slot, Progress& progress) {
    Mapped* free = nullptr;
    for (Mapped& mapped : mapped_) {
        if (mapped.context == current) return mapped.addresses;
        if (!mapped.is_taken && !free) free = &mapped;
    }
    if (!free) return {};
    free->context = current;
    free->is_taken = true;
    // Registering is forbidden to a thread while a capture is open, unless it declares itself relaxed.
    Relaxed relaxed;
    // The first has the mapping that is there: most processes need no other, and not every kernel makes a second one.
    if (free == mapped_) {
        free->slot = &slot;
        free->words = progress.words();
    }
    free->addresses = {map(&free->slot, &slot, wire::place_bytes()), 0};
    if (free->addresses.slot && progress.words())
        free->addresses.words = map(&free->words, progress.words(), Progress::kBytes);
    return free->addresses;
}

// `mapping` stays from one context to the next.
CUdeviceptr GpuPages::map(void** mapping, void* pages, size_t bytes) {
    if (!*mapping) {
        // An old size of nothing asks for a second mapping of shared pages.
        void* made = mremap(pages, 0, bytes, MREMAP_MAYMOVE);
        if (made == MAP_FAILED) return 0;
        *mapping = made;
    }
    CUdeviceptr address = 0;
    refusal_ = driver.cuMemHostRegister_v2(*mapping, bytes, CU_MEMHOSTREGISTER_DEVICEMAP);
    // A context whose end the driver refused has it still.
    if (refusal_ == CUDA_SUCCESS || refusal_ == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)
        if (driver.cuMemHostGetDevicePointer_v2(&address, *mapping, 0) != CUDA_SUCCESS) address = 0;
    return address;
}

int GpuPages::begin_end_of(CUcontext context) {
    for (int i = 0; i < kContexts; ++i) {
        if (!mapped_[i].context || mapped_[i].context != context) continue;
        mapped_[i].context = nullptr;
        return i;
    }
    return kNone;
}

void GpuPages::complete_end(int number) {
    if (number != kNone) mapped_[number].is_taken = false;
}

}  // namespace tenant
