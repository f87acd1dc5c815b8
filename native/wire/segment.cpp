#include "wire/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "wire/border.h"
#include "wire/identity.h"
#include "wire/shared_segment.h"

// A process may be killed between any two stores: tests define this to be killed at each place in turn.
#ifndef FAULT_POINT
#define FAULT_POINT()
#endif

namespace wire {

namespace {

constexpr int kMostTries = 100;
// How far a tenant's turn key may be ahead of its equals' when it comes back, and behind: in GPU time of weight 1.
constexpr uint64_t kLargestDebtNs = 20000000, kLargestClaimNs = 50000000;
constexpr uint64_t kAbandonedNs = 2000000000;  // an owner shows itself at least every 500 ms

// In either direction: a moment that has not come yet is no sign of life.
bool is_within(uint64_t moment_ns, uint64_t ns) {
    int64_t age = static_cast<int64_t>(now_ns() - moment_ns);
    return std::abs(age) < static_cast<int64_t>(ns);
}

std::string because(const char* what, const char* path) {
    return std::string(what) + " " + path + ": " + strerror(errno);
}

Segment* map(int fd) {
    Segment* segment = reserve_segment();
    if (!segment) return nullptr;
    if (mmap(segment, segment_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED)
        return segment;
    munmap(segment, mapped_bytes());
    return nullptr;
}

// A new segment appears under its name only when it is complete: written beside it, then linked.
bool create(const char* path, std::string* why) {
    std::string beside = std::string(path) + ".new." + std::to_string(getpid());
    ::unlink(beside.c_str());
    int fd = ::open(beside.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        *why = because("cannot create", path);
        return false;
    }
    bool done = false;
    // posix_fallocate, not ftruncate: a full disk is an error here, not a SIGBUS in the guest.
    if (int error = posix_fallocate(fd, 0, segment_bytes())) {
        errno = error;
        *why = because("no room for", path);
    } else if (Segment* segment = map(fd)) {
        begin_header(segment->header);
        done = ::link(beside.c_str(), path) == 0 || errno == EEXIST;
        if (!done) *why = because("cannot create", path);
        munmap(segment, mapped_bytes());
    } else {
        *why = because("cannot map", path);
    }
    ::close(fd);
    ::unlink(beside.c_str());
    return done;
}

using Members = Count[kClasses][kSlotWords];
Members& members_of(Segment& segment) {
    return is_shared(segment) ? attached(segment).members : segment.header.members;
}

uint32_t rule_of(Segment& segment) { return rule_of(segment.header); }

template <class Is>
bool any_in(Segment& segment, uint32_t first, uint32_t last, Is&& is) {
    for (uint32_t tenant_class = first; tenant_class <= last && tenant_class < kClasses; ++tenant_class)
        for (int word = 0; word < kSlotWords; ++word)
            for (uint64_t bits = members_of(segment)[tenant_class][word].load(); bits; bits &= bits - 1)
                if (is(word * 64 + __builtin_ctzll(bits))) return true;
    return false;
}

template <class Do>
void for_each_in(Segment& segment, uint32_t first, uint32_t last, Do&& act) {
    any_in(segment, first, last, [&](int index) {
        act(index);
        return false;
    });
}

bool uses(const Slot& slot, int gpu) { return is_live(slot) && slot.gpus[gpu].figures.bursts.load(); }

// The classes whose tenants share turns with one of `tenant_class`; none where it takes no turns.
struct Classes {
    uint32_t first, last;
};
Classes equals_of(uint32_t rule, uint32_t tenant_class) {
    if (rule == admission::fair) return {0, kClasses - 1};
    if (rule == admission::strict && tenant_class != production) return {tenant_class, tenant_class};
    return {1, 0};
}

// By a controller or its rate: it cannot use a turn, so it keeps none from its equals.
bool is_barred(const Slot& slot, int gpu) {
    const OnGpu& here = slot.gpus[gpu];
    return !here.below_floor.load() && (here.over_rate.load() || holds_until(here.shut_until_ns, now_ns()));
}

// One that is below its floor runs beside whoever has the turn, and is not waited for.
admission::Equal as_equal(Segment& segment, int index, int gpu) {
    const Slot& slot = segment.slot(index);
    const OnGpu& here = slot.gpus[gpu];
    uint64_t stop_ns = here.stop_ns.load();
    bool is_there = has_work(segment, index, gpu);
    return {here.turn_key.load(),
            static_cast<uint32_t>(index),
            is_there && here.ready.load() && !is_barred(slot, gpu),
            here.holds_turn.load() != 0,
            is_there && here.on.load() && !here.below_floor.load(),
            stop_ns && !is_within(stop_ns, admission::kDrainNs)};
}

bool has_turn(Segment& segment, int index, int gpu) {
    Classes equals = equals_of(rule_of(segment), class_of(segment.slot(index)));
    admission::Equal self = as_equal(segment, index, gpu);
    return !any_in(segment, equals.first, equals.last, [&](int other) {
        return other != index && admission::waits_for(self, as_equal(segment, other, gpu));
    });
}

// Of its equals that are ready; UINT64_MAX: none is.
uint64_t least_ready_key(Segment& segment, int index, int gpu) {
    Classes equals = equals_of(rule_of(segment), class_of(segment.slot(index)));
    uint64_t least = UINT64_MAX;
    for_each_in(segment, equals.first, equals.last, [&](int other) {
        if (other == index) return;
        admission::Equal one = as_equal(segment, other, gpu);
        if (one.is_ready) least = std::min(least, one.turn_key_ns);
    });
    return least;
}

// Of its equals, at work or not.
uint64_t largest_key(Segment& segment, int index, int gpu) {
    constexpr uint64_t kGarbage = uint64_t{1} << 62;
    Classes equals = equals_of(rule_of(segment), class_of(segment.slot(index)));
    uint64_t most = 0;
    for_each_in(segment, equals.first, equals.last, [&](int other) {
        uint64_t key = segment.slot(other).gpus[gpu].turn_key.load();
        if (other != index && uses(segment.slot(other), gpu) && key < kGarbage) most = std::max(most, key);
    });
    return most;
}

// Its watcher may sleep there.
void wake_at_gate(Flag& gate) { syscall(SYS_futex, &gate, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0); }

void leave_classes(Segment& segment, int index) {
    for (auto& members : members_of(segment)) members[index / 64].fetch_and(~(uint64_t{1} << (index % 64)));
}

// Rather in two classes for a moment than in none: who sums up the memory of a run finds its processes here.
void enter_class(Segment& segment, int index, uint32_t tenant_class) {
    uint64_t mask = uint64_t{1} << (index % 64);
    auto& own = members_of(segment)[tenant_class][index / 64];
    if (!(own.load() & mask)) own.fetch_or(mask);
    FAULT_POINT();
    for (uint32_t other = 0; other < kClasses; ++other) {
        auto& words = members_of(segment)[other][index / 64];
        if (other != tenant_class && words.load() & mask) words.fetch_and(~mask);
    }
}

void sign(Segment& segment, int index) {
    Slot& slot = segment.slot(index);
    slot.uid = getuid();
    write_identity(slot, attached(segment).self);
    slot.heartbeat_ns.store(now_ns());
}

void step_off(OnGpu& here) {
    here.ready.store(0);
    here.on.store(0);
    here.stop_ns.store(0);
    here.holds_turn.store(0);
}

uint32_t closed_after(uint32_t gate) { return gate + 2 == open ? open + 2 : gate + 2; }

// Everything a slot's next owner must not inherit. The caller has the slot's owner word.
void clear(Segment& segment, int index) {
    Slot& slot = segment.slot(index);
    leave_classes(segment, index);
    FAULT_POINT();
    for (int gpu = 0; gpu < kGpus; ++gpu)
        if (slot.gpus[gpu].busy.load()) go_idle(segment, index, gpu);
    FAULT_POINT();
    // All but the owner and its sign of life: a new owner has shown itself before.
    char *begin = reinterpret_cast<char*>(&slot), *beat = reinterpret_cast<char*>(&slot.heartbeat_ns);
    memset(begin + sizeof slot.owner, 0, static_cast<size_t>(beat - begin) - sizeof slot.owner);
    memset(beat + sizeof slot.heartbeat_ns, 0,
           sizeof slot - static_cast<size_t>(beat - begin) - sizeof slot.heartbeat_ns);
    FAULT_POINT();
    // The leaving owner's streams may still wait here: they must drain.
    for (OnGpu& gpu : slot.gpus) gpu.gate.store(open);
}

int take_free_slot(Segment& segment) {
    for (int i = 0; i < kSlots; ++i) {
        Slot& slot = segment.slot(i);
        if (is_live(slot)) continue;
        // Before it is taken: a live slot that nobody has signed and that shows no life is anybody's.
        slot.heartbeat_ns.store(now_ns());
        FAULT_POINT();
        if (take_owner(attached(segment).hold, slot.owner)) return i;
    }
    return -1;
}

bool is_folder(const char* path) {
    struct stat about;
    return lstat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

}  // namespace

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

Segment* open_segment(const char* path, std::string* why) {
    if (is_folder(path)) return open_shared_segment(path, why);
    int fd = ::open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        *why = because("cannot open", path);
        return nullptr;
    }
    struct stat about;
    Segment* segment = nullptr;
    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode) || about.st_size < static_cast<off_t>(sizeof(Header))) {
        *why = std::string(path) + " is not a Cotenant segment";
    } else if (about.st_uid != geteuid() && about.st_uid != 0) {
        *why = std::string(path) + " belongs to another user";
    } else {
        Header header_bytes;
        char* raw = reinterpret_cast<char*>(&header_bytes);
        if (pread(fd, raw, sizeof header_bytes, 0) != static_cast<ssize_t>(sizeof header_bytes) ||
            memcmp(header_bytes.magic, kMagic, sizeof kMagic) != 0) {
            *why = std::string(path) + " is not a Cotenant segment";
        } else if (!is_ours(header_bytes, path, why)) {
        } else if (about.st_size != static_cast<off_t>(segment_bytes())) {
            *why = std::string(path) + " is not a Cotenant segment";
        } else if (!(segment = map(fd))) {
            *why = because("cannot map", path);
        }
    }
    ::close(fd);
    return segment;
}

