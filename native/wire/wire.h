// The memory that all tenants of one user share. Plain structs, fixed offsets; Python reads the same bytes: the build
// writes its structures from this text (native/codegen/wire_layout.py).
//
//   place 0       Header   magic and version, the knobs, the number of each GPU, the slots of each class
//   place 1 + i   Slot i   one process that uses a GPU; only its owner writes it, except for gates, knobs and requests
//
// Owning a slot. The slot's first word is 0 when the slot is free, and holds the thread number of the owner's watcher
// when it is live. The kernel sets FUTEX_OWNER_DIED in it however the owner ends (owner.h), so "is it alive?" is one
// load, across containers too. The next process that takes the word of a dead owner reaps the slot.
//
// Nothing here is trusted. Any word may hold anything at any moment: readers bring values into range (border.h), a
// value that could harm a guest counts only with its check word (check_of), and neither the C library nor the kernel
// follows a pointer here. The owner writes its values again when they were overwritten.
//
// Who may run. `busy` says that a tenant has work on a GPU; `gate` says whether the tenant's streams may go on there. A
// tenant that becomes busy closes the gates of every slot of a lower class: it sets busy first, then the gates. A gate
// is opened by recomputing it, and only if nobody has closed it meanwhile: a racing closer always wins. The busy flag
// of an owner that is dead, or whose heartbeat is stale (it was stopped), counts for nothing. admission::may_run
// decides from these values whether a gate is open.
//
// Long copies between host and GPU wait at a gate of their own, `copy_gates`. They run on the copy engines beside the
// kernels of others, so they take no turns, and a higher class that is busy does not stop them: only one that is
// `copying` does. It closes these gates as it closes the others. admission::may_copy decides.
//
// Turns. Among equals one tenant at a time is `on`. A tenant that is about to start announces it first (ready, on,
// holds_turn, then its gate) and then reads the others again: of two that start at once the one that goes first stays.
// Only a tenant's own watcher clears `on`, once the gate is closed and the streams have run empty or stand at gates; so
// the next tenant starts on a GPU that its predecessor has left. Only the holder of a turn ends it.
//
// What a policy's controller sets for a tenant (the daemon writes it) expires: `shut_until_ns`, `tolerant_until_ns`,
// `rate_until_ns` and `sms_until_ns` are moments, so that a daemon that died holds nobody back for longer than a
// fraction of a second.
#pragma once

#include <sys/auxv.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace wire {

constexpr char kMagic[8] = {'c', 'o', 't', 'e', 'n', 'a', 'n', 't'};
constexpr uint32_t kVersion = 12;
constexpr size_t kSmallestPlace = 8192;
constexpr int kSlots = 256;
constexpr int kGpus = 16;
constexpr uint32_t kGpuValid = 2;
constexpr uint32_t kGpuLost = 3;
constexpr int kSlotWords = kSlots / 64;
constexpr int kWaitBuckets = 24;
constexpr uint64_t kShortestWaitNs = 4096;

enum Class : uint32_t { production = 0, standard = 1, opportunistic = 2 };
constexpr int kClasses = 3;

// A gate is open at this value and closed at any other. Each closing gives it a new value, so that whoever computed
// before it that the gate may be open finds it changed, and cannot undo it.
constexpr uint32_t kGateOpen = 1;

// Whether a tenant has work on a GPU, or has had until a moment ago. `copying`: also, copies of admission::kBusCopy
// bytes or more between host and GPU are in its streams.
enum Busy : uint32_t { idle = 0, busy = 1, copying = 2 };

// Whether a tenant wants the GPU, for a turn among its equals. `briefly` and more: the rest are the microseconds that
// it executed in its last turn; `beside`: it takes no turn now (admission/turns.h).
enum Ready : uint32_t { not_ready = 0, ready = 1, briefly = 2, beside = 0x80000000 };

// `pinned`: its memory does not move. `evicting`: it puts nothing new on the GPU, and queued work drains.
enum Where : uint32_t { pinned = 0, resident = 1, evicting = 2, evicted = 3, restoring = 4 };

enum Refusal : uint32_t {
    none_refused = 0,
    in_capture = 1,      // a graph was being captured
    does_not_drain = 2,  // its work did not end in time
    host_budget = 3,     // the host memory budget is used up
    host_memory = 4,     // the host memory could not be allocated
    driver_failed = 5,   // a driver call failed
};

using Flag = std::atomic<uint32_t>;
using Count = std::atomic<uint64_t>;

