// The segment for Python, through ctypes: a flat C interface without exceptions.
#include <linux/magic.h>
#include <sys/vfs.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "wire/segment.h"

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

EXPORT int cotenant_segment_bury_the_dead(void* segment) {
    return wire::bury_the_dead(*static_cast<wire::Segment*>(segment));
}

// Whether the file's pages are memory and nothing else: a driver does not register pages that a disk stands behind.
EXPORT int cotenant_segment_is_in_memory(const char* path) {
    struct statfs about;
    return statfs(path, &about) == 0 && (about.f_type == TMPFS_MAGIC || about.f_type == RAMFS_MAGIC);
}

EXPORT size_t cotenant_segment_bytes() { return wire::kSegmentBytes; }

// "Struct.field offset size" a line: what Python's definitions are held against.
EXPORT const char* cotenant_wire_layout() {
    static const std::string text = [] {
        std::string out;
        auto field = [&](const char* name, size_t offset, size_t size) {
            out += std::string(name) + " " + std::to_string(offset) + " " + std::to_string(size) + "\n";
        };
#define FIELD(s, f) field(#s "." #f, offsetof(wire::s, f), sizeof(wire::s::f))
        FIELD(Header, magic);
        FIELD(Header, version);
        FIELD(Header, header_bytes);
        FIELD(Header, slot_bytes);
        FIELD(Header, slots);
        FIELD(Header, knobs);
        FIELD(Header, members);
        FIELD(Header, gpus);
        FIELD(Knobs, rule);
        FIELD(Knobs, grace_us);
        FIELD(Knobs, gate_every_us);
        FIELD(Knobs, stale_ms);
        FIELD(Header::Gpu, known);
        FIELD(Header::Gpu, uuid);
        FIELD(Slot, owner);
        FIELD(Slot, pid);
        FIELD(Slot, uid);
        FIELD(Slot, started);
        FIELD(Slot, tenant_class);
        FIELD(Slot, weight);
        FIELD(Slot, unknown_functions);
        FIELD(Slot, tenant);
        FIELD(Slot, name);
        FIELD(Slot, heartbeat_ns);
        FIELD(Slot, time_slice_us);
        FIELD(Slot, time_slice_refused);
        FIELD(Slot, grace_us);
        FIELD(Slot, asked_class);
        FIELD(Slot, gpus);
        FIELD(OnGpu, gate);
        FIELD(OnGpu, busy);
        FIELD(OnGpu, figures);
        FIELD(Figures, kernels);
        FIELD(Figures, graphs);
        FIELD(Figures, copies);
        FIELD(Figures, memory_ops);
        FIELD(Figures, host_calls);
        FIELD(Figures, gates);
        FIELD(Figures, escaped);
        FIELD(Figures, bursts);
#undef FIELD
        field("Header", 0, sizeof(wire::Header));
        field("Header::Gpu", 0, sizeof(wire::Header::Gpu));
        field("Slot", 0, sizeof(wire::Slot));
        field("OnGpu", 0, sizeof(wire::OnGpu));
        field("Figures", 0, sizeof(wire::Figures));
        return out;
    }();
    return text.c_str();
}
