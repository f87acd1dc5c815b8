// The launch path of a recorded job: which stream, which shape, and into the ring.
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "tenant/context.h"
#include "tenant/locked.h"
#include "tenant/membership.h"
#include "tenant/record/recorder.h"

namespace tenant {

RecorderCalls recorder_calls;

namespace {

// A call that took longer has waited for something: most often for room in the driver's queue.
constexpr uint64_t kWaitedNs = 50000;
constexpr unsigned int kMostNodesLookedAt = 4096;

uint16_t thread_number() {
    static std::atomic<uint32_t> last{0};
    thread_local uint32_t mine = 0;
    if (!mine) mine = last.fetch_add(1, std::memory_order_relaxed) + 1;
    return static_cast<uint16_t>(std::min(mine, 65535u));
}

bool is_recorded_into_graph(CUstream stream) {
    Membership* membership = Membership::current_if_joined();
    if (membership && !captures.load(std::memory_order_acquire)) return false;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return driver.cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

uint64_t rounded(uint64_t bytes) {
    int digits = bytes ? 63 - __builtin_clzll(bytes) : 0;
    return digits > 3 ? bytes >> (digits - 3) << (digits - 3) : bytes;
}

const char* function_name(const void* function) {
    const char* name = nullptr;
    auto* handle = static_cast<CUfunction>(const_cast<void*>(function));
    if (recorder_calls.cuFuncGetName && recorder_calls.cuFuncGetName(&name, handle) == CUDA_SUCCESS && name)
        return name;
    if (recorder_calls.cuKernelGetName && recorder_calls.cuKernelGetName(&name, handle) == CUDA_SUCCESS && name)
        return name;
    return "";
}

unsigned int occupancy(const void* function, const unsigned int (&block)[3], unsigned int shared_bytes) {
    int blocks = 0;
    auto* handle = static_cast<CUfunction>(const_cast<void*>(function));
    int threads = static_cast<int>(block[0] * block[1] * block[2]);
    if (!handle || threads <= 0 || !recorder_calls.cuOccupancyMaxActiveBlocksPerMultiprocessor ||
        recorder_calls.cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, handle, threads, shared_bytes) !=
            CUDA_SUCCESS)
        return 0;
    return static_cast<unsigned int>(std::max(blocks, 0));
}

// A launch may name a CUfunction or a CUkernel, and each has a function of its own to ask.
unsigned int attribute(const void* function, CUfunction_attribute which, CUdevice device) {
    int value = 0;
    auto* handle = static_cast<CUfunction>(const_cast<void*>(function));
    if (!handle) return 0;
    bool known =
        recorder_calls.cuFuncGetAttribute && recorder_calls.cuFuncGetAttribute(&value, which, handle) == CUDA_SUCCESS;
    if (!known && recorder_calls.cuKernelGetAttribute)
        known = recorder_calls.cuKernelGetAttribute(&value, which, handle, device) == CUDA_SUCCESS;
    return known ? static_cast<unsigned int>(std::max(value, 0)) : 0;
}

// Two transfers a clock, as all memory of GPUs has it.
unsigned int memory_gbps(CUdevice device) {
    int khz = 0, bits = 0;
    if (!recorder_calls.cuDeviceGetAttribute ||
        recorder_calls.cuDeviceGetAttribute(&khz, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, device) != CUDA_SUCCESS ||
        recorder_calls.cuDeviceGetAttribute(&bits, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, device) != CUDA_SUCCESS)
        return 0;
    return static_cast<unsigned int>(2.0 * std::max(khz, 0) * std::max(bits, 0) / 8e6);
}

uint64_t block_count(const unsigned int (&grid)[3]) { return uint64_t{grid[0]} * grid[1] * grid[2]; }

Shape graph_key(const void* exec) { return mix(2, reinterpret_cast<uintptr_t>(exec)); }

}  // namespace

RecordedStream* Recorder::stream_of(CUstream* stream, bool per_thread_default, CUcontext context) {
    uint64_t key = 0;
    if (reinterpret_cast<uintptr_t>(*stream) > 2) {
        key = mix(3, reinterpret_cast<uintptr_t>(*stream));
    } else {
        bool per_thread = *stream == CU_STREAM_PER_THREAD || (!*stream && per_thread_default);
        *stream = per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
        key = mix(mix(4, reinterpret_cast<uintptr_t>(context)), per_thread ? thread_number() : 0);
    }
    struct Last {
        uint64_t key;
        RecordedStream* stream;
        uint32_t epoch;
    };
    thread_local Last last{};
    uint32_t now = epoch_.load(std::memory_order_relaxed);
    if (last.epoch == now && last.key == key) return last.stream;
    auto [entry, is_new] = streams_.find_or_enter(key);
    if (is_new) {
        CUdevice device = 0;
        if (driver.cuCtxGetDevice(&device) != CUDA_SUCCESS || device < 0 || device >= static_cast<int>(kGpus))
            device = 0;
        note_gpu(device);
        entry->gpu = device;
        entry->ready.store(1, std::memory_order_release);
    }
    if (entry) last = {key, entry, now};
    return entry;
}

void Recorder::note_gpu(CUdevice device) {
    RecordedGpu& gpu = gpus_[device];
    uint32_t unknown = 0;
    if (!gpu.state.compare_exchange_strong(unknown, 1)) {
        // Whoever was first is about to have it.
        while (gpu.state.load(std::memory_order_acquire) != 2) sched_yield();
        return;
    }
    CUuuid uuid;
    size_t bytes = 0;
    if (recorder_calls.cuDeviceGetName) recorder_calls.cuDeviceGetName(gpu.name, sizeof gpu.name - 1, device);
    if (recorder_calls.cuDeviceGetAttribute)
        recorder_calls.cuDeviceGetAttribute(&gpu.sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
    if (recorder_calls.cuDeviceTotalMem_v2 && recorder_calls.cuDeviceTotalMem_v2(&bytes, device) == CUDA_SUCCESS)
        gpu.memory_bytes = bytes;
    gpu.memory_gbps = memory_gbps(device);
    if (driver.cuDeviceGetUuid_v2(&uuid, device) == CUDA_SUCCESS) memcpy(gpu.uuid, uuid.bytes, sizeof gpu.uuid);
    gpu.state.store(2, std::memory_order_release);
}

RecordedShape* Recorder::shape_of(const Described& described, bool* is_new) {
    Shape key = 0;
    if (described.kind == TraceKind::kernel)
        key = mix(kernel_shape(described.what, described.grid, described.block, described.shared_bytes),
                  functions_generation_.load(std::memory_order_relaxed));
    else if (described.kind == TraceKind::graph)
        key = graph_key(described.what);
    else
        key = mix(mix(5, rounded(described.bytes)),
                  static_cast<uint64_t>(described.kind) << 8 | static_cast<uint64_t>(described.direction));
    auto [entry, entered] = shapes_.find_or_enter(key);
    *is_new = entered;
    return entry ? entry : &overflow_[static_cast<int>(described.kind)];
}

unsigned int Recorder::sms_filled(uint64_t blocks, unsigned int blocks_per_sm, int gpu) const {
    auto all = static_cast<uint64_t>(gpus_[gpu].sms);
    if (!blocks || !blocks_per_sm || !all) return 0;
    return static_cast<unsigned int>(std::min(all, (blocks + blocks_per_sm - 1) / blocks_per_sm));
}

void Recorder::describe(RecordedShape& shape, const Described& described, int gpu, bool exists) {
    shape.kind = described.kind;
    shape.direction = described.direction;
    shape.bytes = rounded(described.bytes);
    if (described.kind == TraceKind::kernel && exists) {
        memcpy(shape.grid, described.grid, sizeof shape.grid);
        memcpy(shape.block, described.block, sizeof shape.block);
        shape.shared_bytes = described.shared_bytes;
        shape.blocks_per_sm = occupancy(described.what, described.block, described.shared_bytes);
        shape.sms = sms_filled(block_count(described.grid), shape.blocks_per_sm, gpu);
        shape.registers = attribute(described.what, CU_FUNC_ATTRIBUTE_NUM_REGS, gpu);
        shape.static_shared_bytes = attribute(described.what, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, gpu);
        const char* name = function_name(described.what);
        auto length = static_cast<uint32_t>(strnlen(name, kLongestName));
        uint32_t at = name_bytes_used_.fetch_add(length);
        if (at + length <= kNameBytes) {
            memcpy(name_bytes_ + at, name, length);
            shape.name = name_bytes_ + at;
            shape.name_length = length;
        } else {
            name_bytes_used_.fetch_sub(length);
        }
    }
    shape.ready.store(1, std::memory_order_release);
}

OpTimer::Sample* Recorder::begin_timing(RecordedShape* shape, CUcontext context, CUstream stream) {
    OpTimer::Sample* sample = timer.begin(shape, context, stream);
    if (!sample && events_lock_.try_lock()) {
        timer.lend_to(context);
        unlock_events();
    }
    return sample;
}

void Recorder::saw_graph(CUgraphExec exec, CUgraph graph) {
    shapes_.retire(graph_key(exec));  // an earlier graph's exec may have had the same address
    auto [shape, is_new] = shapes_.find_or_enter(graph_key(exec));
    if (!is_new) return;
    CUdevice device = 0;
    if (driver.cuCtxGetDevice(&device) != CUDA_SUCCESS || device < 0 || device >= static_cast<int>(kGpus)) device = 0;
    note_gpu(device);
    shape->kind = TraceKind::graph;
    size_t count = 0;
    if (driver.cuGraphGetNodes(graph, nullptr, &count) != CUDA_SUCCESS) count = 0;
    shape->nodes = static_cast<unsigned int>(count);
    auto* nodes = static_cast<CUgraphNode*>(calloc(count ? count : 1, sizeof(CUgraphNode)));
    uint64_t filled = 0, kernels = 0;
    if (nodes && count && driver.cuGraphGetNodes(graph, nodes, &count) == CUDA_SUCCESS)
        for (size_t i = 0; i < count && i < kMostNodesLookedAt; ++i) {
            CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
            CUDA_KERNEL_NODE_PARAMS kernel{};
            if (driver.cuGraphNodeGetType(nodes[i], &type) != CUDA_SUCCESS || type != CU_GRAPH_NODE_TYPE_KERNEL ||
                driver.cuGraphKernelNodeGetParams_v2(nodes[i], &kernel) != CUDA_SUCCESS)
                continue;
            const void* function = kernel.func ? static_cast<const void*>(kernel.func) : kernel.kern;
            unsigned int per_sm =
                occupancy(function, {kernel.blockDimX, kernel.blockDimY, kernel.blockDimZ}, kernel.sharedMemBytes);
            unsigned int sms =
                sms_filled(block_count({kernel.gridDimX, kernel.gridDimY, kernel.gridDimZ}), per_sm, device);
            filled += sms;
            kernels += sms != 0;
        }
    free(nodes);
    if (kernels) shape->sms = static_cast<unsigned int>((filled + kernels / 2) / kernels);
    shape->ready.store(1, std::memory_order_release);
}

void Recorder::saw_allocation(uint64_t address, uint64_t bytes) {
    Locked locked(sizes_lock_);
    sizes_.enter(address, bytes);
}

uint64_t Recorder::take_allocation(uint64_t address) {
    Locked locked(sizes_lock_);
    return sizes_.take(address);
}

RecordedCall::RecordedCall(const Described& described, CUstream stream, bool per_thread_default)
    : recorder_(Recorder::current()), described_(described), handle_(stream) {
    if (!recorder_) return;
    CUcontext context = current_context();
    if (!context || !(stream_ = recorder_->stream_of(&handle_, per_thread_default, context)) ||
        (described.is_in_stream && is_recorded_into_graph(handle_))) {
        recorder_ = nullptr;
        return;
    }
    if (described.kind < TraceKind::wait) {
        shape_ = recorder_->shape_of(described, &is_new_shape_);
        uint32_t before = shape_->operations.fetch_add(1, std::memory_order_relaxed);
        is_first_ = before == 0;
        if (OpTimer::wants(before)) sample_ = recorder_->begin_timing(shape_, context, handle_);
    }
    begun_ns_ = wire::now_ns();
}

void RecordedCall::note(bool succeeded) {
    uint64_t now = wire::now_ns();
    // A copy of pageable memory takes the host along, whatever its name says.
    bool is_queued = !described_.blocks && (described_.kind != TraceKind::copy || now - begun_ns_ < kWaitedNs);
    if (sample_) OpTimer::end(sample_, handle_, succeeded, is_first_, is_queued);
    if (is_new_shape_) recorder_->describe(*shape_, described_, stream_->gpu, succeeded);
    if (!succeeded) return;
    uint64_t length = now > begun_ns_ ? now - begun_ns_ : 1;
    bool waited = described_.blocks || described_.kind == TraceKind::wait || length >= kWaitedNs;
    recorder_->put({now, waited ? length : 0, described_.bytes, shape_, stream_, thread_number(), described_.kind,
                    described_.direction});
}

EndingContext::EndingContext(CUcontext context) : recorder_(Recorder::current_if_on()) {
    if (!recorder_) return;
    recorder_->lock_events();
    recorder_->timer.forget_context(context);
}

EndingContext::EndingContext(CUdevice device) : recorder_(Recorder::current_if_on()) {
    if (!recorder_) return;
    life_ = PrimaryLife(device);
    recorder_->lock_events();
}

EndingContext::~EndingContext() {
    if (!recorder_) return;
    if (life_.context() && life_.has_ended()) recorder_->timer.forget_context(life_.context());
    recorder_->unlock_events();
}

Direction direction_between(CUdeviceptr to, CUdeviceptr from) {
    if (!recorder_calls.cuPointerGetAttribute) return Direction::unknown;
    auto is_on_device = [](CUdeviceptr address) {
        CUmemorytype type = CU_MEMORYTYPE_HOST;
        return recorder_calls.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) == CUDA_SUCCESS &&
               type == CU_MEMORYTYPE_DEVICE;
    };
    bool to_device = is_on_device(to);
    if (is_on_device(from)) return to_device ? Direction::on_device : Direction::to_host;
    return to_device ? Direction::to_device : Direction::on_host;
}

}  // namespace tenant