Segment* create_or_open_segment(const char* path, std::string* why) {
    if (access(path, F_OK) != 0 && !create(path, why)) return nullptr;
    return open_segment(path, why);
}

void close_segment(Segment* segment) {
    if (segment) munmap(segment, mapped_bytes());
}

bool is_stale(Segment& segment, uint64_t heartbeat_ns) {
    return !is_within(heartbeat_ns, uint64_t{stale_ms(segment.header.knobs)} * 1000000);
}

bool is_abandoned(const Slot& slot) {
    Identity identity;
    if (is_within(slot.heartbeat_ns.load(), kAbandonedNs)) return false;
    return !read_identity(slot, &identity) || is_gone(identity);
}

int take_slot(Segment& segment) {
    attached(segment).self = own_identity();
    auto begin = [](Segment& where, int index) {
        FAULT_POINT();
        clear(where, index);
        FAULT_POINT();
        sign(where, index);
    };
    if (is_shared(segment)) return take_shared_slot(segment, begin);
    int index = take_free_slot(segment);
    if (index >= 0) begin(segment, index);
    return index;
}

bool keep_slot(Segment& segment, int index) {
    Slot& slot = segment.slot(index);
    Identity self = attached(segment).self, there;
    bool is_signed = read_identity(slot, &there);
    if (!keep_owner(slot.owner)) {
        // Somebody has freed it meanwhile, and another has come in. Else the word is garbage.
        if (is_signed && !(there == self) && !is_gone(there)) return false;
        seize_owner(slot.owner);
    }
    if (!is_signed || !(there == self)) sign(segment, index);
    enter_class(segment, index, class_of(slot));
    return true;
}

