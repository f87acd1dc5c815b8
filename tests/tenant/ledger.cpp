// ledger SEGMENT CASE: what this process has allocated, by GPU and kind (native/tenant/memory/ledger.h), and what it
// may still take (reserve.h), over a driver, pools and other tenants of this test's own.
#include "tenant/memory/ledger.h"

#include <functional>
#include <utility>

#include "../wire/cases.h"
#include "bare_membership.h"
#include "tenant/captures.h"
#include "tenant/context_end.h"
#include "tenant/fork.h"
#include "tenant/green_contexts.h"
#include "tenant/memory/deferred_free.h"
#include "tenant/memory/pools.h"
#include "tenant/memory/quota.h"
#include "tenant/memory/reserve.h"

namespace {

constexpr uint64_t kPage = tenant::kMemoryPage;
CUcontext const kContext = reinterpret_cast<CUcontext>(0x100), kOther = reinterpret_cast<CUcontext>(0x200);
auto const kPool = reinterpret_cast<CUmemoryPool>(0x300);
auto const kGraph = reinterpret_cast<CUgraph>(0x400);
constexpr int kDevice = 1, kFirstGpu = 0, kSecondGpu = 1;  // numbered in the order of their first use

CUcontext current = kContext;
CUdevice device = kDevice;
int met = 0;
// What the rest of the tenant answers, and what it was asked.
std::function<bool()> frees = [] { return false; }, settles = frees, trims = frees, makes_space = frees;
bool within = true, in_capture = false, in_headroom = false;
uint64_t in_stock = 0, graph_bytes = 0, graph_counted = 0, promised = 0;
CUdevice graph_device = kDevice;
auto change = tenant::Change::none;
CUdeviceptr freed_again = 0, noted = 0;
CUstream freed_in = nullptr;

void met_gpu(tenant::Membership&, int) { ++met; }

}  // namespace

namespace tenant {

DriverCalls driver;
LISTEN(AtFirstUse, FirstUseStep::space, met_gpu)
std::atomic<bool> Still::memory_moves{false};
void Still::enter() {}
void Still::leave() {}
CUcontext owner_of(CUcontext context) { return context; }
bool is_captured(CUstream, bool) { return in_capture; }
bool free_deferred() { return frees(); }
Change settle_pools(Membership&) {
    settles();
    return change;
}
void trim_pools(const Place&) { trims(); }
bool is_within_capacity(const Place&) { return within; }
bool takes_headroom(const Place&) { return in_headroom; }
bool Need::wait(bool) { return makes_space(); }
void Need::withdraw() {}
Place place_of_pool(CUmemoryPool) { return place_of_device(1 - kDevice); }
void know_pools_of(const Place&) {}
bool fits_in_pool(CUmemoryPool, const Place&, uint64_t bytes) { return bytes <= in_stock; }
void note_pooled(CUmemoryPool, const Place&, CUdeviceptr pointer, uint64_t) { noted = pointer; }
uint64_t graph_memory_of(CUgraph, CUdevice* out) {
    *out = graph_device;
    return graph_bytes;
}
uint64_t graph_memory_counted(const Place&) { return graph_counted; }
void promise_graph_memory(CUgraphExec, const Place& place, uint64_t bytes) {
    REQUIRE(place.device == graph_device);
    promised = bytes;
}

}  // namespace tenant

namespace {

using namespace tenant;

struct Scene {
    Membership& membership;
    wire::Slot& slot;
    Place first, second;

