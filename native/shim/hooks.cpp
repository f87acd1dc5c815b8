// The handler of each hooked function: a few lines around the driver's. hooks.list says which functions these are; the
// build expands it into hooks.inc, one HOOK(handler, function, per_thread) a line.
#include "shim/hooks.h"

#include <cstring>
#include <type_traits>

#include "shim/detour_hooks.h"
#include "shim/driver.h"
#include "shim/memory_hooks.h"
#include "shim/moving_hooks.h"
#include "shim/record_hooks.h"
#include "tenant/attached_contexts.h"
#include "tenant/blocking_call.h"
#include "tenant/context_end.h"
#include "tenant/detour.h"
#include "tenant/graphs.h"
#include "tenant/green_contexts.h"
#include "tenant/host_copies.h"
#include "tenant/lane_events.h"
#include "tenant/launch_rule.h"
#include "tenant/notice.h"
#include "tenant/tenant.h"
#include "tenant/timeline.h"
#include "tenant/uncovered.h"
#include "tenant/wait_for_all.h"

namespace shim {

namespace {

using tenant::Kind;
using For = tenant::BlockingCall::For;
using tenant::timeline::Event;
using tenant::timeline::Interval;
// Whether an operation occupies the GPU, and so has to pass the gate.
enum class Load { gpu, none };

// The stream among a call's arguments; the default stream where it has none.
inline CUstream stream_in() { return nullptr; }
template <class First, class... Rest>
CUstream stream_in(First first, Rest... rest) {
    if constexpr (std::is_same_v<First, CUstream>)
        return first;
    else if constexpr (std::is_same_v<First, const CUlaunchConfig*>)
        return first ? first->hStream : nullptr;
    else
        return stream_in(rest...);
}

// The mode among the arguments of a call that begins a capture; the first version of that call has none.
inline CUstreamCaptureMode mode_in() { return CU_STREAM_CAPTURE_MODE_GLOBAL; }
template <class First, class... Rest>
CUstreamCaptureMode mode_in(First first, Rest... rest) {
    if constexpr (std::is_same_v<First, CUstreamCaptureMode>)
        return first;
    else
        return mode_in(rest...);
}

inline CUgraphExec exec_in(CUgraphExec exec, CUstream) { return exec; }

// What makes two calls alike, so that they take the same time: the kernel or graph, its dimensions, the bytes (to an
// eighth of their size).
inline uint64_t rounded(size_t bytes) {
    int digits = bytes ? 63 - __builtin_clzll(bytes) : 0;
    return digits > 3 ? bytes >> (digits - 3) << (digits - 3) : bytes;
}
template <class Argument>
tenant::Shape add_to_shape(tenant::Shape shape, Argument argument) {
    if constexpr (std::is_same_v<Argument, CUfunction> || std::is_same_v<Argument, CUgraphExec>)
        return tenant::mix(shape, reinterpret_cast<uintptr_t>(argument));
    else if constexpr (std::is_same_v<Argument, CUdeviceptr>)
        return shape;
    else if constexpr (std::is_same_v<Argument, size_t>)
        return tenant::mix(shape, rounded(argument));
    else if constexpr (std::is_integral_v<Argument>)
        return tenant::mix(shape, static_cast<uint64_t>(argument));
    else if constexpr (std::is_same_v<Argument, const CUDA_MEMCPY2D*> || std::is_same_v<Argument, const CUDA_MEMCPY3D*>)
        return argument ? tenant::mix(shape, rounded(argument->WidthInBytes * argument->Height)) : shape;
    else
        return shape;
}
template <int index, class... Arguments>
tenant::Shape shape_of(Arguments... arguments) {
    tenant::Shape shape = index + 2;
    ((shape = add_to_shape(shape, arguments)), ...);
    return shape;
}
template <int index, class... Rest>
tenant::Shape shape_of(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
                       unsigned int by, unsigned int bz, unsigned int shared_bytes, Rest...) {
    return tenant::kernel_shape(function, {gx, gy, gz}, {bx, by, bz}, shared_bytes);
}
template <int index, class... Rest>
tenant::Shape shape_of(const CUlaunchConfig* at, CUfunction function, Rest...) {
    if (!at) return 0;
    return tenant::kernel_shape(function, {at->gridDimX, at->gridDimY, at->gridDimZ},
                                {at->blockDimX, at->blockDimY, at->blockDimZ}, at->sharedMemBytes);
}
template <int index>
tenant::Shape shape_of(CUgraphExec exec, CUstream) {
    return tenant::graph_shape(exec);
}

// Of a kernel, for a rule that is asked at its launch.
template <class... Arguments>
tenant::KernelSize size_of(Arguments...) {
    return {};
}
template <class... Rest>
tenant::KernelSize size_of(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
                           unsigned int by, unsigned int bz, unsigned int shared_bytes, Rest...) {
    return {function, {gx, gy, gz}, {bx, by, bz}, shared_bytes};
}
template <class... Rest>
tenant::KernelSize size_of(const CUlaunchConfig* at, CUfunction function, Rest...) {
    if (!at) return {};
    return {function,
            {at->gridDimX, at->gridDimY, at->gridDimZ},
            {at->blockDimX, at->blockDimY, at->blockDimZ},
            at->sharedMemBytes};
}

// Before the driver is called with work for the GPU.
template <int index, class... Arguments>
void admit(tenant::Work& work, Arguments... arguments) {
    if (work.passes_gates()) work.pass_gate(shape_of<index>(arguments...));
    if (__builtin_expect(work.asks_rule(), 0)) work.ask_rule(shape_of<index>(arguments...), size_of(arguments...));
}

template <Kind kind, Load load, int index, bool per_thread, class Function>
struct Enqueue;
template <Kind kind, Load load, int index, bool per_thread, class... Arguments>
struct Enqueue<kind, load, index, per_thread, CUresult(Arguments...)> {
    static CUresult call(Arguments... arguments) {
        tenant::Work work(kind, stream_in(arguments...), per_thread);
        if (work.is_too_late()) return CUDA_ERROR_DEINITIALIZED;
        if constexpr (kind == Kind::graph) work.launches(exec_in(arguments...));
        if constexpr (kind == Kind::copy) {
            Interval copying(Event::copy, work.gpu());
            admit<index>(work, arguments...);
            return work.result(call_real<index>(arguments...));
        }
        if (load == Load::gpu) admit<index>(work, arguments...);
        return work.result(call_real<index>(arguments...));
    }
};

template <int index, bool per_thread, class Function>
struct Kernel : Enqueue<Kind::kernel, Load::gpu, index, per_thread, Function> {};
// One launch on each of several devices, each in a stream of its own, all of them or none.
template <int index, bool per_thread, class Function>
struct KernelOnSeveral {
    static CUresult call(CUDA_LAUNCH_PARAMS* launches, unsigned int count, unsigned int flags) {
        return from(0, launches, count, flags);
    }