void leave_slot(Segment& segment, int index) {
    clear(segment, index);
    FAULT_POINT();
    if (is_shared(segment)) leave_shared_slot(segment, index);
    FAULT_POINT();
    leave_owner(attached(segment).hold, segment.slot(index).owner);
}

int bury_the_dead(Segment& segment) {
    if (is_shared(segment)) return look_around(segment);
    int buried = 0;
    for (int i = 0; i < kSlots; ++i) {
        Flag& owner = segment.slot(i).owner;
        uint32_t seen = owner.load();
        if (seen == 0 || (is_live(seen) && !is_abandoned(segment.slot(i)))) continue;
        Reaping reaping(attached(segment).hold, owner, seen);
        if (!reaping) continue;
        FAULT_POINT();
        clear(segment, i);
        FAULT_POINT();
        ++buried;
    }
    return buried;
}

int gpu_number(Segment& segment, const uint8_t uuid[16]) {
    for (int i = 0; i < kGpus; ++i) {
        Header::Gpu& gpu = segment.header.gpus[i];
        uint32_t free_entry = gpu.known.load();
        if (is_shared(segment)) {
            if (gpu.known.load() == 2 && memcmp(gpu.uuid, uuid, sizeof gpu.uuid) == 0) return i;
            continue;
        }
        // An entry being written by a process that died there stays unused: 15 others remain.
        bool is_free = free_entry == 0 || free_entry > 2;
        if (is_free && gpu.known.compare_exchange_strong(free_entry, 1)) {
            memcpy(gpu.uuid, uuid, sizeof gpu.uuid);
            gpu.known.store(2);
            return i;
        }
        for (int tries = 0; gpu.known.load() == 1 && tries < 100; ++tries) usleep(10);
        if (gpu.known.load() == 2 && memcmp(gpu.uuid, uuid, sizeof gpu.uuid) == 0) return i;
    }
    return -1;
}

