// Evicts a tenant's memory to the host, and restores it. The tenant's threads wait at the move barrier, and nothing of
// the tenant runs on the GPU.
//
// Either all of the memory is on the GPU or the threads stay at the barrier; and whatever call of the driver fails, no
// byte is lost:
//
//   evict       gives up a chunk only when its contents are on the host, batch by batch, so that tenants who wait for
//               space need not wait for all of it. Where a call fails on the way, a part is on the GPU and a part on
//               the host: evict again goes on with the rest, and restore brings back what is on the host.
//   restore     copies when there is memory under every address, and gives the host's copy up only when all of it is
//               back. Where a call fails, or another tenant needs the space, restore gives up the memory that it made,
//               and the host's copy still stands. Where copies cannot be waited for, that memory stays for the next
//               try.
//
// Each chunk's flags say what is behind its addresses, so a step can be tried again from wherever it failed.
#pragma once

#include "tenant/memory/chunks.h"
#include "tenant/memory/host_pool.h"

namespace tenant {

// Ranges whose contents the program has no use for; in ascending order, disjoint.
struct UnusedRanges {
    struct Range {
        CUdeviceptr address;
        uint64_t bytes;
    };
    const Range* ranges = nullptr;
    uint32_t count = 0;
};

// The other tenants, as far as an eviction or a restore has to do with them.
class Others {
 public:
    virtual void have_more_space() {}  // a part of it is not on the GPU any more
    virtual bool need_the_space() { return false; }

 protected:
    ~Others() = default;
};

class Eviction {
 public:
    static constexpr uint64_t kBatch = 4 * HostPool::kBlock;

    Eviction(Chunks& chunks, HostPool& pool, uint64_t batch = kBatch) : chunks_(chunks), pool_(pool), batch_(batch) {}

    // True: all that can move is on the host. False: all is on the GPU as before, and `refusal` says why, or, with
    // `is_evicted` true, a part is on the host, and all of it is safe: `evict` again goes on with the rest, and
    // `restore` can be tried.
    bool evict(const UnusedRanges& unused, Others& others);
    // True: all is on the GPU again. False: it could not be, or others need the space.
    bool restore(Others& others);

    bool is_evicted() const { return is_evicted_; }
    wire::Refusal refusal() const { return refusal_; }
    uint64_t saved_bytes() const { return saved_bytes_; }      // by the last `evict`
    uint64_t dropped_bytes() const { return dropped_bytes_; }  // likewise

    void forget_context(CUcontext context);
    void forget_in_child() { *this = Eviction(chunks_, pool_, batch_); }
    Eviction& operator=(const Eviction& other);

 private:
    struct Piece {
        CUdeviceptr address;
        uint64_t bytes;
        uint64_t place;  // in the pool
        CUcontext context;
    };
    struct Lane {
        CUcontext context;
        CUstream stream;
    };
    enum class Way { to_host, to_gpu };

    bool plan(const UnusedRanges& unused);
    bool add_pieces(const Chunk& chunk, CUdeviceptr from, CUdeviceptr to);
    bool copy(Way way, uint32_t from, uint32_t to);
    bool copy(Way way, const Piece& piece, CUstream lane);
    uint32_t pieces_in(const Chunk& chunk, uint32_t from) const;
    uint32_t first_to_save() const;
    void save_what_is_unused();
    bool evict_batches(Others& others);
    bool save_batch(uint32_t* next);
    bool give_up_saved();
    bool restore_all(Others& others);
    CUstream lane_in(CUcontext context);
    void wait_for_lanes();
    bool restore_chunk(Chunk& chunk);
    void give_up(Chunk& chunk);
    bool refuse(wire::Refusal why) {
        refusal_ = why;
        return false;
    }

    Chunks& chunks_;
    HostPool& pool_;
    uint64_t batch_;
    GrowingArray<Piece> pieces_;
    uint32_t copied_ = 0;  // of them, are on the host
    GrowingArray<Lane> lanes_;
    bool is_evicted_ = false;
    bool may_be_under_way_ = false;  // copies that could not be waited for
    wire::Refusal refusal_ = wire::none_refused;
    uint64_t saved_bytes_ = 0, dropped_bytes_ = 0;
};

}  // namespace tenant