 private:
    static CUresult from(unsigned int first, CUDA_LAUNCH_PARAMS* launches, unsigned int count, unsigned int flags) {
        if (!launches || first >= count || first >= kMost) return call_real<index>(launches, count, flags);
        const CUDA_LAUNCH_PARAMS& here = launches[first];
        tenant::Work work(Kind::kernel, here.hStream, per_thread);
        if (work.is_too_late()) return CUDA_ERROR_DEINITIALIZED;
        admit<index>(work, here.function, here.gridDimX, here.gridDimY, here.gridDimZ, here.blockDimX, here.blockDimY,
                     here.blockDimZ, here.sharedMemBytes);
        return work.result(from(first + 1, launches, count, flags));
    }
    static constexpr unsigned int kMost = 64;  // whatever a program says; no machine has more GPUs
};

template <int index, bool per_thread, class Function>
struct Graph : Enqueue<Kind::graph, Load::gpu, index, per_thread, Function> {};
template <int index, bool per_thread, class Function>
struct Copy : Enqueue<Kind::copy, Load::gpu, index, per_thread, Function> {};

template <class To, class From>
constexpr tenant::Way way_of() {
    if (std::is_pointer_v<From>) return tenant::Way::to_gpu;
    return std::is_pointer_v<To> ? tenant::Way::to_host : tenant::Way::unknown;
}
inline uint64_t address_of(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }
inline uint64_t address_of(uint64_t pointer) { return pointer; }
template <class Pointer>
Pointer behind(Pointer pointer, size_t bytes) {
    if constexpr (std::is_pointer_v<Pointer>)
        return reinterpret_cast<Pointer>(reinterpret_cast<uintptr_t>(pointer) + bytes);
    else
        return static_cast<Pointer>(pointer + bytes);
}
template <int index, bool per_thread, class Function>
struct HostCopy;
template <int index, bool per_thread, class To, class From, class Size, class... Stream>
struct HostCopy<index, per_thread, CUresult(To, From, Size, Stream...)> {
    static CUresult call(To to, From from, Size bytes, Stream... stream) {
        tenant::HostCopy copy{way_of<To, From>(), address_of(to), address_of(from), bytes};
        tenant::Work work(Kind::copy, stream_in(stream...), per_thread, tenant::bus_bytes(copy));
        if (work.is_too_late()) return CUDA_ERROR_DEINITIALIZED;
        if (!sizeof...(Stream)) work.ends_with_call();
        Interval copying(Event::copy, work.gpu(), bytes);
        bool waits = !sizeof...(Stream) && way_of<To, From>() == tenant::Way::to_host;
        tenant::BlockingCall blocking(waits ? For::stream_or_event : For::nothing);
        if (!work.passes_gates()) return work.result(call_real<index>(to, from, bytes, stream...));
        tenant::CopyAhead ahead(work, copy);
        if (ahead.result() != CUDA_SUCCESS) return ahead.result();
        auto rest = static_cast<Size>(bytes - ahead.bytes());
        work.pass_gate(shape_of<index>(to, from, rest, stream...));
        return work.result(call_real<index>(behind(to, ahead.bytes()), behind(from, ahead.bytes()), rest, stream...));
    }
};
template <int index, bool per_thread, class Function>
struct Fill : Enqueue<Kind::memory_op, Load::gpu, index, per_thread, Function> {};
template <int index, bool per_thread, class Function>
struct StreamOp : Enqueue<Kind::memory_op, Load::none, index, per_thread, Function> {};
template <int index, bool per_thread, class Function>
struct HostCall : Enqueue<Kind::host_call, Load::none, index, per_thread, Function> {};

template <int index, bool per_thread, class Function>
struct Wait;
template <int index, bool per_thread, class... Arguments>
struct Wait<index, per_thread, CUresult(Arguments...)> {
    static CUresult call(Arguments... arguments) {
        tenant::BlockingCall blocking(For::stream_or_event);
        return call_real<index>(arguments...);
    }
};

template <int index, bool per_thread, class Function>
struct WaitForContext;
template <int index, bool per_thread, class... Arguments>
struct WaitForContext<index, per_thread, CUresult(Arguments...)> {
    static CUresult call(Arguments... arguments) {
        tenant::WaitForAll for_all;
        tenant::BlockingCall blocking(For::context);
        return call_real<index>(arguments...);
    }
};

template <int index, bool per_thread, class Function>
struct Passed;
template <int index, bool per_thread, class... Arguments>
struct Passed<index, per_thread, CUresult(Arguments...)> {
    static CUresult call(Arguments... arguments) { return call_real<index>(arguments...); }
};

template <int index, bool per_thread, class Function>
struct RecordEvent;
template <int index, bool per_thread, class... Flags>
struct RecordEvent<index, per_thread, CUresult(CUevent, CUstream, Flags...)> {
    static CUresult call(CUevent event, CUstream stream, Flags... flags) {
        CUresult result = call_real<index>(event, stream, flags...);
        if (result == CUDA_SUCCESS && tenant::Membership::lanes_open()) tenant::note_recorded(event, stream);
        return result;
    }
};
template <int index, bool per_thread, class Function>
struct WaitForEvent {
    static CUresult call(CUstream stream, CUevent event, unsigned int flags) {
        tenant::WaitingForEvent waiting(stream, event, per_thread);
        return call_real<index>(stream, event, flags);
    }
};

template <int index, bool per_thread, class Function>
struct Instantiate;
template <int index, bool per_thread, class... Rest>
struct Instantiate<index, per_thread, CUresult(CUgraphExec*, CUgraph, Rest...)> {
    static CUresult call(CUgraphExec* exec, CUgraph graph, Rest... rest) {
        tenant::Still still;
        tenant::GraphReservation reserved(graph);
        if (reserved.refused()) return CUDA_ERROR_OUT_OF_MEMORY;
        tenant::GatedGraph gated(graph);
        bool has_gates = gated.exists() && call_real<index>(exec, gated.clone(), rest...) == CUDA_SUCCESS;
        CUresult result = has_gates ? CUDA_SUCCESS : call_real<index>(exec, graph, rest...);
        if (result != CUDA_SUCCESS) return result;
        tenant::forget_exec(*exec);  // one that ended with its context may have had this handle
        if (has_gates)
            gated.keep_for(*exec);
        else
            gated.note_ungated(*exec);
        reserved.keep_for(*exec);
        return result;
    }
};

inline void name_originals(const tenant::GatedGraph& gated, CUgraphNode* error_node, CUgraphExecUpdateResult*) {
    if (error_node) *error_node = gated.original_of(*error_node);
}
inline void name_originals(const tenant::GatedGraph& gated, CUgraphExecUpdateResultInfo* info) {
    if (!info) return;
    info->errorNode = gated.original_of(info->errorNode);
    info->errorFromNode = gated.original_of(info->errorFromNode);
}

template <int index, bool per_thread, class Function>
struct UpdateExec;
template <int index, bool per_thread, class... Results>
struct UpdateExec<index, per_thread, CUresult(CUgraphExec, CUgraph, Results...)> {
    static CUresult call(CUgraphExec exec, CUgraph graph, Results... results) {
        tenant::Still still;
        tenant::GatedGraph gated(graph, exec);
        if (!gated.exists()) return call_real<index>(exec, graph, results...);
        CUresult result = call_real<index>(exec, gated.clone(), results...);
        // After any other error they need not have been written.
        if (result == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE) name_originals(gated, results...);
        return result;
    }
};

template <int index, bool per_thread, class Function>
struct NodeOfExec;
template <int index, bool per_thread, class... Rest>
struct NodeOfExec<index, per_thread, CUresult(CUgraphExec, CUgraphNode, Rest...)> {
    static CUresult call(CUgraphExec exec, CUgraphNode node, Rest... rest) {
        tenant::Still still;
        return call_real<index>(exec, tenant::node_in_exec(exec, node), rest...);
    }
};

// A child graph that an exec with gates inside it is to be updated with needs the same gates.
template <int index, bool per_thread, class Function>
struct ChildOfExec;
template <int index, bool per_thread>
struct ChildOfExec<index, per_thread, CUresult(CUgraphExec, CUgraphNode, CUgraph)> {
    static CUresult call(CUgraphExec exec, CUgraphNode node, CUgraph child) {
        tenant::Still still;
        CUgraphNode in_exec = tenant::node_in_exec(exec, node);
        tenant::GatedGraph gated(child, exec, in_exec);
        return call_real<index>(exec, in_exec, gated.exists() ? gated.clone() : child);
    }
};
template <int index, bool per_thread>
struct ChildOfExec<index, per_thread, CUresult(CUgraphExec, CUgraphNode, CUgraphNodeParams*)> {
    static CUresult call(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams* parameters) {
        tenant::Still still;
        CUgraphNode in_exec = tenant::node_in_exec(exec, node);
        if (!parameters || parameters->type != CU_GRAPH_NODE_TYPE_GRAPH)
            return call_real<index>(exec, in_exec, parameters);
        tenant::GatedGraph gated(parameters->graph.graph, exec, in_exec);
        CUgraphNodeParams with_gates = *parameters;
        if (gated.exists()) with_gates.graph.graph = gated.clone();
        return call_real<index>(exec, in_exec, &with_gates);
    }
};

template <int index, bool per_thread, class Function>
struct DestroyExec {
    static CUresult call(CUgraphExec exec) {
        tenant::EndingExec ending(exec);
        tenant::EndingGraphMemory memory(exec);
        return memory.result(ending.result(call_real<index>(exec)));
    }
};

template <int index, bool per_thread, class Function>
struct BeginCapture;
template <int index, bool per_thread, class... Arguments>
struct BeginCapture<index, per_thread, CUresult(Arguments...)> {
    static CUresult call(Arguments... arguments) {
        tenant::Still still;
        tenant::OpeningCapture opening(stream_in(arguments...), mode_in(arguments...), per_thread);
        return opening.result(call_real<index>(arguments...));
    }
};

template <int index, bool per_thread, class Function>
struct EndCapture;
template <int index, bool per_thread, class... Arguments>
struct EndCapture<index, per_thread, CUresult(Arguments...)> {
    static CUresult call(Arguments... arguments) {
        tenant::EndingCapture ending(stream_in(arguments...), per_thread);
        return call_real<index>(arguments...);
    }
};

template <int index, bool per_thread, class Function>
struct DestroyStream {
    static CUresult call(CUstream stream) {
        tenant::EndingStream ending(stream);
        tenant::end_order_of(stream);
        return ending.result(call_real<index>(stream));
    }
};

template <int index, bool per_thread, class Function>
struct DestroyContext {
    static CUresult call(CUcontext context) {
        tenant::MemoryOfEndingContext memory;
        tenant::DestroyingContext destroying(context);
        CUresult result = call_real<index>(context);
        if (result != CUDA_SUCCESS) return result;
        tenant::context_ended(context);
        return result;
    }
};

template <int index, bool per_thread, class Function>
struct AttachContext {
    static CUresult call(CUcontext* out, unsigned int flags) {
        CUresult result = call_real<index>(out, flags);
        if (result == CUDA_SUCCESS) tenant::note_attached(*out);
        return result;
    }
};

template <int index, bool per_thread, class Function>
struct DetachContext {
    static CUresult call(CUcontext context) {
        if (!tenant::is_attached(context)) return DestroyContext<index, per_thread, Function>::call(context);
        CUresult result = call_real<index>(context);
        if (result == CUDA_SUCCESS) tenant::note_detached(context);
        return result;
    }
};

template <int index, bool per_thread, class Function>
struct CreateGreenContext {
    static CUresult call(CUgreenCtx* out, CUdevResourceDesc description, CUdevice device, unsigned int flags) {
        CUresult result = call_real<index>(out, description, device, flags);
        if (result == CUDA_SUCCESS) tenant::know_green_context(*out, device);
        return result;
    }
};

template <int index, bool per_thread, class Function>
struct DestroyGreenContext {
    // It holds its device's primary context, perhaps as the last one.
    static CUresult call(CUgreenCtx green) {
        CUdevice device = tenant::device_of(green);
        tenant::MemoryOfEndingContext memory;
        tenant::EndingGreenContext ending(green);
        tenant::EndingPools pools(device);
        tenant::ReleasingPrimary releasing(device);
        return ending.result(call_real<index>(green));
    }
};

template <int index, bool per_thread, class Function>
struct ResetPrimary {
    static CUresult call(CUdevice device) {
        tenant::MemoryOfEndingContext memory;
        tenant::EndingPools pools(device);
        tenant::ReleasingPrimary releasing(device);
        return call_real<index>(device);
    }
};

// A version that is newer than those we know. One that takes handles of memory would not know numbers of ours.
inline void hand_out_unknown(const char* name) {
    tenant::count(tenant::Uncovered::unknown_function);
    tenant::detour::give_up(tenant::detour::unknown_function);
    for (const char* binds : {"cuMulticastBind", "cuLogicalEndpointBind"})
        if (strncmp(name, binds, strlen(binds)) == 0) tenant::give_out_drivers_handles();
}

// The driver decides which version a caller gets; we only swap its function for ours. So name, version and flags are
// right whenever the driver is.
template <int index, bool per_thread, class Function>
struct ProcAddress;
template <int index, bool per_thread, class... Rest>
struct ProcAddress<index, per_thread, CUresult(const char*, void**, Rest...)> {
    static CUresult call(const char* name, void** function, Rest... rest) {
        CUresult result = call_real<index>(name, function, rest...);
        if (result != CUDA_SUCCESS || !function || !*function) return result;
        int known = index_of(*function);
        if (known < 0)
            hand_out_unknown(name);
        else if (void* ours = hook_for(known))
            *function = ours;
        return result;
    }
};

// Passed on as it is, and counted.
template <tenant::Uncovered what, int index, class Function>
struct Counted;
template <tenant::Uncovered what, int index, class... Arguments>
struct Counted<what, index, CUresult(Arguments...)> {
    static CUresult call(Arguments... arguments) {
        CUresult result = call_real<index>(arguments...);
        if (result == CUDA_SUCCESS) tenant::count(what);
        return result;
    }
};
template <int index, bool per_thread, class Function>
struct ExportTable : Counted<tenant::Uncovered::export_table, index, Function> {};
template <int index, bool per_thread, class Function>
struct Checkpoint : Counted<tenant::Uncovered::checkpoint, index, Function> {};

struct Hook {
    int index;
    void* function;
};

#define HOOK(handler, function, per_thread) \
    {Index::function, reinterpret_cast<void*>(&handler<Index::function, per_thread, decltype(::function)>::call)},
const Hook hooks[] = {
#include "hooks.inc"
};
#undef HOOK

void* hook_by_index[Index::count];

// The first function that the tenant cannot do without and this driver does not have.
const char* missing_call() {
#define CALL(function) \
    if (!driver_has(Index::function)) return #function;
    TENANT_DRIVER_CALLS(CALL)
#undef CALL
    return nullptr;
}

}  // namespace

void* hook_for(int index) { return hook_by_index[index]; }

void prepare_hooks() {
    if (const char* missing = missing_call()) {
        tenant::notice_once("this driver has no %s", missing);
        return;
    }
    install_detours();
#define CALL(function) tenant::driver.function = reinterpret_cast<decltype(&::function)>(real[Index::function]);
    TENANT_DRIVER_CALLS(CALL)
    TENANT_MEMORY_CALLS(CALL)
    TENANT_GRAPH_CALLS(CALL)
    TENANT_LANE_CALLS(CALL)
    TENANT_RULE_CALLS(CALL)
    TENANT_HOLD_CALLS(CALL)
    TENANT_MOVING_CALLS(CALL)
#undef CALL
    keep_own_calls_direct();
#define CALL(function) \
    tenant::naming.function = reinterpret_cast<decltype(tenant::naming.function)>(real[Index::function]);
    CALL(cuFuncGetName)
    CALL(cuKernelGetName)
    CALL(cuDeviceGetName)
#undef CALL
    for (const Hook& hook : hooks) hook_by_index[hook.index] = hook.function;
    wrap_for_recording(hook_by_index);
}

}  // namespace shim