void join_class(Segment& segment, int index, Class wanted) {
    uint32_t tenant_class = std::max<uint32_t>(wanted, best_class_of_own(segment));
    segment.slot(index).tenant_class.store(tenant_class);
    FAULT_POINT();
    enter_class(segment, index, tenant_class);
    for (int gpu = 0; gpu < kGpus; ++gpu) refresh_gate(segment, index, gpu);
}

void members(Segment& segment, uint64_t words[kSlotWords]) {
    for (int word = 0; word < kSlotWords; ++word) {
        words[word] = 0;
        for (auto& of_class : members_of(segment)) words[word] |= of_class[word].load();
    }
}

uint32_t best_class_of_own(Segment& segment) {
    Attached& here = attached(segment);
    return is_shared(segment) ? best_class(segment, here.uid, here.gid) : production;
}

bool has_work(Segment& segment, int index, int gpu) {
    const Slot& slot = segment.slot(index);
    return slot.gpus[gpu].busy.load() && is_live(slot) && !is_stale(segment, slot.heartbeat_ns.load());
}

bool anybody_at_work(Segment& segment, int index, int gpu) {
    return any_in(segment, 0, kClasses - 1, [&](int other) { return other != index && has_work(segment, other, gpu); });
}

bool anybody_else(Segment& segment, int index, int gpu, uint32_t first, uint32_t last) {
    return any_in(segment, first, last, [&](int other) { return other != index && uses(segment.slot(other), gpu); });
}

bool any_floor(Segment& segment, int gpu) {
    return any_in(segment, 0, kClasses - 1,
                  [&](int other) { return segment.slot(other).floor.load() && uses(segment.slot(other), gpu); });
}

bool is_tolerant(const Slot& slot, int gpu) { return holds_until(slot.gpus[gpu].tolerant_until_ns, now_ns()); }

bool is_above_busy(Segment& segment, int index, int gpu) {
    uint32_t tenant_class = class_of(segment.slot(index));
    return rule_of(segment) == admission::strict && tenant_class > 0 &&
           any_in(segment, 0, tenant_class - 1,
                  [&](int other) { return has_work(segment, other, gpu) && !is_tolerant(segment.slot(other), gpu); });
}

