// residence CASE: the book of the memory that can move (native/tenant/memory/residence.h), over a driver of this test's
// own: what goes with what, and what the slot shows of it.
#include "tenant/memory/residence.h"

#include <cstring>
#include <set>

#include "../require.h"
#include "joined.h"
#include "tenant/context_end.h"
#include "tenant/identity_file.h"
#include "tenant/memory/ipc_export.h"
#include "tenant/settings.h"

namespace {

CUcontext const kFirst = reinterpret_cast<CUcontext>(0x100), kSecond = reinterpret_cast<CUcontext>(0x200);
constexpr uint64_t kPage = tenant::kMemoryPage;
wire::Slot slot{};

std::set<CUdeviceptr> mapped, reserved, no_longer_exported;
std::set<CUmemGenericAllocationHandle> handles;

CUresult unmap(CUdeviceptr at, size_t) {
    REQUIRE(mapped.erase(at) == 1);
    return CUDA_SUCCESS;
}
CUresult release(CUmemGenericAllocationHandle handle) {
    REQUIRE(handles.erase(handle) == 1);
    return CUDA_SUCCESS;
}
CUresult give_up(CUdeviceptr at, size_t) {
    REQUIRE(!mapped.count(at) && reserved.erase(at) == 1);
    return CUDA_SUCCESS;
}

}  // namespace

// The rest of the tenant, as far as it is asked.
namespace tenant {

const char* setting(const char*) { return nullptr; }
wire::Class class_from_environment() { return wire::opportunistic; }
void end_export(CUdeviceptr base) { no_longer_exported.insert(base); }
void end_exports_of(Chunk& chunk) { no_longer_exported.insert(chunk.address + 1); }

}  // namespace tenant

namespace {

using namespace tenant;

Chunk* make(uint64_t number, CUcontext context, int gpu, Chunk::Origin origin = Chunk::Origin::whole) {
    auto* chunk = new Chunk;
    chunk->address = number << 30;
    chunk->bytes = kPage;
    chunk->asked = kPage - 100;
    chunk->handle = number;
    chunk->mapped = true;
    chunk->origin = origin;
    chunk->gpu = gpu;
    chunk->context = context;
    if (origin == Chunk::Origin::slab) chunk->slab = new Slab(chunk->address);
    mapped.insert(chunk->address);
    reserved.insert(chunk->address);
    handles.insert(number);
    REQUIRE(enter_chunk(chunk) == CUDA_SUCCESS);
    return chunk;
}
bool shows(uint64_t first, uint64_t second) {
    return slot.memory[0].movable_bytes.load() == first * kPage &&
           slot.memory[1].movable_bytes.load() == second * kPage;
}

// A context takes its allocations along; what the program has mapped outlives it, and cannot be copied any more.
void context_ends() {
    make(1, kFirst, 0);
    make(2, kFirst, 1, Chunk::Origin::slab);
    Chunk* mapping = make(3, kFirst, 0, Chunk::Origin::mapping);
    make(4, kSecond, 0);
    Chunk* other = make(5, kSecond, 1, Chunk::Origin::mapping);
    REQUIRE(shows(3, 2));
    context_ended(kFirst);
    REQUIRE(shows(1, 1) && residence.chunks.count() == 3);
    REQUIRE(handles == std::set<CUmemGenericAllocationHandle>({3, 4, 5}) && mapped.size() == 3 && reserved.size() == 3);
    REQUIRE(mapping->pinned && !mapping->context && !other->pinned && other->context == kSecond);
    REQUIRE(no_longer_exported.size() == 2);
    // Nor with the next one that ends.
    context_ended(kFirst);
    context_ended(kSecond);
    REQUIRE(shows(0, 0) && residence.chunks.count() == 2 && other->pinned);
}

// An allocation is had by its beginning, and found by any address in it; small ones share, and the last takes all.
void giving_back() {
    Chunk* slab = make(1, kFirst, 0, Chunk::Origin::slab);
    CUdeviceptr first = slab->slab->take(1000), second = slab->slab->take(5000), whole = make(2, kFirst, 1)->address;
    make(3, kFirst, 1, Chunk::Origin::mapping);
    MovableRange range{};
    REQUIRE(movable_range(second + 4999, &range) && range.base == second && range.bytes == 5000);
    REQUIRE(range.context == kFirst && !movable_range(second + 5000, &range));
    REQUIRE(movable_range(whole + kPage - 101, &range) && range.bytes == kPage - 100);
    REQUIRE(!movable_range(whole + kPage - 100, &range) && !movable_range(CUdeviceptr{3} << 30, &range));
    REQUIRE(is_movable(first) && is_movable(whole) && !is_movable(first + 1) && !is_movable(0));
    REQUIRE(!give_back_movable(first + 1) && !give_back_movable(CUdeviceptr{3} << 30) && no_longer_exported.empty());
    REQUIRE(give_back_movable(first) && !give_back_movable(first) && shows(1, 2) && handles.size() == 3);
    REQUIRE(no_longer_exported == std::set<CUdeviceptr>{first} && is_movable(second));
    REQUIRE(give_back_movable(second) && shows(0, 2) && give_back_movable(whole) && shows(0, 1));
    REQUIRE(handles == std::set<CUmemGenericAllocationHandle>{3} && mapped.size() == 1 && reserved.size() == 1);
}

// What can move, and what of it is not there, by GPU.
void amounts() {
    make(1, kFirst, 0);
    Chunk *absent = make(2, kFirst, 1), *pinned = make(3, kFirst, 1);
    make(4, kFirst, 1);
    absent->handle = 0;
    set_pinned(*pinned, true);
    set_pinned(*pinned, true);
    REQUIRE(shows(1, 2));
    MovableBytes bytes = movable_bytes();
    REQUIRE(bytes.all[0] == kPage && bytes.all[1] == 2 * kPage && bytes.absent[0] == 0 && bytes.absent[1] == kPage);
    set_pinned(*pinned, false);
    REQUIRE(shows(1, 3) && movable_bytes().all[1] == 3 * kPage);
    // Once the slot has been left, another process may have it.
    not_inherited.joined.store(nullptr);
    set_pinned(*pinned, true);
    REQUIRE(shows(1, 3) && movable_bytes().all[1] == 2 * kPage);
}

}  // namespace

int main(int argc, char** argv) {
    driver.cuMemUnmap = unmap;
    driver.cuMemRelease = release;
    driver.cuMemAddressFree = give_up;
    residence.slot = &slot;
    const char* name = argc > 1 ? argv[1] : "";
    if (!strcmp(name, "context_ends"))
        context_ends();
    else if (!strcmp(name, "giving_back"))
        giving_back();
    else if (!strcmp(name, "amounts"))
        amounts();
    else
        return 2;
    return 0;
}
