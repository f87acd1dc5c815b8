#include "softgpu/kernels.h"

#include <algorithm>
#include <cstring>

#include "softgpu/memory.h"

namespace softgpu {
namespace {

model::Work streaming(const model::DeviceSpec& device, double bytes) {
    return {model::WorkKind::kernel, bytes / (device.memory_gbps * 1e3), device.sms, device.memory_gbps, 0};
}

CUdeviceptr address(const Arguments& arguments, size_t index) {
    return static_cast<CUdeviceptr>(arguments.whole(index));
}

float* floats(const Arguments& arguments, size_t index) { return reinterpret_cast<float*>(address(arguments, index)); }

// With the lock of memory() held, as for all that follows: what is accessible stays so while the function runs.
// A count that a caller made up must not wrap round into a small range.
bool accessible(const Context& context, CUdeviceptr pointer, uint64_t count, uint64_t size, bool for_writing) {
    if (count == 0) return true;
    return count <= UINT64_MAX / size && reachable(device_of(context), pointer, count * size, for_writing);
}

// Every function writes through its first pointer and reads through the others.
bool all_accessible(const Context& context, const Arguments& arguments, size_t pointers, uint64_t count) {
    for (size_t i = 0; i < pointers; ++i) {
        if (!accessible(context, address(arguments, i), count, sizeof(float), i == 0)) return false;
    }
    return true;
}

CUresult fill(const Context& context, const Arguments& arguments, const Timing&) {
    const uint64_t n = arguments.whole(2);
    if (!all_accessible(context, arguments, 1, n)) return CUDA_ERROR_ILLEGAL_ADDRESS;
    std::fill_n(floats(arguments, 0), n, arguments.real(1));
    return CUDA_SUCCESS;
}

CUresult add(const Context& context, const Arguments& arguments, const Timing&) {
    const uint64_t n = arguments.whole(3);
    if (!all_accessible(context, arguments, 3, n)) return CUDA_ERROR_ILLEGAL_ADDRESS;
    float* out = floats(arguments, 0);
    const float *a = floats(arguments, 1), *b = floats(arguments, 2);
    for (uint64_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
    return CUDA_SUCCESS;
}

CUresult scale(const Context& context, const Arguments& arguments, const Timing&) {
    const uint64_t n = arguments.whole(3);
    if (!all_accessible(context, arguments, 2, n)) return CUDA_ERROR_ILLEGAL_ADDRESS;
    float* out = floats(arguments, 0);
    const float* a = floats(arguments, 1);
    const float factor = arguments.real(2);
    for (uint64_t i = 0; i < n; ++i) out[i] = a[i] * factor;
    return CUDA_SUCCESS;
}

// When the device ran it, from start to end: two doubles, microseconds of CLOCK_MONOTONIC in modelled time.
CUresult clock(const Context& context, const Arguments& arguments, const Timing& timing) {
    if (!accessible(context, address(arguments, 0), 2, sizeof(double), true)) return CUDA_ERROR_ILLEGAL_ADDRESS;
    const double times[2] = {timing.start_us, timing.end_us};
    std::memcpy(reinterpret_cast<void*>(address(arguments, 0)), times, sizeof times);
    return CUDA_SUCCESS;
}

model::Work fill_cost(const model::DeviceSpec& device, const Arguments& arguments) {
    return streaming(device, 4 * arguments.number(2));
}
model::Work add_cost(const model::DeviceSpec& device, const Arguments& arguments) {
    return streaming(device, 12 * arguments.number(3));
}
model::Work scale_cost(const model::DeviceSpec& device, const Arguments& arguments) {
    return streaming(device, 8 * arguments.number(3));
}
model::Work clock_cost(const model::DeviceSpec& device, const Arguments& arguments) {
    return {model::WorkKind::kernel, arguments.number(1), device.sms, 0, 0};
}

constexpr BuiltIn built_ins[] = {
    {"fill", "u64,f32,u64", fill_cost, fill},
    {"add", "u64,u64,u64,u64", add_cost, add},
    {"scale", "u64,u64,f32,u64", scale_cost, scale},
    {"clock", "u64,u64", clock_cost, clock},
};

}  // namespace

const BuiltIn* built_in(const std::string& name) {
    for (const BuiltIn& candidate : built_ins) {
        if (name == candidate.name) return &candidate;
    }
    return nullptr;
}

uint64_t Arguments::whole(size_t index) const {
    const Parameter& parameter = (*layout_)[index];
    uint64_t value = 0;
    std::memcpy(&value, bytes_.data() + parameter.offset, std::min<size_t>(parameter.bytes, sizeof value));
    return value;
}

float Arguments::real(size_t index) const {
    float value = 0;
    std::memcpy(&value, bytes_.data() + (*layout_)[index].offset, sizeof value);
    return value;
}

double Arguments::number(size_t index) const {
    const Parameter& parameter = (*layout_)[index];
    if (parameter.kind == 'f' && parameter.bytes == 4) return real(index);
    if (parameter.kind == 'f') {
        double value = 0;
        std::memcpy(&value, bytes_.data() + parameter.offset, sizeof value);
        return value;
    }
    return static_cast<double>(whole(index));
}

CUresult KernelText::run(const Context& context, const Arguments& arguments, const Timing& timing) const {
    const MemoryHold hold;
    return function->run(context, arguments, timing);
}

size_t KernelText::parameter_bytes() const {
    return parameters.empty() ? 0 : parameters.back().offset + parameters.back().bytes;
}

model::Work KernelText::cost(const model::DeviceSpec& device, const Arguments& arguments) const {
    model::Work work{model::WorkKind::kernel, 0, device.sms, 0, 0};
    if (function) work = function->cost(device, arguments);
    if (has_time) {
        work.time_us = time_us;
        if (time_parameter >= 0) work.time_us *= arguments.number(static_cast<size_t>(time_parameter));
        work.time_us = std::max(work.time_us, 0.0);
    }
    if (sms > 0) work.sms = std::min(sms, device.sms);
    if (gbps > 0) work.gbps = gbps;
    return work;
}

}  // namespace softgpu