admission::Standing standing(Segment& segment, int index, int gpu) {
    Slot& slot = segment.slot(index);
    OnGpu& here = slot.gpus[gpu];
    uint32_t tenant_class = class_of(slot);
    return {tenant_class, is_above_busy(segment, index, gpu), has_turn(segment, index, gpu),
            holds_until(here.shut_until_ns, now_ns()), here.over_rate.load() != 0,
            // What is queued must end before its memory can go.
            here.below_floor.load() != 0 || slot.residence.where.load() == leaving};
}

void catch_up(Segment& segment, int index, int gpu) {
    Classes equals = equals_of(rule_of(segment), class_of(segment.slot(index)));
    uint64_t least = UINT64_MAX;
    for_each_in(segment, equals.first, equals.last, [&](int other) {
        if (other != index && has_work(segment, other, gpu))
            least = std::min(least, segment.slot(other).gpus[gpu].turn_key.load());
    });
    if (least == UINT64_MAX) return;
    Count& key = segment.slot(index).gpus[gpu].turn_key;
    key.store(std::clamp(key.load(), least, least + kLargestDebtNs));
}

void go_busy(Segment& segment, int index, int gpu) {
    Slot& slot = segment.slot(index);
    slot.heartbeat_ns.store(now_ns());
    FAULT_POINT();
    slot.gpus[gpu].busy.store(1);
    FAULT_POINT();
    close_gates_below(segment, index, gpu);
    uint32_t rule = rule_of(segment), tenant_class = class_of(slot);
    if (!admission::is_gated(rule, tenant_class)) return;
    if (is_shared(segment)) look_at_rivals(segment, index, Look::now);
    catch_up(segment, index, gpu);
    FAULT_POINT();
    go_ready(segment, index, gpu);
}

void go_idle(Segment& segment, int index, int gpu) {
    Slot& slot = segment.slot(index);
    slot.gpus[gpu].busy.store(0);
    FAULT_POINT();
    step_off(slot.gpus[gpu]);
    FAULT_POINT();
    refresh_gates(segment, class_of(slot), gpu);
}

void go_ready(Segment& segment, int index, int gpu) {
    Slot& slot = segment.slot(index);
    OnGpu& here = slot.gpus[gpu];
    Classes equals = equals_of(rule_of(segment), class_of(slot));
    here.ready.store(1);
    FAULT_POINT();
    // What it could not use while it was empty it has no claim to: nobody's key is ever far behind another's, whoever
    // has work at the moment, so that nobody waits for long.
    uint64_t most = largest_key(segment, index, gpu);
    if (most > kLargestClaimNs && here.turn_key.load() < most - kLargestClaimNs)
        here.turn_key.store(most - kLargestClaimNs);
    if (refresh_gate(segment, index, gpu) || is_shared(segment)) return;
    // Whoever is on may have run empty since it last looked.
    for_each_in(segment, equals.first, equals.last, [&](int other) {
        if (other != index && as_equal(segment, other, gpu).is_on) wake_at_gate(segment.slot(other).gpus[gpu].gate);
    });
}

void go_empty(Segment& segment, int index, int gpu, uint64_t ran_ns) {
    Slot& slot = segment.slot(index);
    bool had_turn = slot.gpus[gpu].on.load();
    step_off(slot.gpus[gpu]);
    FAULT_POINT();
    if (had_turn) refresh_gates(segment, class_of(slot), gpu, ran_ns);
}

void leave_gpu(Segment& segment, int index, int gpu, uint32_t gate, uint64_t ran_ns) {
    Slot& slot = segment.slot(index);
    OnGpu& here = slot.gpus[gpu];
    here.on.store(0);
    here.stop_ns.store(0);
    FAULT_POINT();
    // Somebody may be opening it: says that it is on before, and after.
    if (here.gate.load() != gate) here.on.store(1);
    refresh_gates(segment, class_of(slot), gpu, ran_ns);
}