struct Knobs {
    Flag rule;           // admission::Rule
    Flag grace_us;       // how long a tenant's streams must have been empty before it counts as idle
    Flag gate_every_us;  // how much work may be queued between two gates
    Flag stale_ms;       // how old the heartbeat of a tenant may be before its busy flag counts for nothing
    Flag in_flight_us;   // how much gated work may be queued before a launch waits
    Flag turn_us;        // how much a tenant executes in a turn among equals; 0: by the cost of a switch (turns.h)
    Flag patience_ms;    // how long a launch waits without progress; then it goes on, behind a gate
};

// What the administrator of a shared segment grants a user, a group, or everybody who is not named (shared_segment.h).
enum SubjectKind : uint32_t { nobody = 0, user = 1, group = 2, everybody = 3 };
struct Grant {
    Flag subject_kind;   // nobody: no entry
    Flag subject_id;     // of the user or group
    Flag best_class;     // 1 + the highest class that the subject's jobs may have; 0: not set
    Flag check;          // of the others, as check_of has it
    Count memory_limit;  // on each GPU for all processes of a user together, as in Slot; 0: not set
};
constexpr int kGrants = 32;

struct Header {
    char magic[8];
    uint32_t version;
    uint32_t header_bytes;
    uint32_t slot_bytes;
    uint32_t slots;
    Knobs knobs;
    Flag bell;     // a futex that never changes, so that tenants who cannot write here can use it: a tenant that
                   // waits for space wakes its waiters
    Flag choices;  // counts how often `policy` was named, so that the same name can be named again
    uint8_t unused_a[4];
    Count members[kClasses][kSlotWords];  // bit i: slot i is a live tenant of this class
    char policy[512];  // the policy whose controller sets the knobs: a name or a path; empty: the default
    struct Gpu {
        Flag known;  // 0 free, 1 being written, kGpuValid; kGpuLost: never whole, as its writer died, or took too long
        Flag capacity_check;
        uint8_t uuid[16];
        Count capacity;            // of its memory, as far as tenants are concerned; 0: all of it
        Count outsiders_until_ns;  // until then processes use its SMs that are no tenants (gpus/outsiders.py)
    } gpus[kGpus];
    // Where memory is short (native/admission/arbiter.h); 0: the default.
    struct MemoryKnobs {
        Count headroom;     // bytes of each GPU kept free for the higher classes
        Count host_memory;  // bytes of pinned host memory for all tenants together
        Flag stay_ms;       // how long a restored tenant stays before an equal takes its place
        Flag check;         // of the other three
    } memory_knobs;
    Grant grants[kGrants];
    Flag parameters[8];  // of a rule that asks for some (admission/rules.h): the bits of floats
};

// What the owner counts, for people and for policies.
struct Figures {
    Count kernels;
    Count graphs;
    Count copies;
    Count memory_ops;  // memsets, stream memory operations, stream-ordered allocation
    Count host_calls;
    Count gates;    // gates put into streams
    Count escaped;  // work that reached the GPU without passing a gate it should have passed
    Count bursts;   // idle -> busy
};

struct OnGpu {
    alignas(64) Flag gate;  // other tenants write it too; a futex: a tenant that waits for its turn sleeps here
    Flag over_rate;         // it has used more than `rate`
    Flag below_floor;       // it has got less than `floor`
    // Where the time of a tenant that passes no gates goes (tenant/breakdown.h).
    Flag waits;       // bursts whose start was timed
    Count waited_ns;  // how long these waited for the GPU in all
    Count gap_ns;     // of busy_ns, its streams were empty: it waited for itself
    // The standing among equals (admission/turns.h) of a tenant that passes gates.
    Flag ready;             // Ready: it has work but copies: its streams are not empty
    Flag on;                // what it has started may be on the GPU, or its gate is open and it is ready
    Flag switch_us;         // the measured cost of a switch to it
    Flag turn_us;           // how much it may execute in a turn
    Count stop_ns;          // since when it should have stopped and has not; 0: it may run, or it has stopped
    Count switch_ns;        // when it got the turn: when its predecessor was last seen running
    alignas(64) Flag busy;  // Busy
    Flag holds_turn;        // it has the turn among its equals, and the turn has not ended
    Figures figures;
    // GPU time charged. Of a tenant that passes gates: executed (admission/charging.h); of production under `strict`:
    // it had work.
    Count used_ns;
    Count busy_ns;  // it had work, whether the gate was open or not
    Count memory_bytes;
    // Written by a policy's controller.
    Count shut_until_ns;      // its gate stays closed until then
    Count tolerant_until_ns;  // until then lower classes do not wait for it
    Count rate_until_ns;      // until then `rate` holds
    Flag rate;                // thousandths of the GPU's time that it may use; 0: no limit
    Flag in_flight_us;        // written by the owner: work queued behind gates and not known to be done
    // Calls that wait for the GPU, and how long its threads were in calls that may (tenant/blocking_call.h).
    alignas(64) Count blocking_calls;
    Count blocked_ns;
    Count turn_key;  // used_ns divided by weight, never far from its equals': the waiting tenant with the least is next
    // The SMs that its kernels get (tenant/detour.h).
    Count sms_until_ns;  // written by a policy's controller: until then `sms` holds
    Flag sms;            // likewise: thousandths of the GPU's SMs; 0: no limit
    Flag sms_now;        // written by the owner: how many its kernels get; 0: all
    Count detours;       // kernels that were launched into so many
    Count undetoured;    // and those that meanwhile were not
    Count beside_ns;     // of used_ns, beside the holder of a turn
};

