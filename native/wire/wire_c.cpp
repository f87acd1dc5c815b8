// The segment for Python, through ctypes: a flat C interface without exceptions.
#include <linux/magic.h>
#include <sys/vfs.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "wire/border.h"
#include "wire/clock.h"
#include "wire/gates.h"
#include "wire/segment.h"
#include "wire/shared_segment.h"

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

// After a tool has written capacities, crowding or rights, or requests into a slot: they count with their check words.
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
        FIELD(Header, bell);
        FIELD(Header, choices);
        FIELD(Header, members);
        FIELD(Header, policy);
        FIELD(Header, gpus);
        FIELD(Header, rights);
        FIELD(Right, whose);
        FIELD(Right, id);
        FIELD(Right, best_class);
        FIELD(Right, check);
        FIELD(Right, memory_limit);
        FIELD(Knobs, rule);
        FIELD(Knobs, grace_us);
        FIELD(Knobs, gate_every_us);
        FIELD(Knobs, stale_ms);
        FIELD(Knobs, in_flight_us);
        FIELD(Knobs, turn_us);
        FIELD(Knobs, patience_ms);
        FIELD(Header::Gpu, known);
        FIELD(Header::Gpu, capacity_check);
        FIELD(Header::Gpu, uuid);
        FIELD(Header::Gpu, capacity);
        FIELD(Header, crowding);
        FIELD(Header::Crowding, headroom);
        FIELD(Header::Crowding, host_memory);
        FIELD(Header::Crowding, stay_ms);
        FIELD(Header::Crowding, check);
        FIELD(Slot, owner);
        FIELD(Slot, identity_check);
        FIELD(Slot, asked_check);
        FIELD(Slot, limit_check);
        FIELD(Slot, pid_namespace);
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
        FIELD(Slot, slowdown);
        FIELD(Slot, floor);
        FIELD(Slot, asked);
        FIELD(Slot, memory_limit);
        FIELD(Slot, host_bytes);
        FIELD(Slot, asked_memory);
        FIELD(Slot, export_tables);
        FIELD(Slot, ungated_graphs);
        FIELD(Slot, checkpoints);
        FIELD(Slot, residence);
        FIELD(Slot::Residence, where);
        FIELD(Slot::Residence, wake);
        FIELD(Slot::Residence, wanted_hard);
        FIELD(Slot::Residence, asked_hold);
        FIELD(Slot::Residence, held);
        FIELD(Slot::Residence, refusal);
        FIELD(Slot::Residence, refused_ns);
        FIELD(Slot::Residence, since_ns);
        FIELD(Slot::Residence, transfer_ns);
        FIELD(Slot::Residence, leaving_ns);
        FIELD(Slot::Residence, waiting_since_ns);
        FIELD(Slot::Residence, wanted_bytes);
        FIELD(Slot::Residence, wanted_gpu);
        FIELD(Slot::Residence, times_left);
        FIELD(Slot::Residence, host_pinned);
        FIELD(Slot::Residence, saved_bytes);
        FIELD(Slot::Residence, dropped_bytes);
        FIELD(Slot, gpus);
        FIELD(Slot, memory);
        FIELD(Slot, pace);
        FIELD(Slot::Memory, driver_bytes);
        FIELD(Slot::Memory, refused);
        FIELD(Slot::Memory, movable_bytes);
        FIELD(OnGpu, gate);
        FIELD(OnGpu, over_rate);
        FIELD(OnGpu, below_floor);
        FIELD(OnGpu, waits);
        FIELD(OnGpu, waited_ns);
        FIELD(OnGpu, gap_ns);
        FIELD(OnGpu, ready);
        FIELD(OnGpu, on);
        FIELD(OnGpu, switch_us);
        FIELD(OnGpu, turn_us);
        FIELD(OnGpu, stop_ns);
        FIELD(OnGpu, switch_ns);
        FIELD(OnGpu, busy);
        FIELD(OnGpu, holds_turn);
        FIELD(OnGpu, figures);
        FIELD(OnGpu, used_ns);
        FIELD(OnGpu, busy_ns);
        FIELD(OnGpu, memory_bytes);
        FIELD(OnGpu, shut_until_ns);
        FIELD(OnGpu, tolerant_until_ns);
        FIELD(OnGpu, rate);
        FIELD(OnGpu, in_flight_us);
        FIELD(OnGpu, turn_key);
        FIELD(Slot::Pace, now_ns);
        FIELD(Slot::Pace, alone_ns);
        FIELD(Slot::Asked, tenant_class);
        FIELD(Slot::Asked, weight);
        FIELD(Slot::Asked, slowdown);
        FIELD(Slot::Asked, floor);
        FIELD(Slot::Asked, time_slice_us);
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
        field("Right", 0, sizeof(wire::Right));
        field("Slot", 0, sizeof(wire::Slot));
        field("Slot::Asked", 0, sizeof(wire::Slot::Asked));
        field("Header::Crowding", 0, sizeof(wire::Header::Crowding));
        field("Slot::Residence", 0, sizeof(wire::Slot::Residence));
        field("Slot::Memory", 0, sizeof(wire::Slot::Memory));
        field("Slot::Pace", 0, sizeof(wire::Slot::Pace));
        field("OnGpu", 0, sizeof(wire::OnGpu));
        field("Figures", 0, sizeof(wire::Figures));
        return out;
    }();
    return text.c_str();
}
