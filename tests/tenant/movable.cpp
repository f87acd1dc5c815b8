// movable CASE: allocations of memory that can move (native/tenant/memory/movable.h), over a driver of this test's own,
// each of whose calls can fail: what is asked for, who shares what, and that nothing is left behind.
#include "tenant/memory/movable.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "../require.h"
#include "joined.h"
#include "tenant/captures.h"
#include "tenant/green_contexts.h"
#include "tenant/identity_file.h"
#include "tenant/memory/deferred_free.h"
#include "tenant/memory/ipc_export.h"
#include "tenant/memory/mover.h"
#include "tenant/memory/residence.h"
#include "tenant/memory/used_contexts.h"
#include "tenant/settings.h"

namespace {

constexpr uint64_t kPage = tenant::kMemoryPage;
CUcontext const kContext = reinterpret_cast<CUcontext>(0x100), kOther = reinterpret_cast<CUcontext>(0x200);
wire::Slot slot{};

// The driver: the devices 0 to 2, of which 0 and 1 reach each other, and only 1 makes what can be exported.
CUcontext current = kContext;
std::set<CUmemGenericAllocationHandle> handles;
std::map<CUdeviceptr, size_t> reserved, mapped;
std::map<CUdeviceptr, size_t> accesses;
CUmemAllocationProp last{};
uint64_t made = 0, addresses = 0;
CUresult create_exportable = CUDA_SUCCESS, create_plain = CUDA_SUCCESS, reserving = CUDA_SUCCESS,
         mapping = CUDA_SUCCESS;
CUresult waiting = CUDA_SUCCESS;
size_t most_accesses = 16;
CUcontext waited_in = nullptr;
auto mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
// The rest of the tenant.
int movers = 0, looks = 0;
std::set<CUdeviceptr> deferred;
uint64_t so_far = 0;
bool can_defer = true, can_export = true, has_handle = true;
std::map<CUcontext, uint64_t> freed_until;

void install() {
    using tenant::driver;
    driver.cuCtxGetCurrent = [](CUcontext* out) { return *out = current, CUDA_SUCCESS; };
    driver.cuCtxSetCurrent = [](CUcontext context) { return current = context, CUDA_SUCCESS; };
    driver.cuCtxSynchronize = [] { return waited_in = current, waiting; };
    driver.cuDeviceGetCount = [](int* out) { return *out = 3, CUDA_SUCCESS; };
    driver.cuDeviceCanAccessPeer = [](int* out, CUdevice one, CUdevice other) {
        return *out = one < 2 && other < 2, CUDA_SUCCESS;
    };
    driver.cuDeviceGetAttribute = [](int* out, CUdevice_attribute, CUdevice device) {
        return *out = device == 1, CUDA_SUCCESS;
    };
    driver.cuMemCreate = [](CUmemGenericAllocationHandle* out, size_t, const CUmemAllocationProp* properties,
                            unsigned long long) {
        last = *properties;
        *out = ++made;
        CUresult result = properties->requestedHandleTypes ? create_exportable : create_plain;
        if (result == CUDA_SUCCESS) handles.insert(made);
        return result;
    };
    driver.cuMemRelease = [](CUmemGenericAllocationHandle handle) {
        REQUIRE(handles.erase(handle) == 1);
        return CUDA_SUCCESS;
    };
    driver.cuMemAddressReserve = [](CUdeviceptr* out, size_t bytes, size_t, CUdeviceptr, unsigned long long) {
        if (reserving == CUDA_SUCCESS) reserved[*out = ++addresses << 32] = bytes;
        return reserving;
    };
    driver.cuMemAddressFree = [](CUdeviceptr at, size_t bytes) {
        REQUIRE(!mapped.count(at) && reserved.at(at) == bytes && reserved.erase(at) == 1);
        return CUDA_SUCCESS;
    };
    driver.cuMemMap = [](CUdeviceptr at, size_t bytes, size_t, CUmemGenericAllocationHandle, unsigned long long) {
        if (mapping == CUDA_SUCCESS) mapped[at] = bytes;
        return mapping;
    };
    driver.cuMemUnmap = [](CUdeviceptr at, size_t bytes) {
        REQUIRE(mapped.at(at) == bytes && mapped.erase(at) == 1);
        return CUDA_SUCCESS;
    };
    driver.cuMemSetAccess = [](CUdeviceptr at, size_t, const CUmemAccessDesc*, size_t count) {
        accesses[at] = count;
        return count <= most_accesses ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
    };
    driver.cuThreadExchangeStreamCaptureMode = [](CUstreamCaptureMode* other) {
        return std::swap(*other, mode), CUDA_SUCCESS;
    };
}

}  // namespace