struct Slot {
    Flag owner;              // see above
    Flag identity_check;     // of pid, started and pid_namespace
    Flag asked_check;        // of all that is asked: `asked`, asked_memory, asked_sms and residence.asked_pause
    Flag limit_check;        // of memory_limit
    uint64_t pid_namespace;  // of the owner: the number of /proc/self/ns/pid
    uint8_t unused_b[24];
    uint32_t pid;  // in that namespace
    uint32_t uid;
    uint64_t started;  // the owner's start time in clock ticks since boot (field 22 of /proc/PID/stat)
    Flag tenant_class;
    Flag weight;              // thousandths
    Count unknown_functions;  // names that the driver knew and we did not, handed out uncounted
    uint8_t run_id[16];       // of the `cotenant run` that it belongs to
    char name[64];            // of the program, zero-terminated
    Count heartbeat_ns;       // CLOCK_MONOTONIC; a busy owner that is stopped lets it go stale
    Flag time_slice_us;       // of its kernels; 0: not known
    Flag time_slice_refused;  // the driver refused the slice of its class
    Flag grace_us;            // the grace period that it has learned
    Flag slowdown;            // thousandths that it may slow down by; 0: no promise
    Flag floor;               // thousandths of the GPU's time that it gets whatever the higher classes do
    // 1 + the value that a command asks for; the owner takes it and sets 0.
    struct Asked {
        Flag tenant_class, weight, slowdown, floor, time_slice_us;
    } asked;
    Count memory_limit;  // on each GPU for all processes of its run together (tenant/memory/quota.h); 0: none
    Count host_bytes;    // of its GPU memory, what is evicted to the host now
    Count asked_memory;  // 1 + the limit that a command asks for; the owner takes it and sets 0
    // Whether its memory is on the GPU, for a tenant whose memory can move (native/tenant/memory/mover.h).
    struct Residence {
        Flag where;              // Where
        Flag wake;               // a futex: changes when another process wants the mover to look
        Flag wanted_hard;        // the driver itself had no space for what it waits for
        Flag asked_pause;        // 1 + (1 to pause, 0 to resume), by hand; the owner takes it and sets 0
        Flag paused;             // by hand: it is not restored by itself
        Flag refusal;            // why its last eviction was refused: Refusal
        Count refused_ns;        // and when
        Count since_ns;          // when it was last evicted or restored
        Count transfer_ns;       // its last eviction and restore together
        Count eviction_ns;       // and of that the eviction
        Count waiting_since_ns;  // for space, to be restored or to grow; 0: it does not wait
        Count wanted_bytes;      // that it waits for, on all GPUs together
        Count evictions;
        Count host_pinned_bytes;  // host memory that it has pinned, in use or not
        Count saved_bytes;        // copied to the host, ever
        Count dropped_bytes;      // and not copied, as the program had no use for them
    } residence;
    // What the owner did that the interposer cannot hold back (native/tenant/uncovered.h), beside `unknown_functions`.
    Count export_tables;
    Count ungated_graphs;
    Count checkpoints;
    char job[64];  // the name of its run, zero-terminated; empty: none was given
    // Of a process whose contexts live in an MPS server. Kernels of tenants with the same number can be on a GPU at
    // once; all others only take turns.
    Count mps_daemon;  // names the daemon (tenant/mps.h); 0: contexts of its own
    Flag mps_fault;    // the CUresult with which they have failed; 0: none
    // The ring of `cotenant timeline` (tenant/timeline.h).
    Flag asked_timeline;        // 1 + its KiB, 1: none any more; the owner takes it and sets 0
    Flag asked_timeline_check;  // of it
    Flag timeline;              // 1 + the ring's descriptor in the owner's process; 0: there is none
    Flag lane;                  // 1 + its number, where the slot names a thread (tenant/lanes.h); 0: the process's own
    // Under a rule that is asked at each launch: the kernels of which a profile tells what they are like
    // (tenant/kernel_profile.h), and the others; each shape once.
    Flag profiled_kernels, unprofiled_kernels;
    Flag sms;          // thousandths of a GPU's SMs that its kernels get (tenant/detour.h); 0: all
    Flag asked_sms;    // 1 + those that a command asks for; the owner takes it and sets 0
    Flag sms_refused;  // why it cannot be given fewer: detour::Refusal
    uint8_t unused[40];
    OnGpu gpus[kGpus];
    struct Memory {
        Count driver_bytes;   // of memory_bytes: contexts, modules and what else the driver took by itself
        Count refused;        // allocations that the limit did not allow
        Count movable_bytes;  // of memory_bytes: can be evicted
        Count wanted_bytes;   // more that it waits for (Residence::waiting_since_ns)
        Count evicted_bytes;  // on the host now, and not in memory_bytes
    } memory[kGpus];
    // GPU time that an operation takes, of a tenant that passes no gates; 0: not known.
    struct Pace {
        Flag now_ns;    // lately
        Flag alone_ns;  // when no other tenant was last at work on the GPU
    } pace[kGpus];
    // What it has on a GPU, under a rule that is asked at each launch (tenant/launch_rule.h). Of production what it
    // launched last, of others all that is not known to have ended.
    struct Launched {
        Flag bound;           // admission::Bound of the last kernel
        Flag sms;             // that its kernels fill
        Flag operations;      // only of others than production
        Flag outstanding_us;  // likewise: the time that they take
        Count launched_ns;    // when it launched last
        Count ends_ns;        // when all that production has launched should have ended
    } launched[kGpus];
    // How long it has waited for the GPU with work of its own (wire/waiting.h): at a closed gate, or, where it passes
    // no gates, from the launch of a burst until the GPU reached it, as far as that is timed (tenant/breakdown.h).
    struct Waiting {
        Count since_ns;             // it has waited at its gate since then; 0: it does not
        Count preemptions;          // its gate was closed while its streams were not empty
        Count sum_ns;               // of all waits
        Flag counts[kWaitBuckets];  // waits shorter than kShortestWaitNs << i, and no shorter than those before; the
                                    // last: all longer ones
    } waiting[kGpus];
    Flag copy_gates[kGpus];  // as OnGpu::gate, for long copies between host and GPU
    // Of production, what the threads that wait for the GPU did between two such waits (tenant/own_time.h).
    struct Own {
        Count cpu_ns;     // they worked
        Count asleep_ns;  // they slept
    } own[kGpus];
};

