// Small allocations share slabs of 2 MiB, as the driver's own do: first fit, in units of 512 bytes, so that they take
// no more of the GPU than they would there. Pure: addresses are only numbers here. The caller has the lock.
#pragma once

#include <cstdint>

namespace tenant {

class Slab {
 public:
    static constexpr uint64_t kBytes = uint64_t{2} << 20;
    static constexpr uint64_t kUnit = 512;
    static constexpr uint64_t kMostBytes = kBytes / 2;  // larger allocations have pages of their own

    explicit Slab(uint64_t base) : base_(base) {}

    // 0: no space.
    uint64_t take(uint64_t bytes);
    // False: nothing begins there.
    bool give(uint64_t address);
    // The piece that an address lies in, as it was asked for; false: none.
    bool piece_around(uint64_t address, uint64_t* base, uint64_t* bytes) const;

    bool is_empty() const { return used_ == 0; }
    uint64_t base() const { return base_; }

 private:
    static constexpr uint32_t kUnits = kBytes / kUnit;
    static constexpr uint32_t kWords = kUnits / 64;

    bool is_taken(uint32_t unit) const { return taken_[unit / 64] >> (unit % 64) & 1; }
    bool is_start(uint32_t unit) const { return starts_[unit / 64] >> (unit % 64) & 1; }
    uint32_t next_free(uint32_t unit) const;
    uint32_t end_of_gap(uint32_t unit, uint32_t most) const;
    uint32_t end_of_piece(uint32_t start) const;
    void mark(uint32_t first, uint32_t end, bool taken);

    uint64_t base_;
    uint64_t taken_[kWords] = {};
    uint64_t starts_[kWords] = {};
    uint16_t over_[kUnits] = {};  // of a start: how many bytes of the last unit were not asked for
    uint32_t used_ = 0;
    uint32_t longest_ = kUnits;  // no gap is longer
    uint32_t first_free_ = 0;    // none before it
};

}  // namespace tenant
