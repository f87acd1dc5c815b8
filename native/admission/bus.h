// Copies between the host and the GPU, pure: which wait for what, when they are split, and into what.
//
//   a long copy               of a tenant that passes gates has at least kLongCopy bytes. It waits at the tenant's gate
//                             for copies, as do the copies that follow it directly in its stream; shorter ones wait
//                             with the kernels
//   a higher class copies     while a copy of at least kBusCopy bytes is in one of its streams: gates for copies are
//                             closed. Shorter copies only have the copy engines' time slices (time_slices.h)
//   a higher class uses the bus    if it has copied so within the last kBusNs
//   a copy is split           if a higher class uses the bus, and the copy has at least kPieceGrain more than a piece
//   a piece                   has as many bytes as the bus carries in kPieceUs, by the speed that was learned; at
//                             least kSmallestPiece and at most kLargestPiece. Where the higher classes tolerate overlap
//                             and made none but short copies, kLongPieceUs
//
// Each piece has a gate of its own. So a copy of the higher class waits for one piece at most, not for the whole copy.
// Measured on an H200 (55 GB/s): beside pieces of 1 MiB, 512 KiB and 256 KiB a pinned copy of 1 MiB takes 10, 5 and 4
// us longer at the median and no longer at p99, and the pieces themselves reach 41, 33 and 24 GB/s.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace admission {

constexpr uint64_t kBusNs = 1000000000;
constexpr float kPieceUs = 15, kLongPieceUs = 120;
constexpr size_t kPieceGrain = 64 << 10, kSmallestPiece = 2 * kPieceGrain, kLargestPiece = 8 << 20;
constexpr size_t kAssumedPiece = 512 << 10;  // until the speed is known
constexpr size_t kLongCopy = 512 << 10, kBusCopy = kSmallestPiece;

// `us_per_mib`: what the bus takes for so much; not positive: not known yet.
inline size_t piece_bytes(float us_per_mib, float piece_us) {
    if (!(us_per_mib > 0)) return kAssumedPiece;
    float mib = std::min(piece_us / us_per_mib, static_cast<float>(kLargestPiece) / (1 << 20));
    auto grains = static_cast<size_t>(mib * (1 << 20) / kPieceGrain);
    return std::clamp(grains * kPieceGrain, kSmallestPiece, kLargestPiece);
}

}  // namespace admission
