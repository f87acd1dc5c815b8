// physical CASE: memory that the program maps by itself (native/tenant/memory/physical.h), over a driver of this test's
// own: when it is given back, and whether it may move.
#include "tenant/memory/physical.h"

#include <cstring>
#include <set>

#include "../require.h"
#include "joined.h"
#include "tenant/fork.h"
#include "tenant/green_contexts.h"
#include "tenant/memory/mover.h"
#include "tenant/memory/residence.h"
#include "tenant/memory/used_contexts.h"

namespace {

CUcontext const kContext = reinterpret_cast<CUcontext>(0x1000);
constexpr uint64_t kPage = tenant::kMemoryPage, kBytes = 4 * kPage;
constexpr CUdeviceptr kHere = CUdeviceptr{1} << 40, kThere = CUdeviceptr{2} << 40;
constexpr int kGpu = 3, kDevice = 2;

CUcontext current = kContext;
std::set<CUmemGenericAllocationHandle> released;
uint64_t given = 0;  // back to the GPU
int movers = 0;
std::set<CUcontext> noted;

CUresult get_current(CUcontext* out) {
    *out = current;
    return CUDA_SUCCESS;
}
CUresult release(CUmemGenericAllocationHandle handle) {
    REQUIRE(released.insert(handle).second);
    return CUDA_SUCCESS;
}

}  // namespace

// The rest of the tenant, as far as it is asked.
namespace tenant {

UnderWay::UnderWay() = default;
UnderWay::~UnderWay() = default;
Reservation::Reservation(uint64_t, const Place& place) : place_(place) { charged_ = 1; }
Reservation::~Reservation() { given += charged_; }
Residence residence{Lock(Rank::residence, Lock::Kind::recursive), {},      {},
                    {residence.chunks, residence.pool},           nullptr, false};
CUcontext owner_of(CUcontext context) { return context; }
void set_pinned(Chunk& chunk, bool pinned) { chunk.pinned = pinned; }
void show_movable(Chunk& chunk, bool shown) { chunk.shown = shown; }
void start_moving(Membership&) { ++movers; }
void used_contexts::note(CUcontext context) { noted.insert(context); }
void give(const Place& place, uint64_t bytes) {
    REQUIRE(place.gpu == kGpu);
    given += bytes;
}

}  // namespace tenant

namespace {

using namespace tenant;

uint64_t last_handle = 100;

struct Made {
    CUmemGenericAllocationHandle drivers, programs;
};
Made make(CUmemAllocationProp properties = {}, uint64_t bytes = kBytes - 1) {
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, kDevice};
    Reservation reservation(bytes, Place{reinterpret_cast<Membership*>(nobody), 0, kGpu});
    CUmemGenericAllocationHandle handle = ++last_handle;
    Made made{handle, keep_physical(reservation, handle, bytes, properties)};
    return made;
}

CUmemAccessDesc access(int device, CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
    CUmemAccessDesc one{};
    one.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    one.location.id = device;
    one.flags = flags;
    return one;
}
void allow(CUdeviceptr address, const CUmemAccessDesc& one) { set_access(address, kBytes, &one, 1); }
bool moves(CUdeviceptr address) {
    Chunk* chunk = residence.chunks.containing(address);
    REQUIRE(chunk);
    return !chunk->pinned;
}
Made mapped(CUdeviceptr address) {
    Made made = make();
    map_physical(address, kBytes, made.programs);
    allow(address, access(kDevice));
    return made;
}

// It is there, and counted in pages, while a handle or a mapping refers to it.
void references() {
    Made made = make();
    REQUIRE(made.programs != made.drivers && is_number(made.programs) && !is_number(made.drivers) && movers == 1);
    REQUIRE(drivers_handle(made.programs) == made.drivers && drivers_handle(made.drivers) == made.drivers);
    REQUIRE(!is_number(made.programs + 1) && drivers_handle(made.programs + 1) == made.programs + 1);
    map_physical(kHere, kBytes, made.programs);
    release_physical(made.programs);
    REQUIRE(given == 0 && released.empty() && !is_number(made.programs));
    // By any address of the mapping the program gets a handle again, which counts as often as it was got.
    CUmemGenericAllocationHandle again = 0, twice = 0;
    REQUIRE(!retain_number(kHere - 1, &again) && !retain_number(kHere + kBytes, &again) && again == 0);
    REQUIRE(retain_number(kHere + kBytes - 1, &again) && retain_number(kHere, &twice));
    REQUIRE(again == made.programs && twice == again);
    unmap_physical(kHere, kBytes);
    REQUIRE(!residence.chunks.containing(kHere) && given == 0);
    release_physical(again);
    REQUIRE(given == 0 && is_number(again));
    release_physical(again);
    REQUIRE(given == kBytes && released == std::set<CUmemGenericAllocationHandle>{made.drivers} && !is_number(again));
    release_physical(again);
    REQUIRE(given == kBytes);
}

