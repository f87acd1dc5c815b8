// mover SEGMENT CASE: the mover (native/tenant/memory/mover.h), look by look.
#include "mover_scene.h"

namespace {

// Paused and resumed, more than once: what the slot shows of it on each GPU, and since when.
void pausing(wire::Segment& segment) {
    Scene scene(segment);
    scene.allocate(kBig, 4);
    scene.allocate(kSmall, 2);
    REQUIRE(scene.look() == wire::resident && scene.has(4, 2) && scene.shows(4, 2) && notices == 0);
    for (uint64_t times = 1; times <= 2; ++times) {
        scene.pause();
        scene.resume();
        REQUIRE(scene.look() == wire::resident && ended_notices == notices);  // nothing to end
        scene.pause();
        scene.mine.wanted_hard.store(1);
        noted.clear();
        uint64_t before = clock_ns;
        tick_ns = 10 * kMs;
        REQUIRE(scene.look(1) == wire::evicted && scene.is_away(6) && scene.has(0, 0) && scene.shows(0, 0));
        REQUIRE(scene.slot.memory[kBig].evicted_bytes.load() == 4 * kPage);
        REQUIRE(scene.slot.memory[kSmall].evicted_bytes.load() == 2 * kPage);
        REQUIRE(scene.mine.evictions.load() == times && scene.mine.saved_bytes.load() == times * 6 * kPage);
        REQUIRE(scene.mine.since_ns.load() > before && scene.mine.waiting_since_ns.load() > before);
        REQUIRE(scene.mine.paused.load() == 1 && scene.waits_for(0, 0) && scene.mine.wanted_bytes.load() == 0);
        REQUIRE(notices == static_cast<int>(times) && ended_notices == notices - 1 && !scene.mine.wanted_hard.load());
        tick_ns = 1000;
        // Not by itself, and saying so once more changes nothing.
        scene.pause();
        REQUIRE(scene.look() == wire::evicted && scene.look() == wire::evicted && notices == static_cast<int>(times));
        REQUIRE(scene.slot.heartbeat_ns.load() == clock_ns);
        scene.resume();
        before = clock_ns;
        // At once, though it has just been evicted.
        REQUIRE(scene.look(1) == wire::resident && scene.is_back() && scene.has(4, 2) && scene.shows(4, 2));
        for (auto& on_one : scene.slot.memory) REQUIRE(on_one.evicted_bytes.load() == 0);
        REQUIRE(scene.mine.since_ns.load() > before && scene.mine.paused.load() == 0 && ended_notices == notices);
        REQUIRE(scene.mine.transfer_ns.load() > scene.mine.eviction_ns.load() && scene.mine.eviction_ns.load() > 0);
        REQUIRE(steps == static_cast<int>(times) && scene.look() == wire::resident);
        // One after another, without a gap.
        REQUIRE(noted.size() == 3 && noted[0].event == timeline::Event::evicting);
        REQUIRE(noted[1].event == timeline::Event::evicted && noted[2].event == timeline::Event::restoring);
        REQUIRE(noted[0].end_ns == noted[1].begin_ns && noted[1].end_ns == noted[2].begin_ns);
        REQUIRE(noted[1].value == 6 * kPage && noted[0].begin_ns < noted[0].end_ns);
    }
    // What the program has no use for is not saved, nor what it has freed meanwhile.
    Chunk* freed = scene.allocate(kBig, 1);
    unused = {residence.chunks[1].address, kPage};
    deferred = [&] {
        if (freed) give({&scene.membership, 0, kBig}, kPage);
        return freed && give_back_movable(std::exchange(freed, nullptr)->address);
    };
    uint64_t saved_before = scene.mine.saved_bytes.load();
    scene.pause();
    REQUIRE(scene.look() == wire::evicted && scene.is_away(6) && scene.mine.dropped_bytes.load() == kPage);
    REQUIRE(scene.mine.saved_bytes.load() == saved_before + 5 * kPage);
    scene.resume();
    REQUIRE(scene.look() == wire::resident && scene.is_back() && scene.has(4, 2));
    notices = ended_notices = 2;
    // Somebody at the terminal ends a pause; whoever is not paused is not concerned.
    scene.pause();
    REQUIRE(scene.look() == wire::evicted);
    is_interrupted = true;
    REQUIRE(scene.look() == wire::resident && scene.is_back() && ended_notices == 3);
    REQUIRE(scene.look() == wire::resident && notices == 3 && ended_notices == 3);
    // What others have written into the slot is put right.
    scene.mine.where.store(wire::evicted);
    scene.mine.paused.store(1);
    scene.slot.memory[kBig].movable_bytes.store(7);
    REQUIRE(scene.look() == wire::resident && scene.shows(4, 2) && scene.mine.paused.load() == 0);
}

// Over its limit on one GPU it is evicted, and restored when it may have all of it.
void limits(wire::Segment& segment) {
    for (int gpu : {kBig, kSmall}) {
        static Scene scene(segment);
        static Chunk *big = scene.allocate(kBig, 4), *small = scene.allocate(kSmall, 4);
        REQUIRE(big && small);
        Chunk* more = scene.allocate(gpu, 3);
        change_memory_limit(scene.slot, 7 * kPage);
        REQUIRE(scene.look() == wire::resident);
        change_memory_limit(scene.slot, 7 * kPage - 1);
        REQUIRE(scene.look() == wire::evicted && scene.is_away(11) && scene.waits_for(0, 0));
        REQUIRE(scene.look() == wire::evicted && scene.mine.wanted_bytes.load() == 0);
        // Nor with what another process of the run has.
        memset(scene.slot.run_id, 7, 16);
        wire::Slot& sibling = scene.other(wire::opportunistic, gpu == kBig ? 2 : 0, gpu == kBig ? 0 : 2);
        memset(sibling.run_id, 7, 16);
        change_memory_limit(scene.slot, 8 * kPage);
        REQUIRE(scene.look() == wire::evicted && scene.waits_for(0, 0));
        change_memory_limit(scene.slot, 9 * kPage);
        REQUIRE(scene.look() == wire::resident && scene.is_back() &&
                scene.shows(gpu == kBig ? 7 : 4, gpu == kBig ? 4 : 7));
        give_back_movable(more->address);
        give({&scene.membership, 0, gpu}, 3 * kPage);
        wire::leave_slot(segment, static_cast<int>(number_of(segment, sibling)));
        change_memory_limit(scene.slot, 0);
        if (gpu != kSmall) continue;
        // A share is of each GPU's own memory; who changes the limit wakes the mover.
        uint32_t woken = scene.mine.wake.load();
        scene.ask(0, 1);
        REQUIRE(scene.mine.wake.load() != woken);
        scene.allocate(kBig, 46);
        change_memory_limit(scene.slot, kShareOfGpu | 500000);
        REQUIRE(scene.look() == wire::resident);
        // What comes later is the driver's own: the tenant has nothing that it could free for that.
        scene.allocate(kSmall, 22);
        REQUIRE(scene.look() == wire::resident);
        change_memory_limit(scene.slot, kShareOfGpu | 499999);
        REQUIRE(scene.look() == wire::evicted);
    }
}

// It makes space for a higher class that waits on one of its GPUs, and waits for its own then, by GPU.
void making_space(wire::Segment& segment) {
    for (int gpu : {kBig, kSmall}) {
        static Scene scene(segment);
        static Chunk *big = scene.allocate(kBig, 40), *small = scene.allocate(kSmall, 40);
        REQUIRE(big && small);
        bool is_big = gpu == kBig;
        wire::Slot& needy = scene.other(wire::production, is_big ? 50 : 0, is_big ? 0 : 5);
        REQUIRE(scene.look() == wire::resident);
        // There is as much on that GPU.
        Scene::wants(needy, gpu, is_big ? 10 : 5);
        REQUIRE(scene.look() == wire::resident);
        Scene::wants(needy, gpu, is_big ? 11 : 6);
        REQUIRE(scene.look() == wire::evicted && scene.is_away(80) && scene.has(0, 0));
        // Production takes what it waited for, and this tenant cannot be back: on the other GPU it waits for nothing.
        count_memory(needy, gpu, 11 * kPage);
        Scene::wants(needy, gpu, 0);
        REQUIRE(scene.look() == wire::evicted && scene.look() == wire::evicted);
        REQUIRE(scene.waits_for(is_big ? 40 : 0, is_big ? 0 : 40) && scene.mine.wanted_bytes.load() == 80 * kPage);
        REQUIRE(scene.mine.waiting_since_ns.load() != 0);
        // There is space again, and a thread of its own wants more.
        give_memory(needy, gpu, 11 * kPage);
        REQUIRE(scene.look() == wire::resident && scene.is_back() && scene.has(40, 40));
        wire::leave_slot(segment, static_cast<int>(number_of(segment, needy)));
    }
}

// A tenant that has just made space does not take it at once; and one that waits lets those pass who came before.
void line(wire::Segment& segment) {
    Scene scene(segment);
    scene.allocate(kBig, 60);
    wire::Slot& needy = scene.other(wire::production, 30);
    Scene::wants(needy, kBig, 20);
    tick_ns = 50 * kMs;
    REQUIRE(scene.look() == wire::evicted);
    tick_ns = 1000;
    Scene::wants(needy, kBig, 0);
    uint64_t evicted_ns = scene.mine.since_ns.load();
    scene.mover.look(evicted_ns + 40 * kMs);
    REQUIRE(scene.is_away(60));
    scene.mover.look(evicted_ns + 60 * kMs);
    REQUIRE(scene.is_back());
    // An equal that has waited for longer goes first; a later one does not.
    scene.pause();
    REQUIRE(scene.look() == wire::evicted);
    wire::Slot& equal = scene.other(wire::opportunistic);
    Scene::wants(equal, kBig, 65, scene.mine.waiting_since_ns.load() - 1);
    scene.resume();
    REQUIRE(scene.look() == wire::evicted && scene.look() == wire::evicted);
    equal.residence.waiting_since_ns.store(scene.mine.waiting_since_ns.load() + 1);
    REQUIRE(scene.look() == wire::resident && scene.has(60, 0));
    // An equal whose stay is over is woken, so that it makes space.
    scene.pause();
    REQUIRE(scene.look() == wire::evicted);
    Scene::wants(equal, kBig, 0);
    count_memory(equal, kBig, 20 * kPage);
    equal.memory[kBig].movable_bytes.store(20 * kPage);
    equal.residence.where.store(wire::resident);
    scene.resume();
    uint32_t woken = equal.residence.wake.load(), not_woken = needy.residence.wake.load();
    REQUIRE(scene.look() == wire::evicted && equal.residence.wake.load() != woken &&
            needy.residence.wake.load() == not_woken);
}

// A thread that wants more memory meanwhile: it is restored when there is space for that, too.
void growing(wire::Segment& segment) {
    Scene scene(segment);
    scene.allocate(kBig, 40);
    wire::Slot& other = scene.other(wire::opportunistic, 50);
    scene.pause();
    REQUIRE(scene.look() == wire::evicted);
    scene.resume();
    int looks = 0;
    meanwhile = [&] {
        if (++looks != 30) return;
        REQUIRE(scene.look() == wire::evicted && scene.look() == wire::evicted && scene.waits_for(60, 0));
        give_memory(other, kBig, 10 * kPage);
        REQUIRE(scene.look() == wire::resident && scene.has(40, 0));
    };
    Need need(place_of_device(1), 20 * kPage);
    REQUIRE(need.wait(false) && looks > 30 && !is_up);
    meanwhile = nullptr;
}

// What cannot be moved now is refused and tried again, after a capture sooner than else.
void refusals(wire::Segment& segment) {
    Scene scene(segment);
    scene.allocate(kBig, 4);
    scene.pause();
    can_be_raised = false;
    REQUIRE(scene.look() == wire::resident && scene.mine.refusal.load() == wire::does_not_drain && !is_up);
    can_be_raised = true;
    // Asked again, it tries at once.
    uint64_t refused_ns = scene.mine.refused_ns.load();
    can_be_raised = false;
    scene.pause();
    REQUIRE(scene.look(kMs) == wire::resident && scene.mine.refused_ns.load() > refused_ns);
    can_be_raised = true;
    captures.add(1, kContext, CU_STREAM_CAPTURE_MODE_GLOBAL);
    REQUIRE(scene.look(50 * kMs) == wire::resident && scene.mine.refusal.load() == wire::does_not_drain);
    uint64_t before = clock_ns;
    REQUIRE(scene.look(60 * kMs) == wire::resident && scene.mine.refusal.load() == wire::in_capture && !is_up);
    REQUIRE(scene.mine.refused_ns.load() > before && let_goes > 0);
    captures.remove_all_of(kContext);
    drained = Drained::driver_failed;
    REQUIRE(scene.look(6 * kMs) == wire::resident && scene.mine.refusal.load() == wire::driver_failed && !is_up);
    // Streams of other threads: what they run takes too long.
    drained = Drained::not_yet;
    tick_ns = 100 * kMs;
    REQUIRE(scene.look() == wire::resident && scene.mine.refusal.load() == wire::does_not_drain && !is_up);
    drained = Drained::yes;
    StreamTable& streams = scene.membership.streams;
    REQUIRE(streams.enter(5, kBusy, kContext, kBig) && streams.enter(6, nullptr, kContext, kBig));
    REQUIRE(scene.look() == wire::resident && scene.mine.refusal.load() == wire::does_not_drain && !is_up);
    streams.remove(5);
    StreamKey per_thread = key_of_default_stream(kContext, 2);
    StreamState* state = streams.enter(per_thread, CU_STREAM_PER_THREAD, kContext, kBig);
    REQUIRE(state && state->is_per_thread());
    state->last_work.store(reinterpret_cast<CUevent>(9));
    refused_ns = scene.mine.refused_ns.load();
    REQUIRE(scene.look() == wire::resident && scene.mine.refused_ns.load() > refused_ns && !is_up);
    streams.remove(per_thread);
    tick_ns = 1000;
    REQUIRE(scene.mine.evictions.load() == 0 && scene.has(4, 0) && scene.shows(4, 0));
    REQUIRE(scene.look() == wire::evicted && scene.mine.refusal.load() == wire::none_refused && scene.is_away(4));
}

// While it drains, it is let through on both GPUs though a higher class has closed its gates, and closes them again.
void draining(wire::Segment& segment) {
    Scene scene(segment);
    scene.allocate(kBig, 4);
    int index = scene.membership.index(), above = static_cast<int>(number_of(segment, scene.other(wire::production)));
    auto gates_are_open = [&](bool open) {
        return (scene.slot.gpus[kBig].gate.load() == wire::kGateOpen) == open &&
               (scene.slot.gpus[kSmall].gate.load() == wire::kGateOpen) == open;
    };
    for (int gpu : {kBig, kSmall}) {
        wire::go_busy(segment, index, gpu);
        wire::go_busy(segment, above, gpu);
    }
    REQUIRE(gates_are_open(false));
    scene.pause();
    drained = Drained::not_yet;
    int looks = 0;
    meanwhile = [&] {
        if (!is_up) return;
        if (++looks == 20)
            for (int gpu : {kBig, kSmall}) scene.slot.gpus[gpu].gate.store(wire::kGateOpen + 1);
        if (looks == 60) {
            REQUIRE(gates_are_open(true));
            drained = Drained::yes;
        }
    };
    REQUIRE(scene.look() == wire::evicted && looks >= 60);
    meanwhile = nullptr;
    REQUIRE(gates_are_open(false));
}

// Where the driver fails half-way, the rest goes as soon as it can; and what cannot be restored is given back.
void halfway(wire::Segment& segment) {
    Scene scene(segment);
    scene.allocate(kBig, 8);
    scene.allocate(kSmall, 8);
    scene.allocate(kBig, 8);
    scene.pause();
    no_copy.from = 8;
    REQUIRE(scene.look() == wire::evicted && scene.is_away(8) && scene.has(8, 8) && scene.shows(8, 8));
    uint64_t tried = saved.size();
    REQUIRE(scene.look(20 * kMs) == wire::evicted && saved.size() > tried && scene.is_away(8));
    REQUIRE(scene.mine.refusal.load() == wire::driver_failed);
    tried = saved.size();
    REQUIRE(scene.look(20 * kMs) == wire::evicted && saved.size() == tried);  // not all the time
    // It gets on, and fails again: nobody who waits for the space needs to give up.
    no_copy = {8};
    REQUIRE(scene.look(100 * kMs) == wire::evicted && scene.is_away(16) &&
            scene.mine.refusal.load() == wire::none_refused);
    no_copy = {};
    REQUIRE(scene.look(20 * kMs) == wire::evicted && scene.is_away(24) && scene.has(0, 0) && scene.shows(0, 0));
    REQUIRE(scene.mine.refusal.load() == wire::none_refused && scene.mine.evictions.load() == 1);
    scene.resume();
    no_memory.from = 2;
    REQUIRE(scene.look() == wire::evicted && scene.is_away(24) && scene.has(0, 0) && scene.shows(0, 0));
    REQUIRE(scene.waits_for(16, 8) && scene.mine.waiting_since_ns.load() != 0);
    no_memory = {};
    REQUIRE(scene.look(50 * kMs) == wire::evicted);
    REQUIRE(scene.look(60 * kMs) == wire::resident && scene.is_back() && scene.has(16, 8) && scene.shows(16, 8));
}

// It takes back all of its claim where another was quicker on one of the GPUs.
void claims(wire::Segment& segment) {
    Scene scene(segment);
    scene.allocate(kBig, 30);
    scene.allocate(kSmall, 20);
    wire::Slot& quicker = scene.other(wire::opportunistic);
    scene.pause();
    REQUIRE(scene.look() == wire::evicted);
    scene.resume();
    bool is_done = false;
    meanwhile = [&] {
        if (is_done || scene.slot.gpus[kBig].memory_bytes.load() == 0) return;
        REQUIRE(scene.shows(30, 0));
        count_memory(quicker, kSmall, 40 * kPage);
        is_done = true;
    };
    REQUIRE(scene.look() == wire::evicted && is_done && scene.is_away(50) && scene.has(0, 0) && scene.shows(0, 0));
    REQUIRE(handles == 2);
    meanwhile = nullptr;
    give_memory(quicker, kSmall, 40 * kPage);
    REQUIRE(scene.look() == wire::resident && scene.has(30, 20));
}

// A restore is abandoned for a higher class that grows into its headroom, or waits; after that only for one that waits.
void abandoning(wire::Segment& segment) {
    Scene scene(segment);
    wire::set_memory_knobs(segment.header, {1 + 10 * kPage, uint64_t{1} << 40, 0});
    scene.allocate(kSmall, 10);
    scene.allocate(kSmall, 10);
    wire::Slot& above = scene.other(wire::production, 5, 15);
    scene.pause();
    REQUIRE(scene.look() == wire::evicted);
    scene.resume();
    auto grows = [&] {
        at_create = [&] {
            count_memory(above, kSmall, 6 * kPage);
            at_create = nullptr;
        };
    };
    grows();
    REQUIRE(scene.look() == wire::evicted && !at_create && scene.is_away(20) && scene.has(0, 0) &&
            scene.waits_for(0, 20));
    give_memory(above, kSmall, 6 * kPage);
    grows();
    REQUIRE(scene.look() == wire::resident && !at_create && scene.has(0, 20));
    // It has been restored: the next restore is abandoned as the first was; and for one that waits, also the one after.
    give_memory(above, kSmall, 6 * kPage);
    for (int times = 0; times < 2; ++times) {
        scene.pause();
        REQUIRE(scene.look() == wire::evicted);
        scene.resume();
        grows();
        REQUIRE(scene.look() == wire::evicted && scene.is_away(20));
        give_memory(above, kSmall, 6 * kPage);
        at_create = [&] {
            Scene::wants(above, kSmall, 16);
            at_create = nullptr;
        };
        REQUIRE(scene.look() == wire::evicted && !at_create && scene.is_away(20));
        Scene::wants(above, kSmall, 0);
        REQUIRE(scene.look() == wire::resident && scene.is_back());
    }
}

// It lets a job run on to the end of its step, for a shorter time where a higher class has grown or waits.
void boundaries(wire::Segment& segment) {
    Scene scene(segment);
    wire::set_memory_knobs(segment.header, {1 + 10 * kPage, uint64_t{1} << 40, 0});
    scene.allocate(kBig, 4);
    scene.allocate(kSmall, 30);
    auto is_by = [](uint64_t ns) { return boundary_by_ns <= ns && boundary_by_ns > ns - kMs; };
    boundary_is_near = true;
    scene.pause();
    REQUIRE(scene.look() == wire::resident && is_by(arbiter::kPatienceNs));
    REQUIRE(scene.look(10 * kMs) == wire::resident && is_by(arbiter::kPatienceNs - 10 * kMs));
    // Not needed any more: whoever stands there goes on, once.
    scene.resume();
    REQUIRE(let_goes == 0 && scene.look() == wire::resident && let_goes == 1);
    REQUIRE(scene.look() == wire::resident && let_goes == 1);
    // The next time it waits as long.
    wire::Slot& above = scene.other(wire::production, 0, 11);
    REQUIRE(scene.look() == wire::resident && is_by(arbiter::kHurriedPatienceNs));
    REQUIRE(scene.look(10 * kMs) == wire::resident && is_by(arbiter::kHurriedPatienceNs - 10 * kMs));
    boundary_is_near = false;
    REQUIRE(scene.look(10 * kMs) == wire::evicted && let_goes == 2);
    give_memory(above, kSmall, 11 * kPage);
    REQUIRE(scene.look() == wire::resident);
    // After a restore as before it.
    boundary_is_near = true;
    count_memory(above, kSmall, 11 * kPage);
    REQUIRE(scene.look() == wire::resident && is_by(arbiter::kHurriedPatienceNs));
    // What production had when it was restored counts, too.
    boundary_is_near = false;
    REQUIRE(scene.look() == wire::evicted);
    give_memory(above, kSmall, 3 * kPage);
    REQUIRE(scene.look() == wire::resident);
    boundary_is_near = true;
    scene.allocate(kSmall, 4);
    REQUIRE(scene.look() == wire::resident && is_by(arbiter::kHurriedPatienceNs));
    // Nobody waits for a boundary in a capture.
    captures.add(1, kContext, CU_STREAM_CAPTURE_MODE_GLOBAL);
    REQUIRE(scene.look() == wire::resident && scene.mine.refusal.load() == wire::in_capture);
}

// A context that ends takes its streams along: one with its handle gets new ones.
void contexts(wire::Segment& segment) {
    Scene scene(segment);
    scene.allocate(kBig, 3, kOther);
    for (int life = 0; life < 3; ++life) {
        lives[kContext] = 10 + life;
        scene.allocate(kSmall, 2);
        scene.pause();
        REQUIRE(scene.look() == wire::evicted && scene.is_away(5));
        scene.resume();
        REQUIRE(scene.look() == wire::resident && scene.is_back());
        context_ended(kContext);
        give({&scene.membership, 0, kSmall}, 2 * kPage);
        REQUIRE(scene.shows(3, 0) && scene.has(3, 0));
    }
    REQUIRE(life_of_stream.size() == 4);
}

// Where memory is short, the host's is pinned ahead, block by block; and given back when it was not needed for long.
void preparing(wire::Segment& segment) {
    Scene scene(segment);
    constexpr uint64_t kBlock = HostPool::kBlock;
    static_assert(kBlock == kPage);
    set_pinned(*scene.allocate(kBig, 1, kOther), true);
    Chunk* first = scene.allocate(kBig, 3);
    scene.allocate(kSmall, 2);
    wire::Count& pinned = scene.mine.host_pinned_bytes;
    REQUIRE(!scene.mover.prepare());
    wire::Slot& other = scene.other(wire::opportunistic, 0, 36);
    for (uint64_t blocks = 1; blocks <= 5; ++blocks) REQUIRE(scene.mover.prepare() && pinned.load() == blocks * kBlock);
    REQUIRE(!scene.mover.prepare() && pinned.load() == 5 * kBlock && current == kContext);
    // For a while after it was short, too.
    give_memory(other, kSmall, 36 * kPage);
    scene.allocate(kSmall, 1);
    clock_ns += 59000 * kMs;
    REQUIRE(scene.mover.prepare() && pinned.load() == 6 * kBlock);
    scene.allocate(kSmall, 1);
    clock_ns += 2000 * kMs;
    REQUIRE(!scene.mover.prepare());
    // Two blocks too many are kept; more are not, when nothing has needed them for seconds.
    Chunk* big = scene.allocate(kBig, 3);
    count_memory(other, kSmall, 36 * kPage);
    for (int blocks = 7; blocks <= 10; ++blocks) REQUIRE(scene.mover.prepare());
    give_memory(other, kSmall, 36 * kPage);
    auto free = [&](Chunk* chunk, uint64_t pages) {
        REQUIRE(give_back_movable(chunk->address));
        give({&scene.membership, 0, kBig}, pages * kPage);
    };
    free(big, 3);
    scene.mover.prepare();
    clock_ns += 4000 * kMs;
    scene.mover.prepare();
    REQUIRE(pinned.load() == 10 * kBlock);
    clock_ns += 1100 * kMs;
    scene.mover.prepare();
    REQUIRE(pinned.load() == 7 * kBlock && !scene.mover.prepare());
    free(first, 3);
    scene.mover.prepare();
    REQUIRE(pinned.load() == 7 * kBlock);
    // The budget has no space for all of it: none is taken, and it is asked for again later.
    scene.allocate(kBig, 20);
    count_memory(other, kSmall, 36 * kPage);
    wire::set_memory_knobs(segment.header, {1, 20 * kBlock, 0});
    REQUIRE(!scene.mover.prepare() && pinned.load() == 7 * kBlock);
    wire::set_memory_knobs(segment.header, {1, 24 * kBlock, 0});
    REQUIRE(!scene.mover.prepare() && pinned.load() == 7 * kBlock);
    clock_ns += 1100 * kMs;
    REQUIRE(scene.mover.prepare() && scene.mover.prepare() && pinned.load() == 9 * kBlock);
}

// A program that ends while its memory is evicted does not wait for it; one whose memory is there just goes on.
void ending(wire::Segment& segment) {
    Scene scene(segment);
    scene.allocate(kBig, 2);
    auto ends = [&] {
        phase.store(moving);
        std::thread mover([] {
            while (phase.load() == moving) std::this_thread::yield();
            phase.store(stopped);
        });
        tell<AtExit>([](const AtExit& one) { one.act(); });
        mover.join();
        return is_over;
    };
    int before = let_goes;
    REQUIRE(!ends() && !is_up && let_goes == before + 1);
    scene.pause();
    REQUIRE(scene.look() == wire::evicted && ends());
}

// A child has none of what its parent's mover was about to do.
void in_a_child(wire::Segment& segment) {
    Scene scene(segment);
    scene.allocate(kBig, 2);
    scene.pause();
    REQUIRE(scene.look() == wire::evicted);
    scene.resume();
    tell<AtFork>([](const AtFork& one) { one.in_child(); });
    REQUIRE(phase.load() == not_started && asked_pause.load() == 0 && where_now.load() == wire::resident);
    REQUIRE(residence.chunks.count() == 0 && !residence.eviction.is_evicted() && !Still::memory_moves.load());
    REQUIRE(residence.pool.bytes() == 0 && place_of_device(1).gpu == kBig);
}

}  // namespace

int main(int argc, char** argv) {
    install();
    return run_case(argc, argv,
                    {{"pausing", pausing},
                     {"limits", limits},
                     {"making_space", making_space},
                     {"line", line},
                     {"refusals", refusals},
                     {"draining", draining},
                     {"halfway", halfway},
                     {"claims", claims},
                     {"abandoning", abandoning},
                     {"boundaries", boundaries},
                     {"contexts", contexts},
                     {"preparing", preparing},
                     {"ending", ending},
                     {"growing", growing},
                     {"in_a_child", in_a_child}});
}