    explicit Scene(wire::Segment& segment)
        : membership((all = &segment, *Membership::current())), slot(membership.slot()) {
        own_quota(slot, 0);
        driver.cuCtxGetCurrent = [](CUcontext* out) {
            *out = current;
            return CUDA_SUCCESS;
        };
        driver.cuCtxGetDevice = [](CUdevice* out) {
            *out = device;
            return CUDA_SUCCESS;
        };
        driver.cuDeviceGetUuid_v2 = [](CUuuid* out, CUdevice one) {
            memset(out->bytes, 1 + one, sizeof out->bytes);
            return CUDA_SUCCESS;
        };
        driver.cuDeviceTotalMem_v2 = [](size_t* out, CUdevice one) {
            *out = (one == kDevice ? 100 : 50) * kPage;
            return CUDA_SUCCESS;
        };
        driver.cuMemFreeAsync = [](CUdeviceptr pointer, CUstream stream) {
            freed_again = pointer;
            freed_in = stream;
            return CUDA_SUCCESS;
        };
        first = place_of_current_context();
        second = place_of_device(1 - kDevice);
    }
    bool has(uint64_t in_first, uint64_t in_second) const {
        return memory_of_process(slot, kFirstGpu, 0) == in_first * kPage &&
               memory_of_process(slot, kSecondGpu, 0) == in_second * kPage;
    }
    uint64_t refused(int gpu = kFirstGpu) const { return slot.memory[gpu].refused.load(); }
};

bool allocate(const Place& place, uint64_t key, uint64_t bytes, MemoryKind kind = MemoryKind::pages) {
    Reservation reservation(bytes, place);
    if (reservation.refused()) return false;
    reservation.keep(key, bytes, kind);
    return true;
}
void release(uint64_t key, CUresult result = CUDA_SUCCESS) {
    Giving giving(key);
    REQUIRE(giving.result(result) == result);
}

// Each GPU is met once, and has the number and the size of its own.
void places(wire::Segment& segment) {
    Scene scene(segment);
    REQUIRE(scene.first.gpu == kFirstGpu && scene.second.gpu == kSecondGpu && met == 2);
    REQUIRE(scene.first.total() == 100 * kPage && scene.second.total() == 50 * kPage);
    REQUIRE(place_of_device(kDevice).gpu == kFirstGpu && met == 2);
    REQUIRE(device_of_gpu(kFirstGpu) == kDevice && device_of_gpu(kSecondGpu) == 1 - kDevice);
    REQUIRE(!place_of_device(-1) && !place_of_device(kMostDevices));
    REQUIRE(!scene.first.is_limited() && scene.first.limit() == kNoLimit);
    wire::set_capacity(segment.header, kSecondGpu, 9 * kPage);
    REQUIRE(!scene.first.is_limited() && scene.second.is_limited());
    change_memory_limit(scene.slot, kShareOfGpu | 500000);
    REQUIRE(scene.first.limit() == 50 * kPage && scene.second.limit() == 25 * kPage && scene.first.is_limited());
    // In a child they may have other numbers.
    tell<AtFork>([](const AtFork& one) { one.in_child(); });
    REQUIRE(place_of_device(kDevice).gpu == kFirstGpu && met == 3);
}

// What each kind counts, and gives back: once, where it was taken, and with its context.
void kinds(wire::Segment& segment) {
    Scene scene(segment);
    REQUIRE(allocate(scene.first, 1ull << 30, kPage + 1) && scene.has(2, 0));
    REQUIRE(allocate(scene.second, 2ull << 30, 10) && scene.has(2, 1));
    // Two in one page.
    REQUIRE(allocate(scene.second, (2ull << 30) + 4096, 10) && scene.has(2, 1));
    release(2ull << 30, CUDA_ERROR_UNKNOWN);
    release((2ull << 30) + 4096);
    // It is there still: what comes into its page is charged nothing.
    REQUIRE(scene.has(2, 1) && allocate(scene.second, (2ull << 30) + 4096, 10) && scene.has(2, 1));
    release(2ull << 30);
    REQUIRE(scene.has(2, 1));
    release((2ull << 30) + 4096);
    release((2ull << 30) + 4096);
    REQUIRE(scene.has(2, 0));
    // Small arrays share pages, by GPU; half a page is small.
    for (uint64_t i = 0; i < 4; ++i) REQUIRE(allocate(scene.first, 100 + i, kPage / 2, MemoryKind::array));
    REQUIRE(scene.has(4, 0) && allocate(scene.second, 200, kPage / 2 + 1, MemoryKind::array) && scene.has(4, 1));
    REQUIRE(allocate(scene.second, 201, 10, MemoryKind::array) && scene.has(4, 2));
    release(100);
    REQUIRE(scene.has(4, 2));
    release(101);
    release(201);
    REQUIRE(scene.has(3, 1));
    // NVML does not see managed and external memory.
    REQUIRE(allocate(scene.second, 300, 3 * kPage, MemoryKind::managed));
    REQUIRE(allocate(scene.second, 301, 2 * kPage, MemoryKind::external) && scene.has(3, 6));
    REQUIRE(unseen_by_nvml(kSecondGpu) == 5 * kPage && unseen_by_nvml(kFirstGpu) == 0);
    release(300, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(unseen_by_nvml(kSecondGpu) == 5 * kPage && scene.has(3, 6));
    release(300);
    REQUIRE(unseen_by_nvml(kSecondGpu) == 2 * kPage && scene.has(3, 3));
    // What the driver would not free stays, and is given back later.
    release(1ull << 30, CUDA_ERROR_UNKNOWN);
    REQUIRE(scene.has(3, 3));
    // With the context of its allocation, on whatever GPU.
    current = kOther;
    REQUIRE(allocate(scene.first, 5ull << 30, 4 * kPage) && allocate(scene.second, 6ull << 30, kPage) &&
            scene.has(7, 4));
    context_ended(kOther);
    REQUIRE(scene.has(3, 3));
    context_ended(kContext);
    REQUIRE(scene.has(0, 0) && unseen_by_nvml(kSecondGpu) == 0);
    release(1ull << 30);
    REQUIRE(scene.has(0, 0));
    // Of a pool nothing is counted until the pool has gone.
    remember_pooled(scene.second, 7ull << 30, 3 * kPage, kPool);
    remember_pooled(scene.second, 8ull << 30, kPage, nullptr);
    remember_pooled(scene.second, 9ull << 30, kPage, kPool);
    uint64_t bytes = 0;
    {
        LedgerLocked locked;
        bytes = count_one_by_one(kPool);
        REQUIRE(count_one_by_one(kPool) == 0);
    }
    REQUIRE(bytes == 4 * kPage && scene.has(0, 0));
    count(scene.second, bytes);
    release(7ull << 30);
    release(8ull << 30);
    REQUIRE(scene.has(0, 1));
    release(9ull << 30);
    correct(scene.first, kPage, 3 * kPage);
    correct(scene.second, kPage, kPage);
    REQUIRE(scene.has(2, 0));
    correct(scene.first, 3 * kPage, kPage);
    REQUIRE(scene.has(0, 0));
    // While one is under way the moment is odd; each changes it.
    uint64_t before = UnderWay::moment();
    {
        UnderWay one;
        REQUIRE(UnderWay::moment() % 2 == 1);
    }
    // Once the slot has been left, another process may have it.
    count(scene.first, kPage);
    Membership* left = not_inherited.joined.exchange(nullptr);
    give({left, kDevice, kFirstGpu}, kPage);
    REQUIRE(scene.slot.gpus[kFirstGpu].memory_bytes.load() == kPage);
    REQUIRE(before % 2 == 0 && UnderWay::moment() % 2 == 0 && UnderWay::moment() != before);
}

// What does not fit is refused once all that could help was tried, one after another; and what is not kept is given
// back.
void limits(wire::Segment& segment) {
    Scene scene(segment);
    change_memory_limit(scene.slot, 10 * kPage);
    REQUIRE(allocate(scene.first, 1ull << 30, 10 * kPage) && allocate(scene.second, 2ull << 30, 10 * kPage));
    REQUIRE(!allocate(scene.first, 3ull << 30, 1) && scene.refused() == 1 && scene.refused(kSecondGpu) == 0);
    {
        Reservation not_kept(0, scene.first);
    }
    REQUIRE(scene.has(10, 10) && scene.refused() == 1);
    auto helps = [&](std::function<bool()>& how) {
        int times = 0;
        how = [&] {
            ++times;
            give(scene.first, kPage);
            return true;
        };
        bool is_had = allocate(scene.first, 4ull << 30, kPage) && scene.has(10, 10);
        how = [] { return false; };
        release(4ull << 30);
        count(scene.first, kPage);
        return is_had && times == 1;
    };
    REQUIRE(helps(frees) && helps(settles) && helps(trims) && scene.refused() == 1 && scene.has(10, 10));
    // What is over the limit by itself frees nothing.
    int asked = 0;
    frees = trims = [&] {
        ++asked;
        return false;
    };
    REQUIRE(!allocate(scene.first, 3ull << 30, 11 * kPage) && asked == 0 && scene.refused() == 2);
    frees = trims = [] { return false; };
    {
        Reservation reservation(kPage, scene.first);
        REQUIRE(reservation.refused());
        REQUIRE(reservation.call([] { return CUDA_SUCCESS; }) == CUDA_ERROR_OUT_OF_MEMORY);
    }
    // The GPU is full, whatever the limit: others make space, or it is refused; without a limit the driver decides.
    change_memory_limit(scene.slot, 20 * kPage);
    within = false;
    REQUIRE(!allocate(scene.first, 3ull << 30, kPage) && scene.has(10, 10));
    REQUIRE(!Reservation(0, scene.first).refused());
    makes_space = [] { return within = true; };
    REQUIRE(allocate(scene.first, 3ull << 30, kPage) && scene.has(11, 10));
    release(3ull << 30);
    makes_space = [] { return false; };
    within = false;
    frees = [] { return std::exchange(within, true) == false; };
    REQUIRE(allocate(scene.first, 3ull << 30, kPage) && scene.has(11, 10));
    frees = [] { return false; };
    // So is what its own stocks hold unused.
    release(3ull << 30);
    within = false;
    trims = [] { return within = true; };
    REQUIRE(allocate(scene.first, 3ull << 30, kPage) && scene.has(11, 10));
    trims = [] { return false; };
    within = false;
    change_memory_limit(scene.slot, 0);
    REQUIRE(allocate(scene.first, 5ull << 30, kPage) && scene.has(12, 10));
    in_headroom = true;
    REQUIRE(!allocate(scene.first, 6ull << 30, kPage) && scene.has(12, 10));
    in_headroom = false;
    within = true;
    // The driver is asked again while others make space, and not in vain for ever.
    int calls = 0, spaces = 0, freed = 0;
    makes_space = [&] { return ++spaces < 3; };
    {
        Reservation reservation(kPage, scene.first);
        REQUIRE(reservation.call([&] { return ++calls, CUDA_ERROR_OUT_OF_MEMORY; }) == CUDA_ERROR_OUT_OF_MEMORY);
        REQUIRE(calls == 3 && scene.has(13, 10));
        REQUIRE(reservation.call([&] { return ++calls, CUDA_ERROR_UNKNOWN; }) == CUDA_ERROR_UNKNOWN && calls == 4);
    }
    REQUIRE(scene.has(12, 10));
    frees = [&] { return ++freed < 5; };
    Reservation reservation(kPage, scene.first);
    makes_space = [] { return false; };
    REQUIRE(reservation.call([] { return CUDA_ERROR_OUT_OF_MEMORY; }) == CUDA_ERROR_OUT_OF_MEMORY && freed == 5);
}

// Pools grow by steps, which are charged ahead; what a pool has in stock is had beyond the limit.
void pools(wire::Segment& segment) {
    Scene scene(segment);
    constexpr uint64_t kStep = kPoolStep / kPage;
    auto try_it = [&](uint64_t bytes, CUmemoryPool pool = nullptr) {
        PoolReservation reservation(bytes, pool, nullptr, true);
        if (reservation.refused()) return CUDA_ERROR_OUT_OF_MEMORY;
        uint64_t charged = memory_of_process(scene.slot, pool ? kSecondGpu : kFirstGpu, 0) / kPage;
        REQUIRE(charged == (bytes && scene.first.is_limited() && !in_capture && !in_stock ? kStep : 0));
        return reservation.result(CUDA_SUCCESS, 77);
    };
    REQUIRE(try_it(1) == CUDA_SUCCESS && scene.has(0, 0) && noted == 77);  // unlimited
    change_memory_limit(scene.slot, kPoolStep);
    REQUIRE(try_it(1) == CUDA_SUCCESS && try_it(1, kPool) == CUDA_SUCCESS && try_it(0) == CUDA_SUCCESS);
    REQUIRE(scene.has(0, 0) && try_it(kPoolStep + 1) == CUDA_ERROR_OUT_OF_MEMORY);
    in_capture = true;
    REQUIRE(try_it(kPoolStep + 1) == CUDA_SUCCESS);
    in_capture = false;
    change_memory_limit(scene.slot, kPage);
    REQUIRE(try_it(1) == CUDA_ERROR_OUT_OF_MEMORY && !freed_again);
    in_stock = 8;
    REQUIRE(try_it(9) == CUDA_ERROR_OUT_OF_MEMORY && try_it(8) == CUDA_SUCCESS && !freed_again);
    // Not in one piece: it has grown, and what was allocated goes back in its order.
    change = Change::grew;
    REQUIRE(try_it(8) == CUDA_ERROR_OUT_OF_MEMORY && freed_again == 77 && freed_in == CU_STREAM_PER_THREAD);
    in_stock = 0;
    change_memory_limit(scene.slot, kPoolStep);
    freed_again = 0;
    REQUIRE(try_it(8) == CUDA_SUCCESS && !freed_again);
    change = Change::none;
    noted = 0;
    {
        PoolReservation reservation(8, nullptr, nullptr, false);
        REQUIRE(reservation.result(CUDA_ERROR_UNKNOWN, 78) == CUDA_ERROR_UNKNOWN && !noted);
    }
    // Graphs use the same memory one after another: only what is more is charged, on the graph's own GPU.
    graph_bytes = kPoolStep + 1;
    {
        GraphReservation reservation(kGraph);
        REQUIRE(reservation.refused() && scene.has(0, 0));
    }
    change_memory_limit(scene.slot, 2 * kPoolStep);
    graph_device = 1 - kDevice;
    {
        GraphReservation reservation(kGraph);
        REQUIRE(!reservation.refused() && scene.has(0, 2 * kStep));
        reservation.keep_for(nullptr);
        REQUIRE(promised == 2 * kPoolStep);
    }
    REQUIRE(scene.has(0, 0));
    for (uint64_t counted : {kPoolStep, 5 * kPoolStep}) {
        graph_counted = counted;
        GraphReservation reservation(kGraph);
        REQUIRE(!reservation.refused() && scene.has(0, counted == kPoolStep ? kStep : 0));
    }
    promised = 1;
    graph_bytes = 0;
    GraphReservation without(kGraph);
    without.keep_for(nullptr);
    REQUIRE(!without.refused() && promised == 1);
}

}  // namespace

int main(int argc, char** argv) {
    return run_case(argc, argv, {{"places", places}, {"kinds", kinds}, {"limits", limits}, {"pools", pools}});
}