void forgo_turn(Segment& segment, int index, int gpu) {
    OnGpu& here = segment.slot(index).gpus[gpu];
    uint64_t least = least_ready_key(segment, index, gpu);
    if (least != UINT64_MAX && here.turn_key.load() <= least) here.turn_key.store(least + 1);
    here.holds_turn.store(0);
    FAULT_POINT();
    here.ready.store(0);
}

bool is_equal_on(Segment& segment, int index, int gpu) {
    Classes equals = equals_of(rule_of(segment), class_of(segment.slot(index)));
    return any_in(segment, equals.first, equals.last, [&](int other) {
        return other != index && is_live(segment.slot(other)) && segment.slot(other).gpus[gpu].on.load();
    });
}

uint32_t ready_equals(Segment& segment, int index, int gpu) {
    Classes equals = equals_of(rule_of(segment), class_of(segment.slot(index)));
    uint32_t others = 0;
    for_each_in(segment, equals.first, equals.last,
                [&](int other) { others += other != index && as_equal(segment, other, gpu).is_ready; });
    return others ? others + 1 : 0;
}

void close_gates_below(Segment& segment, int index, int gpu) {
    const Slot& slot = segment.slot(index);
    if (is_shared(segment) || rule_of(segment) != admission::strict || is_tolerant(slot, gpu)) return;
    for_each_in(segment, class_of(slot) + 1, kClasses - 1, [&](int below) {
        Flag& gate = segment.slot(below).gpus[gpu].gate;
        if (gate.fetch_add(2) + 2 == open) gate.fetch_add(2);
    });
}

void refresh_gates(Segment& segment, uint32_t tenant_class, int gpu, uint64_t ran_ns) {
    if (is_shared(segment)) {
        int own = attached(segment).own;
        if (own >= 0) refresh_gate(segment, own, gpu);
        return;
    }
    uint32_t first = rule_of(segment) == admission::fair ? 0 : tenant_class;
    for_each_in(segment, first, kClasses - 1, [&](int index) { refresh_gate(segment, index, gpu, ran_ns); });
}

bool refresh_gate(Segment& segment, int index, int gpu, uint64_t ran_ns) {
    OnGpu& here = segment.slot(index).gpus[gpu];
    auto may_run = [&](bool* has_turn) {
        uint32_t rule = rule_of(segment);
        admission::Standing now = standing(segment, index, gpu);
        *has_turn = now.has_turn && !is_barred(segment.slot(index), gpu) && admission::is_gated(rule, now.tenant_class);
        return admission::may_run(rule, now);
    };
    bool goes = true, was_open = false;
    // Somebody who writes nonsense without end is not waited for: the next look comes soon.
    for (int tries = 0; tries < kMostTries; ++tries) {
        uint32_t before = here.gate.load();
        bool has_turn = false, ready = here.ready.load();
        was_open = before == open;
        goes = may_run(&has_turn);
        // What it says of itself comes first: who looks after this finds it on.
        if (!has_turn) here.holds_turn.store(0);
        if (goes && ready) {
            here.on.store(1);
            here.stop_ns.store(0);
            if (has_turn && !here.holds_turn.load()) {
                here.switch_ns.store(ran_ns);
                here.holds_turn.store(1);
            }
        }
        FAULT_POINT();
        if (goes != was_open && !here.gate.compare_exchange_strong(before, goes ? open : closed_after(before)))
            continue;
        // Its watcher may have found it standing just before.
        if (goes && ready && !was_open) here.on.store(1);
        if (is_shared(segment) && goes && !was_open) look_at_rivals(segment, index, Look::now);
        if (goes == may_run(&has_turn)) break;
    }
    if (goes && !was_open && here.ready.load()) wake_at_gate(here.gate);
    return goes;
}

void charge(Segment& segment, int index, int gpu, uint64_t ns) {
    Slot& slot = segment.slot(index);
    OnGpu& here = slot.gpus[gpu];
    uint32_t weight = weight_of(slot);
    here.used_ns.fetch_add(ns, std::memory_order_relaxed);
    if (admission::is_gated(rule_of(segment), class_of(slot)))
        here.turn_key.fetch_add(ns * 1000 / weight, std::memory_order_relaxed);
}

}  // namespace wire
