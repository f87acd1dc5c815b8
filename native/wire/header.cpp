#include "wire/header.h"

#include <cstring>

#include "admission/admission.h"

namespace wire {

void begin_header(Header& header) {
    memcpy(header.magic, kMagic, sizeof kMagic);
    header.version = kVersion;
    header.header_bytes = header.slot_bytes = static_cast<uint32_t>(page_bytes());
    header.slots = kSlots;
    header.knobs.rule = admission::strict;
    header.knobs.grace_us = 300;
    header.knobs.gate_every_us = 100;
    header.knobs.stale_ms = 60;
    header.knobs.in_flight_us = 50000;
    header.knobs.turn_us = 0;
    header.knobs.patience_ms = 20;
}

bool is_ours(const Header& header, const char* path, std::string* why) {
    if (header.version != kVersion || header.slots != kSlots)
        *why = std::string(path) + " has layout version " + std::to_string(header.version) + ", this Cotenant uses " +
               std::to_string(kVersion);
    else if (header.slot_bytes != page_bytes())
        *why = std::string(path) + " was made where pages have " + std::to_string(header.slot_bytes) +
               " bytes, this kernel's have " + std::to_string(page_bytes());
    else
        return true;
    return false;
}

}  // namespace wire
