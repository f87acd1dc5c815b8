#include "wire/header.h"

#include <cstring>

#include "admission/knobs.h"

namespace wire {

void begin_header(Header& header) {
    memcpy(header.magic, kMagic, sizeof kMagic);
    header.version = kVersion;
    header.header_bytes = header.slot_bytes = static_cast<uint32_t>(place_bytes());
    header.slots = kSlots;
    header.knobs.rule = admission::strict;
    header.knobs.grace_us = admission::kDefaultGraceUs;
    header.knobs.gate_every_us = admission::kDefaultGateEveryUs;
    header.knobs.stale_ms = admission::kDefaultStaleMs;
    header.knobs.in_flight_us = admission::kDefaultInFlightUs;
    header.knobs.turn_us = admission::kDefaultTurnUs;
    header.knobs.patience_ms = admission::kDefaultPatienceMs;
}

bool is_ours(const Header& header, const char* path, std::string* why) {
    if (header.version != kVersion || header.slots != kSlots)
        *why = std::string(path) + " has layout version " + std::to_string(header.version) + ", this Cotenant uses " +
               std::to_string(kVersion);
    else if (header.slot_bytes != place_bytes())
        *why = std::string(path) + " was made where a slot has " + std::to_string(header.slot_bytes) +
               " bytes, here it has " + std::to_string(place_bytes());
    else
        return true;
    return false;
}

}  // namespace wire
