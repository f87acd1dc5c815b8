// The allocations of this process on each GPU. Their sum is in its slot (OnGpu::memory_bytes), as is its run's limit
// (quota.h); the ledger keeps how much of it each allocation has, so that a free gives that back.
//
// Bytes are counted as the driver takes them: in pages of 2 MiB. Allocations of up to half a page share pages, and a
// page is counted while anything lies in it. (As measured on driver 580: docs/memory.md.)
//
// The lock is this process's own. A thread that holds it calls the driver only to read and trim pools.
#pragma once

#include "tenant/driver_calls.h"
#include "tenant/listeners.h"
#include "tenant/locked.h"
#include "tenant/memory/shared_pages.h"
#include "wire/wire.h"

namespace tenant {

class Membership;

constexpr int kMostDevices = 64;  // of further ones nothing is counted
constexpr uint64_t in_pages(uint64_t bytes, uint64_t page = kMemoryPage) {
    return bytes > UINT64_MAX - page ? bytes : (bytes + page - 1) / page * page;
}

// Where memory is taken from; nowhere for a process that is no tenant.
struct Place {
    Membership* membership = nullptr;
    CUdevice device = 0;
    int gpu = -1;  // its number in the segment

    explicit operator bool() const { return gpu >= 0; }
    bool is_limited() const;
    uint64_t limit() const;
    uint64_t total() const;  // of the GPU
    wire::Slot& slot() const;
};
Place place_of_current_context();
Place place_of_device(CUdevice device);
CUdevice device_of_gpu(int gpu);  // that this process has used

// The process uses a GPU for the first time. Nobody takes memory of it before all of these have returned.
enum class FirstUseStep : uint8_t { space, driver_memory, kSteps };
struct AtFirstUse {
    FirstUseStep step;
    void (*act)(Membership& membership, int gpu);
};
LISTENERS(AtFirstUse)

void count(const Place& place, uint64_t bytes);
void give(const Place& place, uint64_t bytes);
// In an administrator's segment a tenant whose memory can move looks when it is told to: the classes above may have
// grown into their headroom.
void tell_of_growth(wire::Segment& segment, uint64_t bytes);
// From what was charged ahead to what the driver took.
void correct(const Place& place, uint64_t charged, uint64_t taken);

class LedgerLocked : Locked {
 public:
    LedgerLocked();
};

// While one exists, what is counted and what the driver has taken may differ.
class UnderWay {
 public:
    UnderWay();
    ~UnderWay();
    UnderWay(const UnderWay&) = delete;
    UnderWay& operator=(const UnderWay&) = delete;

    // Changes with every beginning and end; odd while one is under way.
    static uint64_t moment();
};

enum class MemoryKind : uint8_t {
    pages,     // of device memory: by the addresses
    managed,   // whole, though it is on the GPU only where it was touched
    array,     // small ones share pages, as the driver has them
    external,  // made by another API
    pooled,    // its pool is counted
};

struct Allocation {
    uint64_t bytes;
    CUcontext context;  // goes with it; null: it outlives contexts
    CUmemoryPool pool;
    CUdevice device;
    int16_t gpu;
    MemoryKind kind;
};

// The driver has taken it, under this address or handle: how much more the driver has for it.
uint64_t enter_allocation(const Place& place, uint64_t key, uint64_t bytes, MemoryKind kind);

// Around a driver's call that gives memory back. The entry is taken out before: once the driver has freed an address,
// another thread may be given it. The bytes are given back after: until then the driver has them, and has a page that
// others lie in until their calls have returned too (shared_pages.h).
class Giving {
 public:
    explicit Giving(uint64_t key);
    Giving(const Giving&) = delete;
    Giving& operator=(const Giving&) = delete;

    CUresult result(CUresult result);

 private:
    UnderWay under_way_;
    uint64_t key_;
    bool known_;
    Allocation allocation_{};
};

// Allocations of a pool that was destroyed under them: they are counted one by one from now on. Under the lock.
uint64_t count_one_by_one(CUmemoryPool pool);
void remember_pooled(const Place& place, CUdeviceptr pointer, uint64_t bytes, CUmemoryPool pool);

// Not on the GPU as far as NVML knows, though counted.
uint64_t unseen_by_nvml(int gpu);

}  // namespace tenant
