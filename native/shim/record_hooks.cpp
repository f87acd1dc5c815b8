// Wrappers around the hooks of a job whose trace is recorded: they describe each call to the recorder. The build
// expands the `record` lines of hooks.list into record.inc, one RECORD(handler, function, per_thread) a line.
#include "shim/record_hooks.h"

#include <cstdlib>
#include <type_traits>

#include "shim/driver.h"
#include "tenant/attached_contexts.h"
#include "tenant/record/recorder.h"

namespace shim {

namespace {

using tenant::Described;
using tenant::Direction;
using tenant::RecordedCall;
using tenant::TraceKind;

void* under[Index::count];  // what each wrapper calls: the hook, else the driver's function

template <int index, class... Arguments>
CUresult call_under(Arguments... arguments) {
    return reinterpret_cast<CUresult (*)(Arguments...)>(under[index])(arguments...);
}

template <class... Arguments>
constexpr bool has_stream = (std::is_same_v<Arguments, CUstream> || ...);

template <class... Arguments>
CUstream stream_in(Arguments... arguments) {
    CUstream stream = nullptr;
    [[maybe_unused]] auto look = [&](auto argument) {
        using Argument = decltype(argument);
        if constexpr (std::is_same_v<Argument, CUstream>) stream = argument;
        if constexpr (std::is_same_v<Argument, const CUlaunchConfig*>) stream = argument ? argument->hStream : nullptr;
        if constexpr (std::is_same_v<Argument, CUDA_LAUNCH_PARAMS*>) stream = argument ? argument->hStream : nullptr;
    };
    (look(arguments), ...);
    return stream;
}

// The last of a call's sizes: the bytes of those that take one. Old versions have 32 bits.
template <class... Arguments>
uint64_t bytes_in(Arguments... arguments) {
    uint64_t last_size = 0, last_number = 0;
    [[maybe_unused]] auto look = [&](auto argument) {
        if constexpr (std::is_same_v<decltype(argument), size_t>) last_size = argument;
        if constexpr (std::is_same_v<decltype(argument), unsigned int>) last_number = argument;
    };
    (look(arguments), ...);
    return (std::is_same_v<Arguments, size_t> || ...) ? last_size : last_number;
}

template <class... Rest>
Described kernel(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
                 unsigned int by, unsigned int bz, unsigned int shared_bytes, Rest...) {
    Described described;
    described.what = function;
    described.grid[0] = gx, described.grid[1] = gy, described.grid[2] = gz;
    described.block[0] = bx, described.block[1] = by, described.block[2] = bz;
    described.shared_bytes = shared_bytes;
    return described;
}
template <class... Rest>
Described kernel(const CUlaunchConfig* at, CUfunction function, Rest...) {
    if (!at) return {};
    return kernel(function, at->gridDimX, at->gridDimY, at->gridDimZ, at->blockDimX, at->blockDimY, at->blockDimZ,
                  at->sharedMemBytes);
}
template <class... Rest>
Described kernel(CUDA_LAUNCH_PARAMS* at, Rest...) {  // one launch a device: the first stands for all
    if (!at) return {};
    return kernel(at->function, at->gridDimX, at->gridDimY, at->gridDimZ, at->blockDimX, at->blockDimY, at->blockDimZ,
                  at->sharedMemBytes);
}
// The oldest two: the block was set beforehand.
inline Described kernel(CUfunction function) { return kernel(function, 1u, 1u, 1u, 0u, 0u, 0u, 0u); }
inline Described kernel(CUfunction function, int width, int height, CUstream = nullptr) {
    return kernel(function, static_cast<unsigned int>(width), static_cast<unsigned int>(height), 1u, 0u, 0u, 0u, 0u);
}

template <class... Arguments>
Described copy(Direction direction, uint64_t bytes, Arguments...) {
    Described described;
    described.kind = TraceKind::copy;
    described.direction = direction;
    described.bytes = bytes;
    described.blocks = !has_stream<Arguments...>;
    return described;
}

template <int index, bool per_thread, class... Arguments>
CUresult recorded(const Described& described, Arguments... arguments) {
    RecordedCall call(described, stream_in(arguments...), per_thread);
    return call.result(call_under<index>(arguments...));
}

// HANDLER(name): how a call of that kind is described.
#define HANDLER(name, ...)                                                 \
    template <int index, bool per_thread, class Function>                  \
    struct name;                                                           \
    template <int index, bool per_thread, class... Arguments>              \
    struct name<index, per_thread, CUresult(Arguments...)> {               \
        static CUresult call(Arguments... arguments) {                     \
            return recorded<index, per_thread>(__VA_ARGS__, arguments...); \
        }                                                                  \
    };

HANDLER(Kernel, kernel(arguments...))
HANDLER(CopyToDevice, copy(Direction::to_device, bytes_in(arguments...), arguments...))
HANDLER(CopyToHost, copy(Direction::to_host, bytes_in(arguments...), arguments...))
HANDLER(CopyOnDevice, copy(Direction::on_device, bytes_in(arguments...), arguments...))
HANDLER(CopyBetweenDevices, copy(Direction::between_devices, bytes_in(arguments...), arguments...))
HANDLER(CopySomewhere, copy(Direction::unknown, bytes_in(arguments...), arguments...))
HANDLER(CopyOfUnknownSize, copy(Direction::unknown, 0, arguments...))

inline Direction between(CUmemorytype to, CUmemorytype from) {
    if (to == CU_MEMORYTYPE_UNIFIED || from == CU_MEMORYTYPE_UNIFIED) return Direction::unknown;
    if (from == CU_MEMORYTYPE_HOST) return to == CU_MEMORYTYPE_HOST ? Direction::on_host : Direction::to_device;
    return to == CU_MEMORYTYPE_HOST ? Direction::to_host : Direction::on_device;
}
template <class Box>
uint64_t depth_of(const Box* box) {
    if constexpr (std::is_same_v<Box, CUDA_MEMCPY3D> || std::is_same_v<Box, CUDA_MEMCPY3D_PEER>)
        return box->Depth;
    else
        return 1;
}
template <class Box, class... Rest>
Described copy_of_box(const Box* box, Rest... rest) {
    if (!box) return copy(Direction::unknown, 0, rest...);
    return copy(between(box->dstMemoryType, box->srcMemoryType),
                uint64_t{box->WidthInBytes} * box->Height * depth_of(box), rest...);
}
HANDLER(CopyOfBox, copy_of_box(arguments...))

template <class To, class From, class Size, class... Rest>
Described copy_by_address(To to, From from, Size bytes, Rest... rest) {
    return copy(tenant::direction_between(to, from), bytes, rest...);
}
HANDLER(CopyByAddress, copy_by_address(arguments...))

inline Described fill(uint64_t bytes, bool blocks) {
    Described described;
    described.kind = TraceKind::fill;
    described.bytes = bytes;
    described.blocks = blocks;
    return described;
}
template <class Address, class Value, class Size>
Described fill_of(Address, Value, Size count) {
    return fill(uint64_t{count} * sizeof(Value), true);
}
template <class Address, class Value, class Size>
Described fill_of(Address, Value, Size count, CUstream) {
    return fill(uint64_t{count} * sizeof(Value), false);
}
template <class Address, class Size, class Value>
Described fill_of(Address, Size, Value, Size width, Size height) {
    return fill(uint64_t{width} * height * sizeof(Value), true);
}
template <class Address, class Size, class Value>
Described fill_of(Address, Size, Value, Size width, Size height, CUstream) {
    return fill(uint64_t{width} * height * sizeof(Value), false);
}
HANDLER(Fill, fill_of(arguments...))

inline Described graph(CUgraphExec exec) {
    Described described;
    described.kind = TraceKind::graph;
    described.what = exec;
    return described;
}
template <int index, bool per_thread, class Function>
struct Graph {
    static CUresult call(CUgraphExec exec, CUstream stream) {
        return recorded<index, per_thread>(graph(exec), exec, stream);
    }
};

inline Described moment(TraceKind kind, uint64_t bytes, bool is_in_stream) {
    Described described;
    described.kind = kind;
    described.bytes = bytes;
    described.is_in_stream = is_in_stream;
    return described;
}
HANDLER(Wait, moment(TraceKind::wait, 0, false))

inline uint64_t size_of(size_t* pitch, size_t, size_t height, unsigned int) { return *pitch * height; }
template <class... Rest>
uint64_t size_of(size_t bytes, Rest...) {
    return bytes;
}
template <class... Rest>
uint64_t size_of(unsigned int bytes, Rest...) {
    return bytes;
}
template <class... Rest>
uint64_t size_of(unsigned int* pitch, unsigned int, unsigned int height, Rest...) {
    return uint64_t{*pitch} * height;
}

// The size of an allocation may be the driver's choice, so it is told afterwards.
template <int index, bool per_thread, class Function>
struct Allocate;
template <int index, bool per_thread, class Address, class... Rest>
struct Allocate<index, per_thread, CUresult(Address*, Rest...)> {
    static CUresult call(Address* address, Rest... rest) {
        CUresult result = call_under<index>(address, rest...);
        if (result != CUDA_SUCCESS) return result;
        uint64_t bytes = size_of(rest...);
        RecordedCall call(moment(TraceKind::allocate, bytes, has_stream<Rest...>), stream_in(rest...), per_thread);
        if (tenant::Recorder* recorder = tenant::Recorder::current_if_on()) recorder->saw_allocation(*address, bytes);
        return call.result(result);
    }
};

template <int index, bool per_thread, class Function>
struct Free;
template <int index, bool per_thread, class Address, class... Rest>
struct Free<index, per_thread, CUresult(Address, Rest...)> {
    static CUresult call(Address address, Rest... rest) {
        tenant::Recorder* recorder = tenant::Recorder::current_if_on();
        uint64_t bytes = recorder ? recorder->take_allocation(address) : 0;
        CUresult result =
            recorded<index, per_thread>(moment(TraceKind::free, bytes, has_stream<Rest...>), address, rest...);
        if (result != CUDA_SUCCESS && bytes) recorder->saw_allocation(address, bytes);
        return result;
    }
};

template <int index, bool per_thread, class Function>
struct Instantiate;
template <int index, bool per_thread, class... Rest>
struct Instantiate<index, per_thread, CUresult(CUgraphExec*, CUgraph, Rest...)> {
    static CUresult call(CUgraphExec* exec, CUgraph graph, Rest... rest) {
        CUresult result = call_under<index>(exec, graph, rest...);
        if (result == CUDA_SUCCESS && exec)
            if (tenant::Recorder* recorder = tenant::Recorder::current()) recorder->saw_graph(*exec, graph);
        return result;
    }
};

template <int index, bool per_thread, class Function>
struct Unload;
template <int index, bool per_thread, class What>
struct Unload<index, per_thread, CUresult(What)> {
    static CUresult call(What what) {
        if (tenant::Recorder* recorder = tenant::Recorder::current_if_on()) recorder->saw_unload();
        return call_under<index>(what);
    }
};

// Contexts, and devices whose primary context it is.
template <int index, bool per_thread, class Function>
struct EndContext;
template <int index, bool per_thread, class Which>
struct EndContext<index, per_thread, CUresult(Which)> {
    static CUresult call(Which which) {
        tenant::EndingContext ending(which);
        return call_under<index>(which);
    }
};

template <int index, bool per_thread, class Function>
struct DetachContext {
    static CUresult call(CUcontext context) {
        if (tenant::is_attached(context)) return call_under<index>(context);
        return EndContext<index, per_thread, Function>::call(context);
    }
};

struct Wrapper {
    int index;
    void* function;
};

#define RECORD(handler, function, per_thread) \
    {Index::function, reinterpret_cast<void*>(&handler<Index::function, per_thread, decltype(::function)>::call)},
const Wrapper wrappers[] = {
#include "record.inc"
};
#undef RECORD

template <class Function>
void take(Function*& place, int index) {
    if (driver_has(index)) place = reinterpret_cast<Function*>(real[index]);
}

}  // namespace

void wrap_for_recording(void** hooks) {
    const char* path = getenv("COTENANT_RECORD");
    if (!path || !*path) return;
    tenant::RecorderCalls& calls = tenant::recorder_calls;
    take(calls.cuFuncGetName, Index::cuFuncGetName);
    take(calls.cuKernelGetName, Index::cuKernelGetName);
    take(calls.cuOccupancyMaxActiveBlocksPerMultiprocessor, Index::cuOccupancyMaxActiveBlocksPerMultiprocessor);
    take(calls.cuFuncGetAttribute, Index::cuFuncGetAttribute);
    take(calls.cuKernelGetAttribute, Index::cuKernelGetAttribute);
    take(calls.cuPointerGetAttribute, Index::cuPointerGetAttribute);
    take(calls.cuDeviceGetName, Index::cuDeviceGetName);
    take(calls.cuDeviceGetAttribute, Index::cuDeviceGetAttribute);
    take(calls.cuDeviceTotalMem_v2, Index::cuDeviceTotalMem_v2);
    take(calls.cuDriverGetVersion, Index::cuDriverGetVersion);
    for (const Wrapper& wrapper : wrappers) {
        under[wrapper.index] = hooks[wrapper.index] ? hooks[wrapper.index] : real[wrapper.index];
        hooks[wrapper.index] = wrapper.function;
    }
}

}  // namespace shim
