// A tenant whose memory can move, without its watcher and its mover's thread: memory on two GPUs, in a segment with
// other tenants that do nothing by themselves, by a clock of the test's own and over a driver whose calls fail when
// told to. For mover.cpp and space.cpp.
#pragma once

#include "tenant/memory/mover.cpp"

#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "../require.h"
#include "../wire/cases.h"
#include "bare_membership.h"
#include "tenant/context.h"
#include "tenant/context_end.h"
#include "tenant/green_contexts.h"
#include "tenant/identity_file.h"
#include "tenant/memory/ipc_export.h"
#include "tenant/settings.h"
#include "wire/border.h"

namespace {

constexpr uint64_t kPage = tenant::kMemoryPage, kMs = 1000000;
CUcontext const kContext = reinterpret_cast<CUcontext>(0x100), kOther = reinterpret_cast<CUcontext>(0x200);

CUstream const kBusy = reinterpret_cast<CUstream>(5);

uint64_t clock_ns = uint64_t{1} << 50, tick_ns = 1000;
std::function<void()> meanwhile;  // whenever somebody looks at the clock

// The driver. A failure is of one kind of call, from the n-th on (0: the next).
struct Failing {
    long from = -1, calls = 0;
    bool operator()() { return from >= 0 && calls++ >= from; }
} no_memory, no_copy, no_release;
std::map<CUstream, int> life_of_stream;  // of the context that it was made in
std::map<CUcontext, int> lives;
CUcontext current = nullptr;
uint64_t handles = 0, streams = 0;
std::vector<CUdeviceptr> saved;
std::function<void()> at_create;

void install() {
    using tenant::driver;
    driver.cuCtxSetCurrent = [](CUcontext context) {
        current = context;
        return CUDA_SUCCESS;
    };
    driver.cuCtxGetCurrent = [](CUcontext* out) { return *out = current, CUDA_SUCCESS; };
    driver.cuMemCreate = [](CUmemGenericAllocationHandle* out, size_t, const CUmemAllocationProp*, unsigned long long) {
        if (at_create) at_create();
        *out = ++handles;
        return no_memory() ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
    };
    driver.cuMemRelease = [](CUmemGenericAllocationHandle) { return no_release() ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS; };
    driver.cuMemMap = [](CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long) {
        return CUDA_SUCCESS;
    };
    driver.cuMemUnmap = [](CUdeviceptr, size_t) { return CUDA_SUCCESS; };
    driver.cuMemAddressFree = [](CUdeviceptr, size_t) { return CUDA_SUCCESS; };
    driver.cuMemSetAccess = [](CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) { return CUDA_SUCCESS; };
    driver.cuStreamCreate = [](CUstream* out, unsigned int) {
        life_of_stream[*out = reinterpret_cast<CUstream>(++streams)] = lives[current];
        return CUDA_SUCCESS;
    };
    driver.cuStreamSynchronize = [](CUstream stream) {
        REQUIRE(life_of_stream.at(stream) == lives[current]);
        return CUDA_SUCCESS;
    };
    driver.cuMemcpyDtoHAsync_v2 = [](void*, CUdeviceptr from, size_t, CUstream stream) {
        REQUIRE(life_of_stream.at(stream) == lives[current]);
        saved.push_back(from);
        return no_copy() ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
    };
    driver.cuMemcpyHtoDAsync_v2 = [](CUdeviceptr, const void*, size_t, CUstream) { return CUDA_SUCCESS; };
    driver.cuMemHostRegister_v2 = [](void*, size_t, unsigned int) { return CUDA_SUCCESS; };
    driver.cuMemHostUnregister = [](void*) { return CUDA_SUCCESS; };
    driver.cuDeviceGetUuid_v2 = [](CUuuid* out, CUdevice device) {
        memset(out->bytes, 1 + device, sizeof out->bytes);
        return CUDA_SUCCESS;
    };
    driver.cuDeviceTotalMem_v2 = [](size_t* out, CUdevice device) {
        *out = (device ? 100 : 50) * kPage;
        return CUDA_SUCCESS;
    };
    driver.cuStreamQuery = [](CUstream stream) { return stream == kBusy ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS; };
    driver.cuEventQuery = [](CUevent) { return CUDA_ERROR_NOT_READY; };
}

// What the rest of the tenant is asked, and what it answers.
bool is_up = false, can_be_raised = true, is_over = false, is_interrupted = false;
bool boundary_is_near = false;
uint64_t boundary_by_ns = 0;
int let_goes = 0, steps = 0, notices = 0, ended_notices = 0;
auto drained = tenant::used_contexts::Drained::yes;
std::function<bool()> deferred;
tenant::UnusedRanges::Range unused{};
struct Noted {
    tenant::timeline::Event event;
    uint64_t begin_ns, end_ns, value;
};
std::vector<Noted> noted;
std::map<std::string, std::string> settings;

}  // namespace

uint64_t wire::now_ns() {
    if (meanwhile) meanwhile();
    return clock_ns += tick_ns;
}
void wire::ask_clock_again_in_child() {}

