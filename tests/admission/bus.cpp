#include "admission/bus.h"

#include <cmath>
#include <limits>

#include "../require.h"

using namespace admission;

namespace {

// 1 MiB in so many microseconds: from an NVLink between processor and GPU to a slot of four lanes.
constexpr float kSpeeds[] = {2.5f, 19, 42, 85, 350, 5000};

void a_piece_takes_no_longer_than_it_shall_where_it_can() {
    for (float us_per_mib : kSpeeds)
        for (float piece_us : {kPieceUs, kLongPieceUs}) {
            size_t piece = piece_bytes(us_per_mib, piece_us);
            float us = us_per_mib * static_cast<float>(piece) / (1 << 20);
            REQUIRE(us <= piece_us * 1.001f || piece == kSmallestPiece);
            REQUIRE(us >= piece_us / 2 || piece == kLargestPiece);
        }
}

void any_speed_gives_a_piece_of_whole_grains() {
    constexpr float inf = std::numeric_limits<float>::infinity();
    for (float us_per_mib : {-1.0f, 0.0f, 1e-30f, 1e-3f, 20.0f, 1e9f, inf, std::nanf("")}) {
        size_t piece = piece_bytes(us_per_mib, kPieceUs);
        REQUIRE(piece >= kSmallestPiece && piece <= kLargestPiece && piece % kPieceGrain == 0);
    }
}

void an_unknown_speed_gives_the_assumed_piece() {
    for (float us_per_mib : {-1.0f, 0.0f, std::nanf("")}) REQUIRE(piece_bytes(us_per_mib, kPieceUs) == kAssumedPiece);
}

}  // namespace

int main() {
    a_piece_takes_no_longer_than_it_shall_where_it_can();
    any_speed_gives_a_piece_of_whole_grains();
    an_unknown_speed_gives_the_assumed_piece();
    return 0;
}