// What it is can move where it is mapped once, and its own device may read and write it.
void may_move() {
    Made made = make();
    map_physical(kHere, kBytes, made.programs);
    REQUIRE(!moves(kHere));
    allow(kHere, access(kDevice - 1));
    REQUIRE(!moves(kHere));
    allow(kHere, access(kDevice, CU_MEM_ACCESS_FLAGS_PROT_READ));
    REQUIRE(!moves(kHere));
    allow(kHere - kBytes, access(kDevice));
    REQUIRE(!moves(kHere));
    allow(kHere, access(kDevice));
    REQUIRE(moves(kHere));
    Chunk& chunk = *residence.chunks.containing(kHere);
    REQUIRE(chunk.gpu == kGpu && chunk.bytes == kBytes && chunk.mapped && chunk.handle == made.drivers);
    REQUIRE(chunk.context == kContext && noted.count(kContext) && chunk.origin == Chunk::Origin::mapping &&
            chunk.access_count == 2);
    allow(kHere, access(kDevice, CU_MEM_ACCESS_FLAGS_PROT_READ));
    REQUIRE(!moves(kHere) && chunk.access_count == 2);
    // Mapped in no context: the one in which rights are given copies it.
    current = nullptr;
    mapped(kThere);
    REQUIRE(!moves(kThere));
    current = kContext;
    allow(kThere, access(kDevice));
    REQUIRE(moves(kThere));
    // After a restore the driver knows it by another handle, and so do we, mapped and not.
    Made moved = mapped(CUdeviceptr{3} << 40);
    residence.chunks.containing(CUdeviceptr{3} << 40)->handle = 7000;
    REQUIRE(drivers_handle(moved.programs) == 7000);
    unmap_physical(CUdeviceptr{3} << 40, kBytes);
    REQUIRE(drivers_handle(moved.programs) == 7000);
    // It is mapped once again, not twice.
    map_physical(CUdeviceptr{4} << 40, kBytes, moved.programs);
    allow(CUdeviceptr{4} << 40, access(kDevice));
    REQUIRE(moves(CUdeviceptr{4} << 40));
    unmap_physical(CUdeviceptr{4} << 40, kBytes);
    release_physical(moved.programs);
    REQUIRE(released == std::set<CUmemGenericAllocationHandle>{7000} && given == kBytes);
}

// What is mapped twice, exported or bound stays, under whatever address, also when it is mapped anew.
void stays() {
    Made made = mapped(kHere);
    REQUIRE(moves(kHere));
    map_physical(kThere, kBytes, made.programs);
    REQUIRE(!moves(kHere) && !moves(kThere));
    allow(kThere, access(kDevice));
    allow(kHere, access(kDevice));
    REQUIRE(!moves(kHere) && !moves(kThere));
    unmap_physical(kThere, kBytes);
    unmap_physical(kHere, kBytes);
    REQUIRE(residence.chunks.count() == 0 && given == 0);

    Made exported = mapped(kHere);
    pin_handle(exported.drivers);
    REQUIRE(moves(kHere));
    pin_handle(exported.programs);
    REQUIRE(!moves(kHere));
    unmap_physical(kHere, kBytes);
    map_physical(kThere, kBytes, exported.programs);
    allow(kThere, access(kDevice));
    REQUIRE(!moves(kThere));
    unmap_physical(kThere, kBytes);

    Made bound = mapped(kHere);
    pin_memory(kHere - kPage, kPage);
    pin_memory(kHere + kBytes, kPage);
    REQUIRE(moves(kHere));
    pin_memory(kHere + kBytes - 1, 1);
    REQUIRE(!moves(kHere));
    allow(kHere, access(kDevice));
    REQUIRE(!moves(kHere));
    unmap_physical(kHere, kBytes);
    release_physical(bound.programs);
    REQUIRE(given == kBytes);
}