namespace tenant {

const char* setting(const char*) { return nullptr; }
wire::Class class_from_environment() { return wire::opportunistic; }
CUcontext owner_of(CUcontext context) { return context; }
void start_moving(Membership&) { ++movers; }
void used_contexts::note(CUcontext) {}
void free_some_deferred() { ++looks; }
bool free_deferred() { return false; }
bool is_deferred(CUdeviceptr pointer) { return deferred.count(pointer); }
bool defer_free(CUdeviceptr pointer) { return can_defer && deferred.insert(pointer).second; }
uint64_t deferred_so_far() { return so_far; }
void free_deferred_until(uint64_t number, CUcontext context) { freed_until[context] = number; }
void end_export(CUdeviceptr) {}
void end_exports_of(Chunk&) {}
bool export_chunk(Chunk&) { return can_export; }
bool export_allocation(const Chunk&, CUdeviceptr base, uint64_t bytes, CUipcMemHandle* out) {
    memcpy(out, &base, sizeof base);
    memcpy(out->reserved + sizeof base, &bytes, sizeof bytes);
    return has_handle;
}

}  // namespace tenant

namespace {

using namespace tenant;

Place on(CUdevice device) { return {reinterpret_cast<Membership*>(nobody), device, 2 - device}; }
CUdeviceptr allocate(uint64_t bytes, CUdevice device = 0) {
    CUdeviceptr pointer = 0;
    REQUIRE(allocate_movable(&pointer, bytes, on(device)) == CUDA_SUCCESS && pointer);
    return pointer;
}
CUresult refusal(uint64_t bytes, CUdevice device = 1) {
    CUdeviceptr pointer = 0;
    return allocate_movable(&pointer, bytes, on(device));
}
bool is_empty() {
    return handles.empty() && reserved.empty() && mapped.empty() && residence.chunks.count() == 0 &&
           std::all_of(std::begin(slot.memory), std::end(slot.memory),
                       [](auto& one) { return !one.movable_bytes.load(); });
}
Chunk& around(CUdeviceptr pointer) {
    Chunk* chunk = residence.chunks.containing(pointer);
    REQUIRE(chunk);
    return *chunk;
}
CUresult free_now(CUdeviceptr pointer) {
    CUresult result = CUDA_ERROR_UNKNOWN;
    REQUIRE(free_movable(pointer, &result) == Freed::now);
    return result;
}

// Small ones share a slab with those of their context and GPU only; others have pages of their own.
void sharing() {
    CUdeviceptr first = allocate(1000), second = allocate(1000), large = allocate(2 * kPage + 1);
    REQUIRE(&around(first) == &around(second) && first != second && movers == 3 && looks == 3);
    CUdeviceptr elsewhere = allocate(1000, 1);
    current = kOther;
    CUdeviceptr of_other = allocate(1000);
    REQUIRE(&around(of_other) != &around(first) && &around(elsewhere) != &around(first) && made == 4);
    REQUIRE(around(of_other).context == kOther && around(first).context == kContext && around(elsewhere).gpu == 1);
    REQUIRE(around(large).bytes == 3 * kPage && around(large).asked == 2 * kPage + 1 && !around(large).slab);
    CUdeviceptr small = allocate(Slab::kMostBytes, 2), not_small = allocate(Slab::kMostBytes + 1, 2);
    REQUIRE(around(small).slab && !around(not_small).slab);
    REQUIRE(slot.memory[0].movable_bytes.load() == around(small).bytes + around(not_small).bytes);
    // As cuMemAlloc has it: the GPU itself, and those that reach it.
    REQUIRE(around(first).access_count == 2 && around(first).access[0].location.id == 0);
    REQUIRE(around(first).access[1].location.id == 1 && around(small).access_count == 1);
    REQUIRE(around(elsewhere).access[0].location.id == 1 && around(elsewhere).access[1].location.id == 0);
    // What other processes may get at is asked for where the GPU can.
    REQUIRE(around(elsewhere).properties.requestedHandleTypes && !around(first).properties.requestedHandleTypes);
    REQUIRE(around(elsewhere).properties.allocFlags.gpuDirectRDMACapable &&
            around(elsewhere).properties.location.id == 1);
    REQUIRE(refusal(0) == CUDA_ERROR_NOT_SUPPORTED && refusal(UINT64_MAX) == CUDA_ERROR_NOT_SUPPORTED);
    residence.only_exportable = true;
    REQUIRE(refusal(1, 0) == CUDA_ERROR_NOT_SUPPORTED && refusal(1, 1) == CUDA_SUCCESS);
    Still::memory_moves.store(false);
    REQUIRE(refusal(1, 1) == CUDA_ERROR_NOT_SUPPORTED);
}

// Whatever call fails, nothing is left behind; only a lack of memory is told to the program.
void failing() {
    for (uint64_t bytes : {uint64_t{100}, 3 * kPage}) {
        // What cannot be had with all that was asked for is had without.
        create_exportable = CUDA_ERROR_NOT_PERMITTED;
        CUdeviceptr plain = allocate(bytes, 1);
        REQUIRE(!around(plain).properties.requestedHandleTypes && !last.allocFlags.gpuDirectRDMACapable);
        REQUIRE(free_now(plain) == CUDA_SUCCESS && is_empty());
        create_plain = CUDA_ERROR_UNKNOWN;
        REQUIRE(refusal(bytes) == CUDA_ERROR_NOT_SUPPORTED && is_empty());
        create_plain = CUDA_SUCCESS;
        create_exportable = CUDA_ERROR_OUT_OF_MEMORY;
        uint64_t before = made;
        REQUIRE(refusal(bytes) == CUDA_ERROR_OUT_OF_MEMORY && is_empty() && made == before + 1);
        create_exportable = CUDA_SUCCESS;
        reserving = CUDA_ERROR_OUT_OF_MEMORY;
        REQUIRE(refusal(bytes) == CUDA_ERROR_OUT_OF_MEMORY && is_empty());
        reserving = CUDA_SUCCESS;
        mapping = CUDA_ERROR_UNKNOWN;
        REQUIRE(refusal(bytes) == CUDA_ERROR_NOT_SUPPORTED && is_empty());
        mapping = CUDA_SUCCESS;
        // Its peers cannot have it; then not even itself.
        most_accesses = 1;
        CUdeviceptr own = allocate(bytes, 1);
        REQUIRE(around(own).access_count == 1 && accesses[around(own).address] == 1);
        REQUIRE(free_now(own) == CUDA_SUCCESS && is_empty());
        most_accesses = 0;
        REQUIRE(refusal(bytes) == CUDA_ERROR_NOT_SUPPORTED && is_empty());
        most_accesses = 16;
    }
}

// A free waits for the context of the allocation, whichever is current; in a capture it comes later, or not at all.
void freeing() {
    CUdeviceptr first = allocate(1000), second = allocate(1000), large = allocate(kPage);
    current = kOther;
    so_far = 7;
    REQUIRE(free_now(first) == CUDA_SUCCESS && waited_in == kContext && current == kOther &&
            freed_until[kContext] == 7);
    REQUIRE(!is_movable(first) && is_movable(second));
    CUresult result = CUDA_SUCCESS;
    for (CUdeviceptr other : {first, second + 1, CUdeviceptr{0}})
        REQUIRE(free_movable(other, &result) == Freed::not_ours);
    waiting = CUDA_ERROR_LAUNCH_FAILED;
    so_far = 8;
    REQUIRE(free_now(large) == CUDA_ERROR_LAUNCH_FAILED && is_movable(large) && freed_until[kContext] == 7);
    waiting = CUDA_SUCCESS;
    current = nullptr;
    REQUIRE(free_movable(large, &result) == Freed::not_ours);
    current = kContext;
    // In a capture of this thread the driver refuses, unless the thread is relaxed; and the mode stays.
    waited_in = nullptr;
    captures.add(1, kContext, CU_STREAM_CAPTURE_MODE_GLOBAL);
    REQUIRE(free_movable(large, &result) == Freed::not_ours && refusal(1) == CUDA_ERROR_NOT_SUPPORTED);
    REQUIRE(mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
    mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    REQUIRE(refusal(1) == CUDA_SUCCESS && mode == CU_STREAM_CAPTURE_MODE_RELAXED);
    REQUIRE(free_movable(large, &result) == Freed::later && result == CUDA_SUCCESS && is_movable(large));
    REQUIRE(free_now(large) == CUDA_ERROR_INVALID_VALUE);
    can_defer = false;
    REQUIRE(free_now(second) == CUDA_ERROR_OUT_OF_MEMORY && is_movable(second) && !waited_in);
    captures.remove_all_of(kContext);
    REQUIRE(free_now(second) == CUDA_SUCCESS && waited_in == kContext);
}

// What is exported stays where it is, also where no handle can be made of it.
void exporting() {
    CUdeviceptr small = allocate(1000, 1), whole = allocate(kPage, 1), third = allocate(kPage, 1);
    CUipcMemHandle handle{};
    auto base_of = [&] {
        CUdeviceptr base = 0;
        memcpy(&base, &handle, sizeof base);
        return base;
    };
    REQUIRE(export_movable(whole + 5, &handle) && base_of() == whole && around(whole).pinned && !around(small).pinned);
    REQUIRE(slot.memory[1].movable_bytes.load() == Slab::kBytes + kPage);
    has_handle = false;
    REQUIRE(!export_movable(small, &handle) && around(small).pinned);
    can_export = false;
    REQUIRE(!export_movable(third, &handle) && !around(third).pinned);
    REQUIRE(!export_movable(third + kPage, &handle) && !export_movable(third, nullptr));
    REQUIRE(slot.memory[1].movable_bytes.load() == kPage);
}

}  // namespace

int main(int argc, char** argv) {
    install();
    residence.slot = &slot;
    std::map<std::string, void (*)()> cases{
        {"sharing", sharing}, {"failing", failing}, {"freeing", freeing}, {"exporting", exporting}};
    const char* name = argc > 1 ? argv[1] : "";
    if (!cases.count(name)) return 2;
    cases[name]();
    return 0;
}
