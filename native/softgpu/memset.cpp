// Memsets of every width and shape.
#include <algorithm>
#include <cstring>

#include "softgpu/memory.h"

namespace softgpu {
namespace {

// False: it is more than there are addresses.
bool span_of(const CUDA_MEMSET_NODE_PARAMS& fill, uint64_t* out) {
    uint64_t rows = 0;
    return !__builtin_mul_overflow(fill.height - 1, fill.pitch, &rows) &&
           !__builtin_add_overflow(rows, fill.width * fill.elementSize, out);
}

void fill_row(uint64_t row, const CUDA_MEMSET_NODE_PARAMS& fill) {
    switch (fill.elementSize) {
        case 1:
            std::memset(reinterpret_cast<void*>(row), static_cast<int>(fill.value & 0xff), fill.width);
            break;
        case 2:
            std::fill_n(reinterpret_cast<uint16_t*>(row), fill.width, static_cast<uint16_t>(fill.value));
            break;
        default:
            std::fill_n(reinterpret_cast<uint32_t*>(row), fill.width, fill.value);
    }
}

CUresult memset_in(CUstream stream, DefaultStream which, CUdeviceptr pointer, size_t pitch, unsigned value,
                   unsigned element, size_t width, size_t height) {
    CUDA_MEMSET_NODE_PARAMS fill{};
    fill.dst = pointer;
    fill.pitch = pitch;
    fill.value = value;
    fill.elementSize = element;
    fill.width = width;
    fill.height = height;
    Operation operation;
    TRY(make_memset(fill, &operation));
    // The forms without a stream do not wait either: the memory is the device's.
    return enqueue(stream, which, std::move(operation));
}

}  // namespace

CUresult make_memset(const CUDA_MEMSET_NODE_PARAMS& fill, Operation* out) {
    ContextRef context;
    TRY(current_context(&context));
    const unsigned element = fill.elementSize;
    if (element != 1 && element != 2 && element != 4) return CUDA_ERROR_INVALID_VALUE;
    if (!is_multiple(fill.dst, element)) return CUDA_ERROR_INVALID_VALUE;
    CUDA_MEMSET_NODE_PARAMS normal = fill;
    if (normal.height == 1) normal.pitch = 0;
    const bool nothing = fill.width == 0 || fill.height == 0;
    uint64_t span = 0;
    if (!nothing) {
        uint64_t bytes;
        if (__builtin_mul_overflow(fill.width, element, &bytes) || __builtin_mul_overflow(bytes, fill.height, &bytes)) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        if (fill.height > 1 && (fill.pitch < fill.width * element || !is_multiple(fill.pitch, element))) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        if (!span_of(normal, &span)) return CUDA_ERROR_INVALID_VALUE;
        const std::shared_lock<std::shared_mutex> lock(memory().mutex);
        if (!reachable(device_of(*context), fill.dst, span, true)) return CUDA_ERROR_INVALID_VALUE;
    }
    Operation operation;
    operation.type = CU_GRAPH_NODE_TYPE_MEMSET;
    operation.node_params = std::make_shared<const CUDA_MEMSET_NODE_PARAMS>(fill);
    if (!nothing) {
        operation.work.kind = model::WorkKind::copy_on_device;
        operation.work.bytes = fill.width * element * fill.height;
        operation.effect = [normal, span, device = device_of(*context)](const Timing&) -> int {
            const MemoryHold hold;
            if (!reachable(device, normal.dst, span, true)) return CUDA_ERROR_ILLEGAL_ADDRESS;
            for (size_t row = 0; row < normal.height; ++row) fill_row(normal.dst + row * normal.pitch, normal);
            return 0;
        };
    }
    *out = std::move(operation);
    return CUDA_SUCCESS;
}

}  // namespace softgpu

using namespace softgpu;

#define MEMSET(name, Element)                                                                        \
    PLAIN_AND_PTDS(name##_v2, (CUdeviceptr pointer, Element value, size_t count),                    \
                   memset_in(nullptr, which, pointer, 0, value, sizeof value, count, 1))             \
    PLAIN_AND_PTSZ(name##Async, (CUdeviceptr pointer, Element value, size_t count, CUstream stream), \
                   memset_in(stream, which, pointer, 0, value, sizeof value, count, 1))

#define MEMSET_2D(name, Element)                                                                                     \
    PLAIN_AND_PTDS(name##_v2, (CUdeviceptr pointer, size_t pitch, Element value, size_t width, size_t height),       \
                   memset_in(nullptr, which, pointer, pitch, value, sizeof value, width, height))                    \
    PLAIN_AND_PTSZ(name##Async,                                                                                      \
                   (CUdeviceptr pointer, size_t pitch, Element value, size_t width, size_t height, CUstream stream), \
                   memset_in(stream, which, pointer, pitch, value, sizeof value, width, height))

MEMSET(cuMemsetD8, unsigned char)
MEMSET(cuMemsetD16, unsigned short)
MEMSET(cuMemsetD32, unsigned int)
MEMSET_2D(cuMemsetD2D8, unsigned char)
MEMSET_2D(cuMemsetD2D16, unsigned short)
MEMSET_2D(cuMemsetD2D32, unsigned int)
