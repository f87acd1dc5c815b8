// The segment for Python, through ctypes: a flat C interface without exceptions.
#include <linux/magic.h>
#include <sys/vfs.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "admission/knobs.h"
#include "wire/border.h"
#include "wire/clock.h"
#include "wire/gates.h"
#include "wire/row.h"
#include "wire/segment.h"
#include "wire/shared_segment.h"

#include "wire_layout.inc"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

void describe(char* out, size_t room, const std::string& text) {
    if (room) snprintf(out, room, "%s", text.c_str());
}

}  // namespace

EXPORT void* cotenant_segment_open(const char* path, int create, char* why, size_t why_bytes) {
    std::string reason;
    wire::Segment* segment = create ? wire::create_or_open_segment(path, &reason) : wire::open_segment(path, &reason);
    if (!segment) describe(why, why_bytes, reason);
    return segment;
}

EXPORT void cotenant_segment_close(void* segment) { wire::close_segment(static_cast<wire::Segment*>(segment)); }

EXPORT uint64_t cotenant_now_ns() { return wire::now_ns(); }

// What a controller has written for a tenant holds from now on. 0: this user may not write its slot.
EXPORT int cotenant_segment_steer(void* segment, int index, int gpu) {
    auto& opened = *static_cast<wire::Segment*>(segment);
    return !wire::is_shared(opened) || wire::steer_shared_slot(opened, index, gpu);
}

EXPORT int cotenant_segment_create_shared_header(const char* path, char* why, size_t why_bytes) {
    std::string reason;
    bool done = wire::create_shared_header(path, &reason);
    if (!done) describe(why, why_bytes, reason);
    return done;
}

// After a tool has written capacities, memory knobs or grants, or requests into a slot: they count with their check
// words.
EXPORT void cotenant_segment_seal(void* header) { wire::seal(*static_cast<wire::Header*>(header)); }
EXPORT void cotenant_segment_seal_requests(void* slot) { wire::seal_requests(*static_cast<wire::Slot*>(slot)); }

// After a change of what a policy's controller steers.
EXPORT void cotenant_segment_refresh_gates(void* segment, int gpu) {
    wire::refresh_gates(*static_cast<wire::Segment*>(segment), wire::production, gpu);
}

// Whether the file's pages are memory and nothing else: a driver does not register pages that a disk stands behind.
EXPORT int cotenant_segment_is_in_memory(const char* path) {
    struct statfs about;
    return statfs(path, &about) == 0 && (about.f_type == TMPFS_MAGIC || about.f_type == RAMFS_MAGIC);
}

EXPORT size_t cotenant_segment_bytes() { return wire::segment_bytes(); }
