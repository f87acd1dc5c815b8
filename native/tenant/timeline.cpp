#include "tenant/timeline.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "tenant/own_file.h"
#include "wire/clock.h"

namespace tenant::timeline {

std::atomic<Ring*> on{nullptr};

namespace {

constexpr uint32_t kVersion = 2;
constexpr uint64_t kLeastKiB = 64, kMostKiB = 64 << 10;
constexpr int kHighDescriptor = 200;  // out of the way of programs that count on low ones

// A thread may be about to write into the ring when it is told to stop: so there is one for the life of the process.
Ring* ring = nullptr;
uint64_t capacity = 0;  // what the ring says of itself others may overwrite
int descriptor = -1;
OwnFile of_ring;  // the same

// A watcher's: since when what it saw last has lasted; 0: it does not. The process's own watcher ends what those of its
// lanes saw, when the recording ends.
struct Lasting {
    std::atomic<uint64_t> since_ns{0}, value{0};
    std::atomic<uint8_t> why{0};

    void begin(uint64_t now_ns, uint64_t of = 0, uint8_t because = 0) {
        value.store(of, std::memory_order_relaxed);
        why.store(because, std::memory_order_relaxed);
        since_ns.store(now_ns);
    }
};
struct Seen {
    Lasting gates[wire::kGpus], turns[wire::kGpus];
    std::atomic<uint64_t> operations[wire::kGpus] = {};  // launched before the burst
} lanes[1 + kMostLanes];                                 // the first: the process's own
Lasting slice;

uint32_t thread_id() {
    thread_local uint32_t known = static_cast<uint32_t>(syscall(SYS_gettid));
    return known;
}

void end(Lasting& lasting, Event event, int gpu, uint64_t now_ns, uint32_t lane) {
    if (uint64_t since_ns = lasting.since_ns.exchange(0))
        note(event, gpu, since_ns, now_ns, lasting.value.load(), lasting.why.load(), lane);
}

uint64_t operations_of(const wire::Figures& figures) {
    return figures.kernels.load() + figures.graphs.load() + figures.copies.load() + figures.memory_ops.load();
}

bool make_ring(const wire::Slot& slot, uint64_t kib) {
    uint64_t bytes = std::clamp(kib, kLeastKiB, kMostKiB) << 10;
    int file = memfd_create("cotenant-timeline", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file < 0) return false;
    if (int high = fcntl(file, F_DUPFD_CLOEXEC, kHighDescriptor); high >= 0) {
        close(file);
        file = high;
    }
    void* memory = MAP_FAILED;
    // A file that somebody could shrink would be this process's end.
    if (ftruncate(file, static_cast<off_t>(bytes)) == 0 &&
        fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) {
        close(file);
        return false;
    }
    ring = static_cast<Ring*>(memory);
    descriptor = file;
    of_ring = OwnFile(file);
    capacity = (bytes - offsetof(Ring, entries)) / sizeof(Entry);
    memcpy(ring->magic, "cotline", sizeof ring->magic);
    ring->version = kVersion;
    ring->entry_bytes = sizeof(Entry);
    ring->capacity = capacity;
    ring->pid = slot.pid;
    ring->started = slot.started;
    return true;
}

}  // namespace

void begin(wire::Slot& slot, uint64_t kib) {
    if (on.load()) return;
    if (!ring && !make_ring(slot, kib)) return;  // `timeline` stays 0, and who asked says so
    for (uint64_t i = 0; i < capacity; ++i) ring->entries[i].sequence.store(0, std::memory_order_relaxed);
    ring->count.store(0);
    slice.since_ns.store(0);
    for (Seen& seen : lanes)
        for (int gpu = 0; gpu < wire::kGpus; ++gpu) {
            seen.gates[gpu].since_ns.store(0);
            seen.turns[gpu].since_ns.store(0);
        }
    on.store(ring, std::memory_order_release);
    slot.timeline.store(static_cast<uint32_t>(descriptor) + 1);
}

void note_launched(const wire::Slot& slot, uint32_t lane) {
    for (int gpu = 0; gpu < wire::kGpus; ++gpu)
        lanes[lane].operations[gpu].store(operations_of(slot.gpus[gpu].figures));
}

void finish(wire::Slot& slot, uint64_t now_ns) {
    for (uint32_t lane = 0; lane <= kMostLanes; ++lane)
        for (int gpu = 0; gpu < wire::kGpus; ++gpu) {
            end(lanes[lane].gates[gpu], Event::gate, gpu, now_ns, lane);
            end(lanes[lane].turns[gpu], Event::turn, gpu, now_ns, lane);
        }
    end(slice, Event::slice, kNoGpu, now_ns, 0);
    on.store(nullptr);
    slot.timeline.store(0);
}

void show(wire::Slot& slot) {
    if (is_on()) slot.timeline.store(static_cast<uint32_t>(descriptor) + 1);
}

void forget_in_child() {
    on.store(nullptr);
    ring = nullptr;
    of_ring.close();
    descriptor = -1;
}

void note(Event event, int gpu, uint64_t begin_ns, uint64_t end_ns, uint64_t value, uint8_t why, uint32_t lane) {
    Ring* into = on.load(std::memory_order_acquire);
    if (!into) return;
    uint64_t number = into->count.fetch_add(1, std::memory_order_relaxed);
    Entry& entry = into->entries[number % capacity];
    entry.sequence.store(0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    entry.begin_ns.store(begin_ns, std::memory_order_relaxed);
    entry.end_ns.store(end_ns, std::memory_order_relaxed);
    entry.value.store(value, std::memory_order_relaxed);
    uint64_t what = static_cast<uint64_t>(event) | static_cast<uint64_t>(gpu & 0xff) << 8 | uint64_t{why} << 16 |
                    uint64_t{lane & 0xff} << 24;
    entry.what.store(what | uint64_t{thread_id()} << 32, std::memory_order_relaxed);
    entry.sequence.store(number + 1, std::memory_order_release);
}

Interval::Interval(Event event, int gpu, uint64_t value)
    : event_(event), gpu_(gpu), value_(value), began_ns_(is_on() ? wire::now_ns() : 0) {}

Interval::~Interval() {
    if (began_ns_) note(event_, gpu_, began_ns_, wire::now_ns(), value_);
}

void saw_gate(int gpu, bool is_closed, Closed why, uint64_t now_ns) {
    if (!is_on()) return;
    Lasting& lasting = lanes[lane_of_thread].gates[gpu];
    auto reason = static_cast<uint8_t>(why);
    if (is_closed == (lasting.since_ns != 0) && (!is_closed || lasting.why == reason)) return;
    end(lasting, Event::gate, gpu, now_ns, lane_of_thread);
    if (is_closed) lasting.begin(now_ns, 0, reason);
}

void saw_turn(int gpu, bool holds_it, uint64_t now_ns) {
    Lasting& lasting = lanes[lane_of_thread].turns[gpu];
    if (!is_on() || holds_it == (lasting.since_ns != 0)) return;
    end(lasting, Event::turn, gpu, now_ns, lane_of_thread);
    if (holds_it) lasting.begin(now_ns);
}

void saw_slice(uint32_t us, bool is_cut, uint64_t now_ns) {
    if (!is_on() || (slice.since_ns && slice.value == us && (slice.why != 0) == is_cut)) return;
    end(slice, Event::slice, kNoGpu, now_ns, 0);
    slice.begin(now_ns, us, static_cast<uint8_t>(is_cut));
}

void saw_burst(const wire::Slot& slot, int gpu, uint64_t began_ns, uint64_t ended_ns, uint32_t lane) {
    if (!is_on()) return;
    uint64_t launched = operations_of(slot.gpus[gpu].figures);
    uint64_t before = lanes[lane].operations[gpu].exchange(launched);
    note(Event::burst, gpu, began_ns, std::max(began_ns, ended_ns), launched - before, 0, lane);
}

}  // namespace tenant::timeline
