#include "shim/memory_hooks.h"

namespace shim {

uint64_t bytes_of_element(CUarray_format format) {
    switch (format) {
        case CU_AD_FORMAT_UNSIGNED_INT8:
        case CU_AD_FORMAT_SIGNED_INT8:
            return 1;
        case CU_AD_FORMAT_UNSIGNED_INT16:
        case CU_AD_FORMAT_SIGNED_INT16:
        case CU_AD_FORMAT_HALF:
            return 2;
        default:
            // Block-compressed and video formats have less a channel.
            return 4;
    }
}

}  // namespace shim
