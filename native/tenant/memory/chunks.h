// The memory of this process that can move, in chunks: each has one range of addresses, which it keeps while the
// physical memory behind it is evicted and restored. Ordered by address. The caller has the lock (residence.h).
#pragma once

#include <cstdint>

#include "tenant/driver_calls.h"
#include "tenant/growing_array.h"
#include "tenant/memory/slabs.h"
#include "tenant/own_file.h"

namespace tenant {

struct Physical;

struct Chunk {
    enum class Origin : uint8_t {
        whole,    // one allocation
        slab,     // many small ones
        mapping,  // the program has mapped it by itself
    };
    static constexpr uint32_t kMostAccess = 16;

    CUdeviceptr address = 0;
    uint64_t bytes = 0;
    // The truth about where it is: with a handle there is memory of the GPU, mapped or not.
    CUmemGenericAllocationHandle handle = 0;
    bool mapped = false;
    bool pinned = false;  // it stays, for a reason outside of here
    bool shown = false;   // the slot shows other tenants that it can be evicted
    bool saved = false;   // its contents are on the host, or of no use: it can be given up
    Origin origin = Origin::whole;
    int gpu = -1;
    CUcontext context = nullptr;  // that its contents are copied in
    CUmemAllocationProp properties{};
    CUmemAccessDesc access[kMostAccess] = {};
    uint32_t access_count = 0;
    uint64_t asked = 0;  // of a whole one: the size that the program wanted
    Slab* slab = nullptr;
    Physical* physical = nullptr;  // of a mapping (physical.h)
    OwnFile export_file;           // what other processes get it by (ipc_export.h)

    bool contains(CUdeviceptr pointer) const { return pointer - address < bytes; }
};

class Chunks {
 public:
    uint32_t count() const { return static_cast<uint32_t>(chunks_.count()); }
    Chunk& operator[](uint32_t i) const { return *chunks_[i]; }

    Chunk* containing(CUdeviceptr pointer) const {
        uint32_t at = place_of(pointer);
        if (at < count() && chunks_[at]->address == pointer) return chunks_[at];
        return at > 0 && chunks_[at - 1]->contains(pointer) ? chunks_[at - 1] : nullptr;
    }

    // False where there is no memory for it.
    bool insert(Chunk* chunk) { return chunks_.insert(place_of(chunk->address), chunk); }

    void remove(const Chunk* chunk) {
        uint32_t at = place_of(chunk->address);
        if (at < count() && chunks_[at] == chunk) chunks_.remove(at);
    }

    // In a forked child: what was there belongs to the parent.
    void abandon() { *this = Chunks(); }

 private:
    // Of the first that does not begin before it.
    uint32_t place_of(CUdeviceptr address) const {
        uint32_t low = 0, high = count();
        while (low < high) {
            uint32_t middle = (low + high) / 2;
            if (chunks_[middle]->address < address)
                low = middle + 1;
            else
                high = middle;
        }
        return low;
    }

    GrowingArray<Chunk*> chunks_;
};

}  // namespace tenant
