#include "tenant/memory/ledger.h"

#include "tenant/context.h"
#include "tenant/context_end.h"
#include "tenant/fork.h"
#include "tenant/green_contexts.h"
#include "tenant/membership.h"
#include "tenant/memory/quota.h"
#include "tenant/memory/table.h"
#include "wire/border.h"

namespace tenant {

namespace {

constexpr int kNotAsked = -2;

struct Device {
    std::atomic<int> gpu{kNotAsked};
    std::atomic<uint64_t> total{0};
} devices[kMostDevices];

Lock lock{Rank::ledger};
Lock meeting_lock{Rank::meeting_device};
MemoryTable<Allocation> allocations;  // by address or handle: both are addresses of this process
SharedPages pages;
uint64_t small_arrays[wire::kGpus];
std::atomic<uint64_t> unseen[wire::kGpus];
std::atomic<uint64_t> begun{0}, ended{0};

void forget_in_child() {
    lock.renew();
    meeting_lock.renew();
    allocations.abandon();
    pages.abandon();
    for (auto& bytes : small_arrays) bytes = 0;
    for (auto& bytes : unseen) bytes.store(0);
    for (Device& device : devices) device.gpu.store(kNotAsked);
    ended.store(begun.load());
}
LISTEN(AtFork, ForkStep::ledger, forget_in_child)

bool is_small_array(const Allocation& allocation) {
    return allocation.kind == MemoryKind::array && allocation.bytes <= kMemoryPage / 2;
}

// What the driver has more for it.
uint64_t enter(uint64_t key, const Allocation& allocation) {
    if (allocation.kind == MemoryKind::pages) return pages.enter(key, allocation.bytes);
    if (is_small_array(allocation)) {
        uint64_t before = in_pages(small_arrays[allocation.gpu]);
        return in_pages(small_arrays[allocation.gpu] += allocation.bytes) - before;
    }
    uint64_t bytes = in_pages(allocation.bytes);
    if (allocation.kind == MemoryKind::managed || allocation.kind == MemoryKind::external)
        unseen[allocation.gpu] += bytes;
    return bytes;
}

void begin_to_leave(uint64_t key, const Allocation& allocation) {
    if (allocation.kind == MemoryKind::pages) pages.begin_to_leave(key, allocation.bytes);
}

// What the driver has less without it.
uint64_t leave(uint64_t key, const Allocation& allocation) {
    if (allocation.kind == MemoryKind::pooled) return 0;
    if (allocation.kind == MemoryKind::pages) return pages.complete(key, allocation.bytes);
    if (is_small_array(allocation)) {
        uint64_t before = in_pages(small_arrays[allocation.gpu]);
        return before - in_pages(small_arrays[allocation.gpu] -= allocation.bytes);
    }
    uint64_t bytes = in_pages(allocation.bytes);
    if (allocation.kind == MemoryKind::managed || allocation.kind == MemoryKind::external)
        unseen[allocation.gpu] -= bytes;
    return bytes;
}

// What the driver has less though it was not freed.
uint64_t stay(uint64_t key, const Allocation& allocation) {
    return allocation.kind == MemoryKind::pages ? pages.stay(key, allocation.bytes) : 0;
}

int meet(Membership& membership, CUdevice device) {
    Device& known = devices[device];
    CUuuid uuid;
    size_t total = 0;
    if (driver.cuDeviceGetUuid_v2(&uuid, device) != CUDA_SUCCESS) return -1;
    driver.cuDeviceTotalMem_v2(&total, device);
    Locked locked(meeting_lock);
    if (known.gpu.load() == kNotAsked) {
        int gpu = wire::gpu_number(membership.segment(), reinterpret_cast<const uint8_t*>(uuid.bytes));
        known.total.store(total);
        if (gpu >= 0) tell<AtFirstUse>([&](const AtFirstUse& one) { one.act(membership, gpu); });
        known.gpu.store(gpu, std::memory_order_release);
    }
    return known.gpu.load();
}

}  // namespace

LedgerLocked::LedgerLocked() : Locked(lock) {}

UnderWay::UnderWay() { begun.fetch_add(1); }
UnderWay::~UnderWay() { ended.fetch_add(1); }

uint64_t UnderWay::moment() {
    uint64_t done = ended.load();
    return done * 2 + (begun.load() != done);
}

bool Place::is_limited() const {
    return has_memory_limit(membership->segment(), slot()) || wire::capacity_of(membership->segment().header, gpu) != 0;
}

uint64_t Place::limit() const { return memory_limit(slot(), total()); }

uint64_t Place::total() const { return devices[device].total.load(std::memory_order_relaxed); }

wire::Slot& Place::slot() const { return membership->slot(); }

Place place_of_device(CUdevice device) {
    Membership* membership = Membership::current();
    if (!membership || device < 0 || device >= kMostDevices) return {};
    int gpu = devices[device].gpu.load(std::memory_order_acquire);
    if (gpu == kNotAsked) gpu = meet(*membership, device);
    if (gpu < 0) return {};
    return {membership, device, gpu};
}

CUdevice device_of_gpu(int gpu) {
    for (CUdevice device = 0; device < kMostDevices; ++device)
        if (devices[device].gpu.load(std::memory_order_acquire) == gpu) return device;
    return 0;
}

Place place_of_current_context() {
    CUdevice device = 0;
    return driver.cuCtxGetDevice(&device) == CUDA_SUCCESS ? place_of_device(device) : Place{};
}

void tell_of_growth(wire::Segment& segment, uint64_t bytes) {
    constexpr uint64_t kMuch = 32 << 20;
    static std::atomic<uint64_t> untold{0};
    if (!wire::is_shared(segment) || untold.fetch_add(bytes) + bytes < kMuch) return;
    untold.store(0);
    wire::ring_bell(segment);
}

void count(const Place& place, uint64_t bytes) {
    count_memory(place.slot(), place.gpu, bytes);
    tell_of_growth(place.membership->segment(), bytes);
}

void give(const Place& place, uint64_t bytes) {
    // Once the slot has been left, another process may have it.
    if (place.membership && Membership::current_if_joined() == place.membership)
        give_memory(place.slot(), place.gpu, bytes);
}

void correct(const Place& place, uint64_t charged, uint64_t taken) {
    if (taken > charged) count(place, taken - charged);
    if (taken < charged) give(place, charged - taken);
}

uint64_t enter_allocation(const Place& place, uint64_t key, uint64_t bytes, MemoryKind kind) {
    Allocation allocation{bytes,        owner_of(current_context()),     nullptr,
                          place.device, static_cast<int16_t>(place.gpu), kind};
    LedgerLocked locked;
    // Without an entry it could never be given back.
    return allocations.enter(key, allocation) ? enter(key, allocation) : 0;
}

Giving::Giving(uint64_t key) : key_(key) {
    LedgerLocked locked;
    known_ = allocations.take(key, &allocation_);
    if (known_) begin_to_leave(key, allocation_);
}

CUresult Giving::result(CUresult result) {
    if (!known_) return result;
    uint64_t given = 0;
    {
        LedgerLocked locked;
        // Without an entry it could never be given back.
        bool stays = result != CUDA_SUCCESS && allocations.enter(key_, allocation_);
        given = stays ? stay(key_, allocation_) : leave(key_, allocation_);
    }
    if (given) give({Membership::current_if_joined(), allocation_.device, allocation_.gpu}, given);
    return result;
}

namespace {

// With all that was allocated in it.
void give_back_all_of(CUcontext context) {
    Membership* membership = Membership::current_if_joined();
    if (!membership) return;
    UnderWay under_way;
    uint64_t given[wire::kGpus] = {};
    {
        LedgerLocked locked;
        allocations.remove_if([&](uint64_t key, const Allocation& allocation) {
            if (allocation.context != context) return false;
            begin_to_leave(key, allocation);
            given[allocation.gpu] += leave(key, allocation);
            return true;
        });
    }
    for (int gpu = 0; gpu < wire::kGpus; ++gpu)
        if (given[gpu]) give({membership, 0, gpu}, given[gpu]);
}
LISTEN(AtContextEnd, ContextEndStep::ledger, give_back_all_of)

}  // namespace

void remember_pooled(const Place& place, CUdeviceptr pointer, uint64_t bytes, CUmemoryPool pool) {
    LedgerLocked locked;
    allocations.enter(pointer,
                      {bytes, nullptr, pool, place.device, static_cast<int16_t>(place.gpu), MemoryKind::pooled});
}

uint64_t count_one_by_one(CUmemoryPool pool) {
    uint64_t bytes = 0;
    allocations.remove_if([&](uint64_t key, Allocation& allocation) {
        if (allocation.kind != MemoryKind::pooled || allocation.pool != pool) return false;
        allocation.kind = MemoryKind::pages;
        bytes += enter(key, allocation);
        return false;
    });
    return bytes;
}

uint64_t unseen_by_nvml(int gpu) { return unseen[gpu].load(); }

}  // namespace tenant
