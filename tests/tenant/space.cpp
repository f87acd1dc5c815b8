// space SEGMENT CASE: space on a GPU (native/tenant/memory/space.h): who could make some, and allocations that wait.
#include "mover_scene.h"

namespace {

// Who could make space, and how much, by what stands in the slots.
void crowds(wire::Segment& segment) {
    Scene scene(segment);
    wire::Slot& slot = scene.other(wire::standard, 9, 30);
    uint32_t number = number_of(segment, slot);
    slot.memory[kBig].movable_bytes.store(7 * kPage);
    auto see = [&](uint32_t where, uint32_t refusal = wire::none_refused, uint64_t ago_ns = 0) {
        slot.residence.where.store(where);
        slot.residence.refusal.store(refusal);
        slot.residence.refused_ns.store(clock_ns - ago_ns);
        Crowd crowd(segment, kBig, 100 * kPage);
        REQUIRE(crowd.find(number) && crowd.find(number)->bytes == 9 * kPage && !crowd.find(77));
        return *crowd.find(number);
    };
    auto moves = [&](const arbiter::Tenant& one, uint64_t now, uint64_t later) {
        return one.movable == now * kPage && one.movable_later == later * kPage;
    };
    REQUIRE(moves(see(wire::resident), 7, 7) && moves(see(wire::pinned), 0, 0) && moves(see(wire::restoring), 0, 7));
    REQUIRE(moves(see(wire::evicting), 7, 7) && see(wire::evicting).evicting && !see(wire::resident).evicting);
    REQUIRE(moves(see(wire::evicted), 7, 7));  // a part of it is there still
    for (uint32_t brief : {wire::in_capture, wire::does_not_drain}) {
        REQUIRE(moves(see(wire::resident, brief, 10 * kMs), 0, 7) && moves(see(wire::resident, brief, 30 * kMs), 7, 7));
        REQUIRE(moves(see(wire::evicting, brief), 7, 7));
    }
    for (uint32_t lasting : {wire::host_memory, wire::host_budget, wire::driver_failed}) {
        REQUIRE(moves(see(wire::resident, lasting, 900 * kMs), 0, 0));
        REQUIRE(moves(see(wire::resident, lasting, 1100 * kMs), 7, 7));
    }
    // Never more than it counts.
    slot.memory[kBig].movable_bytes.store(70 * kPage);
    REQUIRE(moves(see(wire::resident), 9, 9));
    // What it waits for counts while it is not stopped, and has not counted it by now.
    REQUIRE(see(wire::resident).wanted == 0);
    slot.memory[kBig].wanted_bytes.store(5 * kPage);
    REQUIRE(see(wire::resident).wanted == 0);
    slot.residence.waiting_since_ns.store(3);
    REQUIRE(see(wire::resident).wanted == 5 * kPage && see(wire::evicted).wanted == 5 * kPage);
    REQUIRE(see(wire::restoring).wanted == 0 && see(wire::resident).waiting_since_ns == 3);
    slot.heartbeat_ns.store(clock_ns - 61000 * kMs);
    REQUIRE(see(wire::resident).wanted == 0);
    slot.heartbeat_ns.store(clock_ns);
    slot.memory[kBig].wanted_bytes.store(900 * kPage);
    REQUIRE(see(wire::resident).wanted == 0);
    // A tenant that neither has nor wants anything there does not count, unless it works there.
    wire::Slot& idle = scene.other(wire::production);
    auto counts = [&](int gpu) { return Crowd(segment, gpu, 0).find(number_of(segment, idle)) != nullptr; };
    REQUIRE(!counts(kBig) && !counts(kSmall));
    idle.gpus[kSmall].figures.bursts.store(1);
    REQUIRE(!counts(kBig) && counts(kSmall));
    Scene::wants(idle, kBig, 1);
    REQUIRE(counts(kBig));
    slot.gpus[kSmall].busy.store(1);
    REQUIRE(!see(wire::resident).busy && Crowd(segment, kSmall, 0).find(number)->busy);
    wire::set_memory_knobs(segment.header, {1, 0, 7200000});
    REQUIRE(see(wire::resident).stay_ns == 3600000 * kMs);
    // How much there is: what the driver says, or less; and headroom, or none.
    auto gpu = [&](int number) { return Crowd(segment, number, 100 * kPage).gpu; };
    wire::set_capacity(segment.header, kSmall, 60 * kPage);
    REQUIRE(gpu(kBig).capacity == 100 * kPage && gpu(kSmall).capacity == 60 * kPage && gpu(kBig).headroom == 0);
    REQUIRE(Crowd(segment, kBig, 0).gpu.capacity == 0 && Crowd(segment, kSmall, 0).gpu.capacity == 60 * kPage);
    wire::set_capacity(segment.header, kSmall, 160 * kPage);
    wire::set_memory_knobs(segment.header, {0, 0, 0});
    REQUIRE(gpu(kSmall).capacity == 100 * kPage && gpu(kSmall).headroom == 5 * kPage);
}

// COTENANT_CAPACITY and COTENANT_HOST_MEMORY hold on every GPU, where nothing else was said.
void said(wire::Segment& segment) {
    setenv("COTENANT_CAPACITY", "8M", 1);
    setenv("COTENANT_HOST_MEMORY", "4M", 1);
    wire::set_capacity(segment.header, 1, 3 << 20);
    Scene scene(segment);
    REQUIRE(wire::capacity_of(segment.header, kBig) == 8 << 20 && wire::capacity_of(segment.header, kSmall) == 3 << 20);
    REQUIRE(wire::memory_knobs_of(segment.header).host_memory == uint64_t{1} << 40);
    auto again = [&] { tell<AtFirstUse>([&](const AtFirstUse& one) { one.act(scene.membership, 2); }); };
    wire::set_memory_knobs(segment.header, {7, 0, 9});
    setenv("COTENANT_CAPACITY", "50%", 1);
    again();
    wire::MemoryKnobs knobs = wire::memory_knobs_of(segment.header);
    REQUIRE(knobs.host_memory == 4 << 20 && knobs.headroom == 7 && knobs.stay_ms == 9);
    REQUIRE(wire::capacity_of(segment.header, 2) == 0);
    setenv("COTENANT_CAPACITY", "8M", 1);
    setenv("COTENANT_HOST_MEMORY", "6M", 1);
    again();
    REQUIRE(wire::capacity_of(segment.header, 2) == 8 << 20);
    REQUIRE(wire::memory_knobs_of(segment.header).host_memory == 4 << 20);
}

// All together may fill the GPU, but for the headroom of the higher classes.
void capacity(wire::Segment& segment) {
    Scene scene(segment);
    Place big = place_of_device(1);
    count(big, 60 * kPage);
    wire::Slot& other = scene.other(wire::opportunistic, 40);
    REQUIRE(is_within_capacity(big));
    count(big, 1);
    REQUIRE(!is_within_capacity(big) && is_within_capacity(place_of_device(0)));
    give(big, 1);
    wire::set_memory_knobs(segment.header, {1 + kPage, 0, 0});
    REQUIRE(is_within_capacity(big));
    scene.other(wire::standard, 1);
    REQUIRE(!is_within_capacity(big));
    give_memory(other, kBig, 2 * kPage);
    REQUIRE(is_within_capacity(big));
    // Where nothing moves and nothing is said, the driver has the last word.
    count(big, 50 * kPage);
    Still::memory_moves.store(false);
    REQUIRE(is_within_capacity(big));
    wire::set_capacity(segment.header, kBig, 90 * kPage);
    REQUIRE(!is_within_capacity(big));
}

// Allocations that wait: what the slot shows is the sum by GPU, until the last of them has what it wants.
void needs(wire::Segment& segment) {
    own_class = wire::standard;
    Scene scene(segment);
    count({&scene.membership, 1, kBig}, kPage);
    Place big = place_of_device(1), small = place_of_device(0);
    wire::Slot& below = scene.other(wire::opportunistic, 95, 48);
    below.residence.where.store(wire::resident);
    below.memory[kBig].movable_bytes.store(95 * kPage);
    below.memory[kSmall].movable_bytes.store(48 * kPage);
    wire::Slot& bystander = scene.other(wire::production, 1, 1);
    uint32_t woken = below.residence.wake.load(), not_woken = bystander.residence.wake.load();
    auto shows = [&](uint64_t in_big, uint64_t in_small, bool hard = false) {
        return scene.waits_for(in_big, in_small) &&
               (scene.mine.waiting_since_ns.load() != 0) == (in_big + in_small > 0) &&
               (!(in_big + in_small) || (scene.mine.wanted_bytes.load() == (in_big + in_small) * kPage &&
                                         (scene.mine.wanted_hard.load() != 0) == hard));
    };
    {
        Need first(big, 10 * kPage);
        REQUIRE(shows(0, 0));
        int looks = 0;
        meanwhile = [&] {
            if (++looks < 30) return;
            if (looks == 30) {
                REQUIRE(shows(10, 0) && below.residence.wake.load() != woken);
                give_memory(below, kBig, 50 * kPage);
            }
        };
        REQUIRE(first.wait(false) && looks > 30);
        meanwhile = nullptr;
        REQUIRE(bystander.residence.wake.load() == not_woken);
        uint64_t since = scene.mine.waiting_since_ns.load();
        {
            Need second(big, 5 * kPage);
            REQUIRE(second.wait(false) && shows(15, 0) && scene.mine.waiting_since_ns.load() == since);
            Need third(small, kPage);
            REQUIRE(third.wait(true) && shows(15, 1, true));
        }
        REQUIRE(scene.mine.waiting_since_ns.load() == since && scene.slot.heartbeat_ns.load() >= since);
        REQUIRE(scene.waits_for(15, 0) && needed_bytes(kBig) == 10 * kPage && needed_bytes(kSmall) == 0);
        REQUIRE(first.wait(false) && shows(10, 0) && scene.mine.waiting_since_ns.load() == since);
        Need other(small, kPage);
        REQUIRE(other.wait(false) && shows(10, 1));
    }
    REQUIRE(shows(0, 0) && needed_bytes(kBig) == 0);
    // While its memory is evicted the mover says what it waits for.
    scene.mine.where.store(wire::evicted);
    scene.mine.waiting_since_ns.store(5);
    scene.slot.memory[kBig].wanted_bytes.store(77 * kPage);
    {
        Need need(big, 10 * kPage);
        REQUIRE(need.wait(false) && scene.waits_for(77, 0) && needed_bytes(kBig) == 10 * kPage);
    }
    REQUIRE(scene.waits_for(77, 0) && scene.mine.waiting_since_ns.load() == 5 && needed_bytes(kBig) == 0);
}

// How long an allocation waits, and for whom.
void patience(wire::Segment& segment) {
    own_class = wire::standard;
    Scene scene(segment);
    Place big = place_of_device(1);
    count(big, kPage);
    wire::Slot& other = scene.other(wire::opportunistic, 95);
    // In ms, until it is told that nobody makes space.
    auto waits = [&](uint64_t tick_ms, uint64_t pages = 10) {
        tick_ns = tick_ms * kMs;
        uint64_t began = clock_ns;
        Need need(big, pages * kPage);
        REQUIRE(!need.wait(false) && scene.waits_for(0, 0) && scene.mine.waiting_since_ns.load() == 0);
        tick_ns = 1000;
        return (clock_ns - began) / kMs;
    };
    auto is_about = [](uint64_t ms, uint64_t expected) { return ms >= expected && ms < expected + expected / 2; };
    REQUIRE(waits(1) < 20);  // it cannot move
    // While its memory is evicted, that is restored first.
    {
        is_up = true;
        Need need(big, 10 * kPage);
        REQUIRE(need.wait(false));
        is_up = false;
    }
    other.residence.where.store(wire::resident);  // what it counts may be about to be movable
    REQUIRE(is_about(waits(1), 100));
    other.memory[kBig].movable_bytes.store(90 * kPage);  // it may have been stopped
    REQUIRE(is_about(waits(200), 10000));
    REQUIRE(waits(1, 101) < 20);                    // more than there is
    other.memory[kBig].movable_bytes.store(kPage);  // not enough; but it is under way
    other.residence.where.store(wire::evicting);
    REQUIRE(is_about(waits(1000), 60000));
    // Its equals have their stay; and a stop of its own does not count.
    wire::join_class(segment, static_cast<int>(number_of(segment, other)), wire::standard);
    other.memory[kBig].movable_bytes.store(90 * kPage);
    other.residence.where.store(wire::resident);
    other.residence.since_ns.store(clock_ns + 1000000 * kMs);
    tick_ns = 500 * kMs;
    uint64_t began = clock_ns;
    meanwhile = [&] {
        if (clock_ns - began > 90000 * kMs) give_memory(other, kBig, memory_of_process(other, kBig, 0));
    };
    {
        Need need(big, 10 * kPage);
        REQUIRE(need.wait(false) && clock_ns - began > 90000 * kMs);
    }
    meanwhile = nullptr;
    count_memory(other, kBig, 95 * kPage);
    wire::join_class(segment, static_cast<int>(number_of(segment, other)), wire::opportunistic);
    bool was_stopped = false;
    began = clock_ns;
    tick_ns = 20 * kMs;
    meanwhile = [&] {
        if (!was_stopped && clock_ns - began > 1000 * kMs) {
            clock_ns += 70000 * kMs;
            other.heartbeat_ns.store(clock_ns);
            was_stopped = true;
        }
        if (clock_ns - began > 73000 * kMs) give_memory(other, kBig, memory_of_process(other, kBig, 0));
    };
    Need need(big, 10 * kPage);
    REQUIRE(need.wait(false) && clock_ns - began > 73000 * kMs);
    // The driver is asked once more after the last that could make space has gone.
    meanwhile = nullptr;
    count_memory(other, kBig, 95 * kPage);
    Need of_driver(big, 20 * kPage);
    REQUIRE(of_driver.wait(true) && of_driver.wait(true) && scene.mine.wanted_hard.load());
    wire::leave_slot(segment, static_cast<int>(number_of(segment, other)));
    REQUIRE(of_driver.wait(true) && !of_driver.wait(true));
}

}  // namespace

int main(int argc, char** argv) {
    install();
    return run_case(
        argc, argv,
        {{"crowds", crowds}, {"said", said}, {"capacity", capacity}, {"needs", needs}, {"patience", patience}});
}
