// What every entry point of the driver API shares: all names of cuda.h as they are exported, the check for cuInit, and
// a wall that no exception passes. Include this before any other header that includes cuda.h.
#pragma once

#define __CUDA_API_VERSION_INTERNAL  // no name is renamed to a newer version
#include <cuda.h>

#include <new>
#include <utility>

#include "softgpu/objects.h"

#define DRIVER_API extern "C" __attribute__((visibility("default"))) CUresult CUDAAPI

// An entry point that is one expression.
#define ENTRY(name, parameters, ...)                             \
    DRIVER_API name parameters {                                 \
        return entry([&]() -> CUresult { return __VA_ARGS__; }); \
    }

// One body for the two entry points that differ in what the null stream means; the body sees `which`. The second one's
// name ends in _ptsz where the call takes a stream, else in _ptds.
#define PLAIN_AND(suffix, name, parameters, ...)                   \
    DRIVER_API name parameters {                                   \
        constexpr DefaultStream which = DefaultStream::legacy;     \
        return entry([&]() -> CUresult { return __VA_ARGS__; });   \
    }                                                              \
    DRIVER_API name##suffix parameters {                           \
        constexpr DefaultStream which = DefaultStream::per_thread; \
        return entry([&]() -> CUresult { return __VA_ARGS__; });   \
    }
#define PLAIN_AND_PTSZ(name, parameters, ...) PLAIN_AND(_ptsz, name, parameters, __VA_ARGS__)
#define PLAIN_AND_PTDS(name, parameters, ...) PLAIN_AND(_ptds, name, parameters, __VA_ARGS__)

// Leaves the function when a step of it fails.
#define TRY(step)                                                                              \
    do {                                                                                       \
        if (const CUresult try_result = (step); try_result != CUDA_SUCCESS) return try_result; \
    } while (0)

namespace softgpu {

template <class Body>
CUresult guarded(Body&& body) noexcept {
    try {
        return std::forward<Body>(body)();
    } catch (const std::bad_alloc&) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    } catch (...) {
        return CUDA_ERROR_UNKNOWN;
    }
}

template <class Body>
CUresult entry(Body&& body) noexcept {
    if (const CUresult result = check_initialised(); result != CUDA_SUCCESS) return result;
    return guarded(std::forward<Body>(body));
}

}  // namespace softgpu
