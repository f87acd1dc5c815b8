// The rules about a place in a GPU's memory, and the slabs, under chance. A seed a run; a line on stderr for what is
// wrong.
#include "admission/arbiter.h"
#include "../require.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "tenant/memory/slabs.h"

namespace {

using arbiter::Tenant;
std::mt19937_64 chance;
uint64_t up_to(uint64_t most) { return chance() % (most + 1); }

Tenant some_tenant(uint32_t number) {
    Tenant one{};
    one.number = number;
    one.tenant_class = uint32_t(up_to(2));
    one.weight = uint32_t(up_to(2) + 1) * 1000;
    one.bytes = up_to(20);
    one.movable_later = up_to(2) ? up_to(one.bytes) : 0;
    one.movable = up_to(3) ? one.movable_later : 0;
    one.wanted = up_to(1) ? up_to(20) : 0;
    one.wanted_hard = one.wanted && up_to(7) == 0;
    one.waiting_since_ns = up_to(5);
    one.resident_since_ns = up_to(5);
    one.stay_ns = up_to(5);
    one.busy = up_to(1);
    one.evicting = one.movable && up_to(4) == 0;
    return one;
}

// As the page says it (docs/oversubscription.md), told anew: from the least valuable on until it is enough; then
// whoever is not needed after all stays, the most valuable first.
std::vector<uint32_t> expected_to_leave(const std::vector<Tenant>& all, const Tenant& needy, uint64_t missing,
                                        uint64_t now) {
    using Place = std::tuple<int, uint32_t, bool, uint64_t, int64_t, uint32_t>;
    std::map<Place, Tenant> least_valuable_first;
    for (const Tenant& one : all) {
        bool is_equal = one.tenant_class == needy.tenant_class && one.tenant_class != 0;
        bool may = one.tenant_class > needy.tenant_class || (is_equal && one.resident_since_ns + one.stay_ns <= now);
        if (may && one.number != needy.number && one.movable && !one.evicting)
            least_valuable_first[{-int(one.tenant_class), one.weight, one.busy, one.resident_since_ns,
                                  -int64_t(one.movable), one.number}] = one;
    }
    std::vector<Tenant> leaving;
    uint64_t sum = 0;
    for (const auto& [place, one] : least_valuable_first) {
        if (sum >= missing) break;
        leaving.push_back(one);
        sum += one.movable;
    }
    for (size_t i = leaving.size(); i-- > 0;) {
        if (sum - leaving[i].movable < missing) continue;
        sum -= leaving[i].movable;
        leaving.erase(leaving.begin() + long(i));
    }
    std::vector<uint32_t> numbers;
    for (const Tenant& one : leaving) numbers.push_back(one.number);
    return numbers;
}

void choosing() {
    for (int round = 0; round < 3000; ++round) {
        std::vector<Tenant> all;
        uint32_t count = 1 + uint32_t(up_to(7));
        for (uint32_t i = 0; i < count; ++i) all.push_back(some_tenant(i));
        const Tenant& needy = all[up_to(count - 1)];
        uint64_t bytes = up_to(40), now = up_to(10), coming = 0, could = 0, got = 0;
        uint32_t out[8];
        uint32_t chosen = arbiter::choose(all.data(), count, needy, bytes, now, out);
        for (const Tenant& one : all) {
            if (one.evicting)
                coming += one.movable;
            else if (arbiter::yields_now(one, needy, now))
                could += one.movable;
        }
        for (uint32_t i = 0; i < chosen; ++i) {
            const Tenant& one = all[out[i]];
            REQUIRE(!one.evicting && one.movable && one.number != needy.number);
            REQUIRE(one.tenant_class > needy.tenant_class ||
                    (one.tenant_class == needy.tenant_class && one.tenant_class != arbiter::kProduction &&
                     now >= one.resident_since_ns + one.stay_ns));
            got += one.movable;
        }
        if (coming >= bytes || coming + could < bytes) {
            REQUIRE(chosen == 0);
            continue;
        }
        REQUIRE(coming + got >= bytes);
        for (uint32_t i = 0; i < chosen; ++i) REQUIRE(coming + got - all[out[i]].movable < bytes);
        REQUIRE(std::vector<uint32_t>(out, out + chosen) == expected_to_leave(all, needy, bytes - coming, now));
    }
}

// Two that differ in one thing only: which of them leaves, if one is enough.
void order() {
    Tenant needy{}, one{};
    needy.number = 9;
    one.number = 5;
    one.tenant_class = 2;
    one.weight = 1000;
    one.bytes = one.movable = one.movable_later = 10;
    one.resident_since_ns = 50;
    one.busy = true;
    auto leaves = [&](const Tenant& less, const Tenant& more) {
        Tenant both[] = {more, needy, less};
        uint32_t out[3];
        REQUIRE(arbiter::choose(both, 3, needy, 5, 100, out) == 1 && out[0] == less.number);
        std::swap(both[0], both[2]);
        REQUIRE(arbiter::choose(both, 3, needy, 5, 100, out) == 1 && out[0] == less.number);
    };
    Tenant other = one;
    other.number = 4;
    leaves(other, one);  // nothing else tells them apart
    other.number = 6;
    leaves(one, other);
    auto differs = [&](auto Tenant::* what, auto value) {
        Tenant changed = other;
        changed.*what = value;
        return changed;
    };
    leaves(one, differs(&Tenant::tenant_class, uint32_t{1}));        // the lower class
    leaves(one, differs(&Tenant::weight, uint32_t{1001}));           // the lower weight
    leaves(differs(&Tenant::busy, false), one);                      // the idle one
    leaves(differs(&Tenant::resident_since_ns, uint64_t{49}), one);  // the longer resident
    leaves(differs(&Tenant::movable, uint64_t{11}), one);            // the larger
    // Each outweighs all that come after it.
    Tenant worst = other;
    worst.busy = false;
    worst.resident_since_ns = 0;
    worst.movable = 100;
    worst.weight = 1;
    worst.tenant_class = 1;
    leaves(one, worst);
    worst.tenant_class = 2;
    leaves(worst, one);
    worst.weight = 1001;
    leaves(one, worst);
    worst.weight = 1000;
    worst.busy = true;
    worst.resident_since_ns = 51;
    leaves(one, worst);
}

// Host memory is pinned ahead where somebody may have to leave, and only there; a class above is not kept waiting.
// Hope: what it has and wants fits beside what the others cannot give up, the headroom aside.
void hope() {
    arbiter::Gpu gpu{100, 10};
    Tenant self{}, equal{}, above{};
    self.number = 1;
    self.tenant_class = equal.tenant_class = 2;
    self.bytes = 60;
    self.wanted = 40;
    equal.number = 2;
    above.number = 3;
    auto has_hope = [&](std::vector<Tenant> all) {
        all.push_back(self);
        return arbiter::has_hope(gpu, all.data(), uint32_t(all.size()), self);
    };
    REQUIRE(has_hope({}));
    self.wanted = 41;
    REQUIRE(!has_hope({}));
    // An equal gives up what can move of it; one that is above gives up nothing, and has its headroom.
    self.wanted = 20;
    equal.bytes = 30;
    equal.movable_later = 9;
    REQUIRE(!has_hope({equal}));
    equal.movable_later = 10;
    REQUIRE(has_hope({equal}));
    REQUIRE(!has_hope({equal, above}));
    equal.movable_later = 20;
    REQUIRE(has_hope({equal, above}));
    above.bytes = above.movable_later = 1;
    REQUIRE(!has_hope({equal, above}));
    above.evicting = true;
    REQUIRE(has_hope({equal, above}));
}

void pressure() {
    constexpr uint64_t kGiB = uint64_t{1} << 30;
    arbiter::Gpu gpu{80 * kGiB, 4 * kGiB};
    Tenant server{}, training{};
    server.number = 1;
    server.bytes = 20 * kGiB;
    training.number = 2;
    training.tenant_class = 2;
    training.bytes = training.movable = 40 * kGiB;
    auto is_crowded = [&] {
        Tenant both[] = {server, training};
        return arbiter::is_crowded(gpu, both, 2);
    };
    uint64_t above = 0;
    auto is_pressed = [&] {
        Tenant both[] = {server, training};
        return arbiter::is_pressed(gpu, both, 2, training, above);
    };
    REQUIRE(!is_crowded() && !is_pressed());
    server.bytes += 1;
    REQUIRE(is_crowded() && !is_pressed());
    server.bytes = gpu.capacity - gpu.headroom - training.bytes;
    REQUIRE(!is_pressed());
    above = server.bytes;
    training.bytes += 1;  // for a moment, to see whether there is room
    REQUIRE(!is_pressed());
    training.bytes -= 1;
    server.bytes += 1;  // of the headroom: there may be more to come
    REQUIRE(is_pressed());
    above = server.bytes;
    REQUIRE(!is_pressed());
    server.bytes = 0;
    server.wanted = 60 * kGiB;
    REQUIRE(is_crowded() && !is_pressed());  // it will never have it: nothing moves
    training.movable_later = training.movable;
    REQUIRE(is_pressed());
    server.tenant_class = training.tenant_class;
    REQUIRE(is_crowded() && !is_pressed());
    server.wanted = 0;
    REQUIRE(!is_crowded());
    training.bytes = gpu.capacity;
    REQUIRE(is_crowded() && !arbiter::is_crowded(gpu, &training, 1));
    gpu.capacity = 0;  // nobody knows it
    REQUIRE(!is_crowded());
}

// Jobs on one GPU, each resident or away, in steps of a millisecond. Whoever may, does; a move takes its time.
struct Job {
    uint32_t tenant_class;
    uint64_t bytes;  // that it needs altogether
    uint64_t pinned;
    enum { resident, evicting, evicted, restoring } where = evicted;
    uint64_t since = 0, waiting_since = 1, until = 0;
    uint64_t ran = 0, moved = 0, served = 0;
};

void turns() {
    constexpr uint64_t kMs = 1000000;
    arbiter::Gpu gpu{24, up_to(3)};
    std::vector<Job> jobs;
    uint32_t count = 2 + uint32_t(up_to(4));
    uint64_t transfer = 5 + up_to(40);  // each way, in ms
    for (uint32_t i = 0; i < count; ++i) {
        Job job{uint32_t(1 + up_to(1)), 4 + up_to(14), 0};
        job.waiting_since = 1 + i;
        jobs.push_back(job);
    }
    auto crowd = [&] {
        std::vector<Tenant> all;
        for (uint32_t i = 0; i < count; ++i) {
            const Job& job = jobs[i];
            bool here = job.where != Job::evicted;
            uint64_t stay = arbiter::stay_ns(2 * transfer * kMs, job.bytes, 0);
            all.push_back({i, job.tenant_class, 1000, here ? job.bytes : 0,
                           job.where == Job::resident || job.where == Job::evicting ? job.bytes : 0,
                           here ? job.bytes : 0, job.where == Job::evicted ? job.bytes : 0, false, job.waiting_since,
                           job.since, stay, true, job.where == Job::evicting});
        }
        return all;
    };
    uint32_t out[8];
    uint64_t end = 2000 * transfer;
    for (uint64_t now = 10; now < end; ++now) {
        for (uint32_t i = 0; i < count; ++i) {
            Job& job = jobs[i];
            std::vector<Tenant> all = crowd();
            REQUIRE(arbiter::taken(all.data(), count) <= gpu.capacity);
            if (job.where == Job::resident) {
                ++job.ran;
                if (arbiter::must_evict(gpu, all.data(), count, all[i], now * kMs, out)) {
                    job.where = Job::evicting;
                    job.until = now + transfer;
                }
            } else if (job.where == Job::evicted) {
                if (arbiter::is_first_in_line(gpu, all.data(), count, all[i]) &&
                    arbiter::missing(gpu, all.data(), count, all[i]) == 0) {
                    job.where = Job::restoring;
                    job.until = now + transfer;
                }
            } else {
                ++job.moved;
                if (now < job.until) continue;
                if (job.where == Job::evicting) {
                    job.where = Job::evicted;
                    job.waiting_since = now;
                } else {
                    job.where = Job::resident;
                    ++job.served;
                }
                job.since = now * kMs;
            }
        }
    }
    bool any_standard = false;
    for (const Job& job : jobs) any_standard |= job.tenant_class == 1;
    for (uint32_t i = 0; i < count; ++i) {
        const Job& job = jobs[i];
        // A class above may keep one out for ever; equals may not, and a class above never waits for one below.
        uint64_t usable = arbiter::usable(gpu, crowd().data(), count, job.tenant_class);
        bool is_best = job.tenant_class == 1 || !any_standard;
        if (is_best && job.bytes <= usable) REQUIRE(job.served >= 1 && job.ran > 0);
        // Displaced by equals alone, it spends less than a tenth of its time on the GPU with moving.
        if (is_best && job.served > 2) REQUIRE(job.moved * 10 <= job.ran + 20 * transfer);
    }
}

// Pieces never overlap, are found again whole, and leave nothing behind; wherever there is a gap, it is used.
void slabs() {
    tenant::Slab slab(uint64_t{1} << 40);
    std::map<uint64_t, uint64_t> pieces;  // by address: bytes
    auto units = [](uint64_t bytes) { return (bytes + 511) / 512 * 512; };
    auto longest_gap = [&] {
        uint64_t from = slab.base(), longest = 0;
        for (auto& [at, bytes] : pieces) {
            longest = std::max(longest, at - from);
            from = at + units(bytes);
        }
        return std::max(longest, slab.base() + tenant::Slab::kBytes - from);
    };
    for (int step = 0; step < 3000; ++step) {
        if (!pieces.empty() && up_to(9) < 4) {
            auto it = std::next(pieces.begin(), long(up_to(pieces.size() - 1)));
            uint64_t inside = it->first + 1 + up_to(it->second - 1), base = 0, bytes = 0;
            if (inside < it->first + it->second) REQUIRE(!slab.give(inside));
            REQUIRE(slab.piece_around(inside - 1, &base, &bytes) && base == it->first && bytes == it->second);
            REQUIRE(slab.give(it->first) && !slab.give(it->first));
            pieces.erase(it);
            REQUIRE(slab.is_empty() == pieces.empty());
            continue;
        }
        uint64_t bytes = 1 + up_to(up_to(3) ? 4000 : tenant::Slab::kMostBytes - 1), at = slab.take(bytes);
        REQUIRE((at != 0) == (units(bytes) <= longest_gap()));
        if (!at) continue;
        REQUIRE(at % 512 == 0 && at >= slab.base() && at + units(bytes) <= slab.base() + tenant::Slab::kBytes);
        auto next = pieces.lower_bound(at);
        REQUIRE(next == pieces.end() || at + units(bytes) <= next->first);
        REQUIRE(next == pieces.begin() || std::prev(next)->first + units(std::prev(next)->second) <= at);
        pieces[at] = bytes;
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) return 2;
    chance.seed(strtoull(argv[2], nullptr, 10));
    if (!strcmp(argv[1], "choosing")) choosing();
    if (!strcmp(argv[1], "order")) order();
    if (!strcmp(argv[1], "hope")) hope();
    if (!strcmp(argv[1], "pressure")) pressure();
    if (!strcmp(argv[1], "turns"))
        for (int i = 0; i < 5; ++i) turns();
    if (!strcmp(argv[1], "slabs")) slabs();
    return 0;
}
