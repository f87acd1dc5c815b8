// Carves pieces out of larger blocks, as the driver does with small allocations and with pools. Pure: it hands out
// numbers; whoever owns the blocks maps and accounts for them.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace softgpu {

struct Span {
    uint64_t base;
    uint64_t size;
};

class Blocks {
 public:
    static constexpr uint64_t alignment = 512;

    void add(Span block);
    uint64_t take(uint64_t bytes);  // first fit; 0: no block has room
    void give(Span piece);          // a piece that take() handed out, or a part of one
    // Removes unused blocks while more than `keep` bytes are held, and returns them.
    std::vector<Span> trim(uint64_t keep);

    uint64_t reserved() const { return reserved_; }
    static uint64_t rounded(uint64_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

 private:
    struct Block {
        uint64_t size;
        std::map<uint64_t, uint64_t> free;  // base -> size; neighbours are always joined
    };
    std::map<uint64_t, Block> blocks_;
    uint64_t reserved_ = 0;
};

}  // namespace softgpu