static_assert(std::atomic<uint32_t>::is_always_lock_free && std::atomic<uint64_t>::is_always_lock_free);
static_assert(sizeof(Header) <= kSmallestPlace && sizeof(Slot) <= kSmallestPlace);
static_assert(offsetof(Slot, pid) == 48 && sizeof(OnGpu) == 256 && offsetof(Slot, gpus) == 512);

// Header and slots have a place of whole pages each, since an administrator's segment maps each by itself: of 8 KiB, or
// one page where the kernel's are larger (on aarch64 they may have 16 or 64 KiB). The header says so, and Python goes
// by the same rule.
inline size_t place_bytes() {
    static std::atomic<size_t> known{0};
    size_t bytes = known.load(std::memory_order_relaxed);
    if (!bytes) known.store(bytes = std::max<size_t>(kSmallestPlace, getauxval(AT_PAGESZ)), std::memory_order_relaxed);
    return bytes;
}
inline size_t segment_bytes() { return place_bytes() * (1 + kSlots); }

struct Segment {
    Header header;

    Slot& slot(int i) {
        return *reinterpret_cast<Slot*>(reinterpret_cast<char*>(this) + place_bytes() * (1 + static_cast<size_t>(i)));
    }
};

// The futex word's bits (linux/futex.h).
constexpr uint32_t kOwnerDied = 0x40000000;
constexpr uint32_t kOwnerMask = 0x3fffffff;

inline bool is_live(uint32_t owner) { return (owner & kOwnerMask) != 0 && (owner & kOwnerDied) == 0; }
inline bool is_live(const Slot& slot) { return is_live(slot.owner.load(std::memory_order_acquire)); }

// What stands beside values that could harm a guest if they were garbage. Never 0.
template <class... Values>
uint32_t check_of(Values... values) {
    uint64_t sum = 0x636f74656e616e74;
    for (uint64_t value : {uint64_t{values}...}) sum = ((sum ^ value) * 0x9e3779b97f4a7c15) ^ (sum >> 29);
    return static_cast<uint32_t>(sum >> 32) | 1;
}

}  // namespace wire
