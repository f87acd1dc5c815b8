#include "softgpu/launch.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "softgpu/enqueue.h"

namespace softgpu {
namespace {

CUresult check_shape(const LaunchRequest& request, CUdevice device) {
    constexpr CUdevice_attribute grid_limits[] = {
        CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z};
    constexpr CUdevice_attribute block_limits[] = {
        CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z};
    uint64_t threads = 1;
    for (int i = 0; i < 3; ++i) {
        if (request.grid[i] == 0 || request.block[i] == 0) return CUDA_ERROR_INVALID_VALUE;
        const int grid = device_attribute(device, grid_limits[i]), block = device_attribute(device, block_limits[i]);
        if (grid > 0 && request.grid[i] > static_cast<unsigned>(grid)) return CUDA_ERROR_INVALID_VALUE;
        if (block > 0 && request.block[i] > static_cast<unsigned>(block)) return CUDA_ERROR_INVALID_VALUE;
        threads *= request.block[i];
    }
    const int most = device_attribute(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    return most > 0 && threads > static_cast<uint64_t>(most) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult from_pointers(const KernelText& kernel, void** pointers, std::vector<unsigned char>* bytes) {
    for (size_t i = 0; i < kernel.parameters.size(); ++i) {
        if (!pointers[i]) return CUDA_ERROR_INVALID_VALUE;
        std::memcpy(bytes->data() + kernel.parameters[i].offset, pointers[i], kernel.parameters[i].bytes);
    }
    return CUDA_SUCCESS;
}

uint64_t blocks_of(const unsigned grid[3]) { return static_cast<uint64_t>(grid[0]) * grid[1] * grid[2]; }

// With fewer SMs than it can fill, a kernel takes longer in proportion.
void hold_to(int sms, model::Work* work) {
    if (sms <= 0 || work->sms <= sms) return;
    const double part = static_cast<double>(sms) / work->sms;
    work->time_us /= part;
    work->gbps *= part;
    work->sms = sms;
}

CUresult launch(const LaunchRequest& request, CUstream stream_handle, DefaultStream which) {
    StreamRef stream;
    ContextRef context;
    TRY(find_stream(stream_handle, which, &stream, &context));
    LaunchRef launch;
    {
        const ScopedContext current(context->handle);
        TRY(make_launch(request, &launch));
    }
    if (launch->function->context.lock() != context) return CUDA_ERROR_INVALID_HANDLE;
    StreamWork work;
    work.steps.push_back(operation_of(*context, launch));
    if (stream->green) hold_to(stream->green->sms, &work.steps.back().work);
    work.node = KernelNode{std::move(launch)};
    return enqueue_work(stream_handle, which, std::move(work));
}

CUresult launch_with_attributes(const CUlaunchConfig* config, CUfunction function, void** parameters, void** extra,
                                DefaultStream which) {
    if (!config || (config->numAttrs > 0 && !config->attrs)) return CUDA_ERROR_INVALID_VALUE;
    return launch({function,
                   {config->gridDimX, config->gridDimY, config->gridDimZ},
                   {config->blockDimX, config->blockDimY, config->blockDimZ},
                   config->sharedMemBytes,
                   parameters,
                   extra},
                  config->hStream, which);
}

CUresult call_host(CUstream stream, CUhostFn function, void* data, DefaultStream which) {
    if (!function) return CUDA_ERROR_INVALID_VALUE;
    Operation operation;
    operation.type = CU_GRAPH_NODE_TYPE_HOST;
    operation.host_call = [function, data] { function(data); };
    return enqueue(stream, which, std::move(operation));
}

// One on each of several devices. All are checked before the first is launched.
CUresult launch_on_several(const CUDA_LAUNCH_PARAMS* launches, unsigned count, unsigned flags) {
    if (!launches || count == 0 || flags & ~3U) return CUDA_ERROR_INVALID_VALUE;
    const auto request_of = [](const CUDA_LAUNCH_PARAMS& one) -> LaunchRequest {
        return {one.function,
                {one.gridDimX, one.gridDimY, one.gridDimZ},
                {one.blockDimX, one.blockDimY, one.blockDimZ},
                one.sharedMemBytes,
                one.kernelParams,
                nullptr};
    };
    std::set<int> devices;
    for (unsigned i = 0; i < count; ++i) {
        LaunchRef made;
        TRY(make_launch(request_of(launches[i]), &made));
        const ContextRef context = made->function->context.lock();
        // The driver wants a stream of its own for each.
        if (!launches[i].hStream || !context || !devices.insert(context->device).second)
            return CUDA_ERROR_INVALID_VALUE;
    }
    for (unsigned i = 0; i < count; ++i)
        TRY(launch(request_of(launches[i]), launches[i].hStream, DefaultStream::legacy));
    return CUDA_SUCCESS;
}

}  // namespace

CUresult make_launch(const LaunchRequest& request, LaunchRef* out) {
    FunctionRef function;
    TRY(find_function(request.function, &function));
    const ContextRef context = function->context.lock();
    if (!context) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    TRY(check_shape(request, context->device));
    const KernelText& kernel = *function->text;
    if (request.extra) return request.parameters ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;

    auto launch = std::make_shared<Launch>();
    std::vector<unsigned char> bytes(kernel.parameter_bytes());
    if (!kernel.parameters.empty()) {
        if (!request.parameters) return CUDA_ERROR_INVALID_VALUE;
        TRY(from_pointers(kernel, request.parameters, &bytes));
    }
    const unsigned threads = request.block[0] * request.block[1] * request.block[2];
    const int most_shared = device_attribute(context->device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
    if (request.shared_bytes > static_cast<size_t>(most_shared)) return CUDA_ERROR_INVALID_VALUE;
    if (blocks_per_sm(context->device, threads, request.shared_bytes) == 0) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;

    launch->function = std::move(function);
    std::copy(request.grid, request.grid + 3, launch->grid);
    std::copy(request.block, request.block + 3, launch->block);
    launch->shared_bytes = request.shared_bytes;
    launch->arguments = Arguments(kernel.parameters, std::move(bytes));
    auto* data = const_cast<unsigned char*>(launch->arguments.bytes().data());
    for (const Parameter& parameter : kernel.parameters) launch->argument_pointers.push_back(data + parameter.offset);
    *out = std::move(launch);
    return CUDA_SUCCESS;
}

Operation operation_of(Context& context, const LaunchRef& launch) {
    const KernelText& kernel = *launch->function->text;
    const model::DeviceSpec& device = *device_spec(context.device);
    Operation operation;
    operation.type = CU_GRAPH_NODE_TYPE_KERNEL;
    operation.work = kernel.cost(device, launch->arguments);
    const unsigned threads = launch->block[0] * launch->block[1] * launch->block[2];
    const auto resident =
        static_cast<uint64_t>(std::max(1, blocks_per_sm(context.device, threads, launch->shared_bytes)));
    const uint64_t wanted = (blocks_of(launch->grid) + resident - 1) / resident;
    operation.work.sms = static_cast<int>(std::min(wanted, static_cast<uint64_t>(operation.work.sms)));
    if (kernel.function) {
        operation.effect = [launch, &context](const Timing& timing) -> int {
            const MemoryHold hold;
            return launch->function->text->run(context, launch->arguments, timing);
        };
    }
    return operation;
}

}  // namespace softgpu

using namespace softgpu;

PLAIN_AND_PTSZ(
    cuLaunchKernel,
    (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x,
     unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, CUstream stream, void** parameters,
     void** extra),
    launch({function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes, parameters, extra}, stream,
           which))
PLAIN_AND_PTSZ(cuLaunchKernelEx, (const CUlaunchConfig* config, CUfunction function, void** parameters, void** extra),
               launch_with_attributes(config, function, parameters, extra, which))
PLAIN_AND_PTSZ(cuLaunchHostFunc, (CUstream stream, CUhostFn function, void* data),
               call_host(stream, function, data, which))
ENTRY(cuLaunchCooperativeKernelMultiDevice, (CUDA_LAUNCH_PARAMS * launches, unsigned int count, unsigned int flags),
      launch_on_several(launches, count, flags))
