#include "softgpu/memory_blocks.h"

#include <iterator>

namespace softgpu {

void Blocks::add(Span block) {
    blocks_[block.base] = Block{block.size, {{block.base, block.size}}};
    reserved_ += block.size;
}

uint64_t Blocks::take(uint64_t bytes) {
    bytes = rounded(bytes);
    for (auto& [base, block] : blocks_) {
        for (auto piece = block.free.begin(); piece != block.free.end(); ++piece) {
            if (piece->second < bytes) continue;
            const Span found{piece->first, piece->second};
            block.free.erase(piece);
            if (found.size > bytes) block.free.emplace(found.base + bytes, found.size - bytes);
            return found.base;
        }
    }
    return 0;
}

void Blocks::give(Span piece) {
    piece.size = rounded(piece.size);
    std::map<uint64_t, uint64_t>& free = std::prev(blocks_.upper_bound(piece.base))->second.free;
    auto next = free.lower_bound(piece.base);
    if (next != free.end() && next->first == piece.base + piece.size) {
        piece.size += next->second;
        next = free.erase(next);
    }
    if (next != free.begin()) {
        auto previous = std::prev(next);
        if (previous->first + previous->second == piece.base) {
            previous->second += piece.size;
            return;
        }
    }
    free.emplace(piece.base, piece.size);
}

std::vector<Span> Blocks::trim(uint64_t keep) {
    std::vector<Span> removed;
    for (auto block = blocks_.begin(); block != blocks_.end() && reserved_ > keep;) {
        const auto& free = block->second.free;
        if (free.size() != 1 || free.begin()->second != block->second.size) {
            ++block;
            continue;
        }
        removed.push_back({block->first, block->second.size});
        reserved_ -= block->second.size;
        block = blocks_.erase(block);
    }
    return removed;
}

}  // namespace softgpu