namespace tenant {

DriverCalls driver;
std::atomic<bool> Still::memory_moves{false};
void Still::enter() { entered_ = true; }
void Still::leave() {}
Outside::Outside() : depth_(0) {}
Outside::~Outside() = default;
bool Outside::end_if_down() { return !is_up; }
bool move_barrier::raise(uint64_t) { return is_up = can_be_raised; }
void move_barrier::lower() { is_up = false; }
void move_barrier::lower_at_exit() { is_over = true; }
bool step_boundary::is_worth_waiting(uint64_t now, uint64_t latest_ns) {
    boundary_by_ns = latest_ns - now;
    return boundary_is_near;
}
void step_boundary::let_go() { ++let_goes; }
void step_boundary::begin_step() { ++steps; }
void pause_notice::begin() { ++notices; }
void pause_notice::end() { ++ended_notices; }
bool pause_notice::is_interrupted() { return ::is_interrupted; }
void used_contexts::begin_to_drain() {}
Drained used_contexts::have_drained() { return drained; }
UnusedRanges ask_for_unused_ranges() { return {&unused, unused.bytes ? 1u : 0u}; }
bool free_deferred() { return deferred && deferred(); }
std::atomic<timeline::Ring*> timeline::on{nullptr};
void timeline::note(Event event, int, uint64_t begin_ns, uint64_t end_ns, uint64_t value, uint8_t, uint32_t) {
    noted.push_back({event, begin_ns, end_ns, value});
}
timeline::Interval::Interval(Event event, int gpu, uint64_t value)
    : event_(event), gpu_(gpu), value_(value), began_ns_(0) {}
timeline::Interval::~Interval() = default;
CUcontext owner_of(CUcontext context) { return context; }
const char* setting(const char* name) { return settings.count(name) ? settings[name].c_str() : nullptr; }
wire::Class class_from_environment() { return wire::opportunistic; }
void end_export(CUdeviceptr) {}
void end_exports_of(Chunk&) {}

void Membership::beat(uint64_t now) { slot_->heartbeat_ns.store(now); }

}  // namespace tenant

namespace {

using namespace tenant;

// The GPUs are numbered in the order of their first use: the second device is GPU 0 with 100 pages, the first GPU 1
// with 50.
constexpr int kBig = 0, kSmall = 1;
struct Scene {
    wire::Segment& segment;
    Membership& membership;
    wire::Slot& slot;
    wire::Slot::Residence& mine;
    Mover mover;

    explicit Scene(wire::Segment& here)
        : segment((all = &here, here.header.knobs.stale_ms.store(60000), here)),
          membership(*Membership::current()),
          slot(membership.slot()),
          mine(slot.residence),
          mover(membership) {
        phase.store(stopped);                                               // nobody starts another
        wire::set_memory_knobs(segment.header, {1, uint64_t{1} << 40, 0});  // no headroom
        slot.heartbeat_ns.store(clock_ns);
        tell<AtJoin>([&](const AtJoin& one) { one.act(segment, slot); });
        own_quota(slot, 0);
        REQUIRE(place_of_device(1).gpu == kBig && place_of_device(0).gpu == kSmall);
        for (int gpu : {kBig, kSmall}) slot.gpus[gpu].figures.bursts.store(1);  // it works on both
    }

    // Another tenant, with so much that cannot move.
    wire::Slot& other(wire::Class tenant_class, uint64_t big = 0, uint64_t small = 0) {
        int index = wire::take_slot(segment);
        wire::join_class(segment, index, tenant_class);
        wire::Slot& there = segment.slot(index);
        there.heartbeat_ns.store(clock_ns);
        there.residence.where.store(wire::pinned);
        count_memory(there, kBig, big * kPage);
        count_memory(there, kSmall, small * kPage);
        return there;
    }
    static void wants(wire::Slot& there, int gpu, uint64_t pages, uint64_t since_ns = 1) {
        there.memory[gpu].wanted_bytes.store(pages * kPage);
        there.residence.waiting_since_ns.store(pages ? since_ns : 0);
    }

    Chunk* allocate(int gpu, uint64_t pages, CUcontext context = kContext) {
        static uint64_t last = 0;
        auto* chunk = new Chunk;
        chunk->address = ++last << 30;
        chunk->bytes = chunk->asked = pages * kPage;
        chunk->handle = ++handles;
        chunk->mapped = true;
        chunk->gpu = gpu;
        chunk->context = context;
        chunk->access_count = 1;
        REQUIRE(enter_chunk(chunk) == CUDA_SUCCESS);
        count({&membership, 0, gpu}, chunk->bytes);
        return chunk;
    }

    uint32_t look(uint64_t later_ns = 2000 * kMs) {
        mover.look(clock_ns += later_ns);
        return mine.where.load();
    }
    void ask(uint32_t pause, uint64_t memory = 0) {
        wire::Asked asked{};
        asked.pause = pause;
        asked.memory = memory;
        tell<AtRequest>([&](const AtRequest& one) { one.act(membership, asked); });
    }
    void pause() { ask(2); }
    void resume() { ask(1); }

    bool has(uint64_t big, uint64_t small) const {
        return slot.gpus[kBig].memory_bytes.load() == big * kPage &&
               slot.gpus[kSmall].memory_bytes.load() == small * kPage &&
               memory_of_process(slot, kBig, 0) == big * kPage && memory_of_process(slot, kSmall, 0) == small * kPage;
    }
    bool shows(uint64_t big, uint64_t small) const {
        return slot.memory[kBig].movable_bytes.load() == big * kPage &&
               slot.memory[kSmall].movable_bytes.load() == small * kPage;
    }
    bool waits_for(uint64_t big, uint64_t small) const {
        return slot.memory[kBig].wanted_bytes.load() == big * kPage &&
               slot.memory[kSmall].wanted_bytes.load() == small * kPage;
    }
    bool is_away(uint64_t pages) const {
        return is_up && slot.host_bytes.load() == pages * kPage && mine.where.load() == wire::evicted;
    }
    bool is_back() const {
        return !is_up && slot.host_bytes.load() == 0 && mine.where.load() == wire::resident &&
               mine.waiting_since_ns.load() == 0 && waits_for(0, 0);
    }
};

}  // namespace