// What is mapped in part stays too: the rest of it would not come back.
void in_part() {
    Made made = make();
    map_physical(kHere, kPage, made.programs);
    CUmemAccessDesc one = access(kDevice);
    set_access(kHere, kPage, &one, 1);
    REQUIRE(!moves(kHere));
    unmap_physical(kHere, kPage);
    map_physical(kThere, kBytes, made.programs);
    allow(kThere, access(kDevice));
    REQUIRE(!moves(kThere));
    unmap_physical(kThere, kBytes);
    release_physical(made.programs);
    REQUIRE(given == kBytes && released == std::set<CUmemGenericAllocationHandle>{made.drivers});
}

// With a use of its own, or once the driver's handles are given out, it is the driver's; and still counted.
void drivers_own() {
    CUmemAllocationProp tiles{}, compressed{};
    tiles.allocFlags.usage = 1;
    compressed.allocFlags.compressionType = 1;
    for (const CUmemAllocationProp& properties : {tiles, compressed}) {
        Made made = make(properties);
        REQUIRE(made.programs == made.drivers && given == 0 && movers == 0);
        release_physical(made.programs);
        REQUIRE(given == kBytes && released.empty());
        given = 0;
    }
    give_out_drivers_handles();
    Made made = make();
    REQUIRE(made.programs == made.drivers);
    map_physical(kHere, kBytes, made.programs);
    REQUIRE(residence.chunks.count() == 0);
    CUmemGenericAllocationHandle unused = 0;
    REQUIRE(!retain_number(kHere, &unused));
    retain_physical(kHere + 1, made.drivers);  // the driver has given it once more
    release_physical(made.drivers);
    unmap_physical(kHere, kBytes);
    REQUIRE(given == 0);
    release_physical(made.drivers);
    REQUIRE(given == kBytes && released.empty());
}

// A child has none of it.
void in_a_child() {
    Made made = mapped(kHere);
    tell<AtFork>([](const AtFork& one) { one.in_child(); });
    CUmemGenericAllocationHandle handle = 0;
    REQUIRE(!is_number(made.programs) && !retain_number(kHere, &handle));
    unmap_physical(kHere, kBytes);
    release_physical(made.programs);
    REQUIRE(given == 0 && released.empty());
}

// One call may unmap several, and gaps between them; what lies outside stays.
void many_at_once() {
    constexpr int kMany = 6;
    Made made[kMany];
    for (int i = 0; i < kMany; ++i) made[i] = mapped(kHere + 2 * i * kBytes);
    unmap_physical(kHere + 2 * kBytes, 3 * kBytes);  // the second and third, page by page
    REQUIRE(residence.chunks.count() == kMany - 2);
    REQUIRE(residence.chunks.containing(kHere) && residence.chunks.containing(kHere + 6 * kBytes));
    unmap_physical(kHere + 6 * kBytes, uint64_t{1} << 36);  // all behind, by one look over them
    REQUIRE(residence.chunks.count() == 1 && residence.chunks.containing(kHere));
    unmap_physical(kHere, kBytes);
    for (Made& one : made) release_physical(one.programs);
    REQUIRE(given == kMany * kBytes && released.size() == kMany && residence.chunks.count() == 0);
}

}  // namespace

int main(int argc, char** argv) {
    driver.cuCtxGetCurrent = get_current;
    driver.cuMemRelease = release;
    const char* name = argc > 1 ? argv[1] : "";
    if (!strcmp(name, "references"))
        references();
    else if (!strcmp(name, "may_move"))
        may_move();
    else if (!strcmp(name, "stays"))
        stays();
    else if (!strcmp(name, "in_part"))
        in_part();
    else if (!strcmp(name, "drivers_own"))
        drivers_own();
    else if (!strcmp(name, "in_a_child"))
        in_a_child();
    else if (!strcmp(name, "many_at_once"))
        many_at_once();
    else
        return 2;
    return 0;
}
