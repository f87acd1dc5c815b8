// Names and descriptions of the error codes.
#include "softgpu/entry.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <map>
#include <string>

namespace softgpu {
namespace {

struct Text {
    int code;
    const char* text;
};

constexpr Text names[] = {
#include "error_names.inc"
};

// What the driver says of the codes that people meet; the others are described by their names.
constexpr Text descriptions[] = {
    {CUDA_SUCCESS, "no error"},
    {CUDA_ERROR_INVALID_VALUE, "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "initialization error"},
    {CUDA_ERROR_DEINITIALIZED, "driver shutting down"},
    {CUDA_ERROR_STUB_LIBRARY, "CUDA driver is a stub library"},
    {CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"},
    {CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"},
    {CUDA_ERROR_INVALID_CONTEXT, "invalid device context"},
    {CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device"},
    {CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "peer access is not supported between these two devices"},
    {CUDA_ERROR_INVALID_PTX, "a PTX JIT compilation failed"},
    {CUDA_ERROR_FILE_NOT_FOUND, "file not found"},
    {CUDA_ERROR_OPERATING_SYSTEM, "OS call failed or operation not supported on this OS"},
    {CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"},
    {CUDA_ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state"},
    {CUDA_ERROR_NOT_FOUND, "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "device not ready"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"},
    {CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch"},
    {CUDA_ERROR_LAUNCH_TIMEOUT, "the launch timed out and was terminated"},
    {CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled"},
    {CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "peer access has not been enabled"},
    {CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"},
    {CUDA_ERROR_ASSERT, "device-side assert triggered"},
    {CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "part or all of the requested memory range is already mapped"},
    {CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "pointer does not correspond to a registered memory region"},
    {CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"},
    {CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, "too many blocks in cooperative launch"},
    {CUDA_ERROR_NOT_PERMITTED, "operation not permitted"},
    {CUDA_ERROR_NOT_SUPPORTED, "operation not supported"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing"},
    {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "operation failed due to a previous error during capture"},
    {CUDA_ERROR_STREAM_CAPTURE_MERGE, "operation would result in a merge of separate capture sequences"},
    {CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "capture was not ended in the same stream as it began"},
    {CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work"},
    {CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "dependency created on uncaptured work in another stream"},
    {CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {CUDA_ERROR_CAPTURED_EVENT, "operation not permitted on an event last recorded in a capturing stream"},
    {CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
     "attempt to terminate a thread-local capture sequence from another thread"},
    {CUDA_ERROR_TIMEOUT, "wait operation timed out"},
    {CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
     "the graph update was not performed because it included changes which violated constraints specific to "
     "instantiated graph update"},
    {CUDA_ERROR_UNKNOWN, "unknown error"},
};

// "CUDA_ERROR_NVLINK_UNCORRECTABLE" -> "nvlink uncorrectable"
std::string words_of(const std::string& name) {
    std::string words = name.substr(sizeof "CUDA_ERROR_" - 1);
    std::transform(words.begin(), words.end(), words.begin(),
                   [](unsigned char c) { return c == '_' ? ' ' : static_cast<char>(std::tolower(c)); });
    return words;
}

const std::map<int, std::string>& all_descriptions() {
    static const auto* const all = [] {
        auto* const made = new std::map<int, std::string>;
        for (const Text& known : descriptions) made->emplace(known.code, known.text);
        for (const Text& named : names) {
            if (made->count(named.code) == 0) made->emplace(named.code, words_of(named.text));
        }
        return made;
    }();
    return *all;
}

CUresult unknown(const char** out) {
    *out = nullptr;
    return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace
}  // namespace softgpu

using namespace softgpu;

// Both may be called before cuInit.

DRIVER_API cuGetErrorName(CUresult error, const char** out) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    const Text* const found =
        std::find_if(std::begin(names), std::end(names), [&](const Text& t) { return t.code == error; });
    if (found == std::end(names)) return unknown(out);
    *out = found->text;
    return CUDA_SUCCESS;
}

DRIVER_API cuGetErrorString(CUresult error, const char** out) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    return guarded([&]() -> CUresult {
        const auto found = all_descriptions().find(error);
        if (found == all_descriptions().end()) return unknown(out);
        *out = found->second.c_str();
        return CUDA_SUCCESS;
    });
}
