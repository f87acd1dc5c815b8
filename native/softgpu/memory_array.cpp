// CUDA arrays: memory of the device behind an opaque handle. Nothing here reads or writes one.
#include <mutex>

#include "softgpu/memory.h"
#include "softgpu/registry.h"

namespace softgpu {
namespace {

struct Array {
    const Context* owner;  // for comparison only
    int device;
    uint64_t bytes = 0;
    ~Array() { release_on(device, bytes); }
};

Registry<Array, CUarray>& arrays() {
    static auto* const instance = new Registry<Array, CUarray>(0x61);
    return *instance;
}

unsigned bytes_of(CUarray_format format) {
    switch (format) {
        case CU_AD_FORMAT_UNSIGNED_INT8:
        case CU_AD_FORMAT_SIGNED_INT8:
            return 1;
        case CU_AD_FORMAT_UNSIGNED_INT16:
        case CU_AD_FORMAT_SIGNED_INT16:
        case CU_AD_FORMAT_HALF:
            return 2;
        case CU_AD_FORMAT_UNSIGNED_INT32:
        case CU_AD_FORMAT_SIGNED_INT32:
        case CU_AD_FORMAT_FLOAT:
            return 4;
        default:
            return 0;
    }
}

CUresult create(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR& descriptor) {
    return in_context([&](const ContextRef& context) -> CUresult {
        const unsigned element = bytes_of(descriptor.Format);
        const unsigned channels = descriptor.NumChannels;
        if (!out || element == 0 || descriptor.Width == 0) return CUDA_ERROR_INVALID_VALUE;
        if (channels != 1 && channels != 2 && channels != 4) return CUDA_ERROR_INVALID_VALUE;
        if (descriptor.Depth != 0 && descriptor.Height == 0 && (descriptor.Flags & CUDA_ARRAY3D_LAYERED) == 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        TRY(unsafe_during_capture());
        auto array = std::make_shared<Array>();
        array->owner = context.get();
        array->device = device_of(*context);
        uint64_t bytes = descriptor.Width * element * channels;
        for (const uint64_t times : {descriptor.Height, descriptor.Depth}) {
            if (__builtin_mul_overflow(bytes, times == 0 ? 1 : times, &bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
        }
        if (bytes > UINT64_MAX - granularity) return CUDA_ERROR_OUT_OF_MEMORY;
        bytes = round_up(bytes, granularity);
        if (!reserve_on(array->device, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
        array->bytes = bytes;
        *out = arrays().issue();
        arrays().put(*out, std::move(array));
        return CUDA_SUCCESS;
    });
}

}  // namespace

void release_arrays_of(const Context& context) {
    arrays().remove_if([&](const Array& array) { return array.owner == &context; });
}

}  // namespace softgpu

using namespace softgpu;

DRIVER_API cuArrayCreate_v2(CUarray* out, const CUDA_ARRAY_DESCRIPTOR* wanted) {
    if (!wanted) return CUDA_ERROR_INVALID_VALUE;
    return create(out, {wanted->Width, wanted->Height, 0, wanted->Format, wanted->NumChannels, 0});
}

DRIVER_API cuArray3DCreate_v2(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR* wanted) {
    if (!wanted) return CUDA_ERROR_INVALID_VALUE;
    return create(out, *wanted);
}

DRIVER_API cuArrayDestroy(CUarray handle) {
    return in_context([&](const ContextRef& context) -> CUresult {
        if (!arrays().find(handle)) return CUDA_ERROR_INVALID_HANDLE;
        TRY(unsafe_during_capture());
        TRY(synchronize(*context));
        return arrays().remove(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    });
}
