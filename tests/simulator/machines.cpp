// machines [accuracy]: a digest of each of some simulations, to compare machines and compilers; or how far our
// elementary functions are from the C library's, in units of the last place.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>

#include "admission/rules.h"
#include "sim/elementary.h"
#include "sim/gpu.h"

namespace {

constexpr double kUntilUs = 5e5;
constexpr uint64_t kDrawn = 400, kCrowds = 100;

class Digest {
 public:
    template <class T>
    void add(const T& value) {
        unsigned char bytes[sizeof value];
        std::memcpy(bytes, &value, sizeof value);
        for (unsigned char byte : bytes) hash_ = (hash_ ^ byte) * 0x100000001b3;
    }
    void add(const sim::Histogram& times) {
        add(times.count());
        add(times.sum());
        add(times.least());
        add(times.most());
        for (uint64_t count : times.counts()) add(count);
    }
    void add(const sim::Gpu& gpu) {
        for (uint32_t i = 0; i < gpu.tenant_count(); ++i) {
            const sim::Figures& f = gpu.figures(i);
            add(f.latency);
            add(f.service);
            for (uint64_t count :
                 {f.operations, f.requests, f.unanswered, f.bursts, f.gates, f.preemptions, f.blocking_calls})
                add(count);
            for (double us :
                 {f.work_us, f.wasted_us, f.sm_us, f.used_us, f.busy_us, f.held_us, f.executed_us, f.longest_wait_us,
                  f.begun_us, f.ended_us, f.gap_us, f.blocked_us, f.own_cpu_us, f.asleep_us})
                add(us);
            for (float sms : gpu.timeline(i)) add(sms);
        }
        const sim::GpuFigures& f = gpu.gpu_figures();
        for (double us : {gpu.now(), f.busy_us, f.sm_us, f.switch_us}) add(us);
        for (uint64_t count : {f.switches, gpu.spans_left_out()}) add(count);
        for (const sim::Span& span : gpu.spans()) {
            for (double us : {span.start_us, span.end_us}) add(us);
            for (uint64_t number : {uint64_t{span.tenant}, uint64_t{span.kind}, span.request}) add(number);
        }
    }
    void add(const sim::Gpu::Standing& s) {
        for (bool is : {s.is_here, s.has_work, s.is_held, s.in_request}) add(is);
        for (double us : {s.in_flight_us, s.remaining_us, s.alone_us}) add(us);
    }
    unsigned long long value() const { return hash_; }

 private:
    uint64_t hash_ = 0xcbf29ce484222325;
};

sim::Op op(admission::Kind kind, float us, float sms, float gbps, float gap_us, bool sync = false) {
    return {us, sms, gbps, gap_us, std::min(us, 300.0f), static_cast<uint8_t>(kind), sync, 0};
}

sim::Program program(int kernels, float us, float sms, float gbps) {
    sim::Program made;
    made.ops.push_back(op(admission::Kind::copy_to_device, us / 3, 0, 0, 2));
    for (int i = 0; i < kernels; ++i)
        made.ops.push_back(op(admission::Kind::kernel, us * (1 + 0.1f * static_cast<float>(i % 7)), sms, gbps, 3.3f));
    made.ops.push_back(op(admission::Kind::graph, us * 30, sms, gbps, 5.7f, true));
    made.ops.push_back(op(admission::Kind::copy_to_host, us / 7, 0, 0, 1));
    made.request_ends = {static_cast<uint32_t>(made.ops.size())};
    return made;
}

// Every way in which requests come, and everything that is drawn.
void add_jobs(sim::Gpu& gpu, uint32_t rule) {
    using sim::Arrivals;
    uint32_t short_kernels = gpu.add_program(program(40, 11.3f, 70, 0)),
             long_kernels = gpu.add_program(program(9, 410, 132, 900));
    sim::Job serving;
    serving.program = short_kernels;
    serving.arrivals = Arrivals::poisson;
    serving.every_us = 9000.7;
    serving.spread = 0.3;
    serving.seed = 1;
    gpu.add_tenant(serving, {});
    sim::Job bursty = serving;
    bursty.tenant_class = bursty.priority = 1;
    bursty.arrivals = Arrivals::bursty;
    bursty.burst_us = 30000;
    bursty.pause_us = 70000;
    bursty.request_spread = 0.7;
    bursty.seed = 2;
    bursty.floor = rule == admission::strict ? 0.1 : 0;
    gpu.add_tenant(bursty, {});
    sim::Job training;
    training.program = long_kernels;
    training.tenant_class = 2;
    training.priority = 1;
    training.waits_for_request = 0;
    training.run_ahead_us = 10000;
    training.think_least_us = 100;
    training.think_most_us = 900;
    training.weight = 1.7;
    training.seed = 3;
    gpu.add_tenant(training, {});
    sim::Job late = training;
    late.arrivals = Arrivals::listed;
    late.begins_us = 100000;
    late.weight = 0.3;
    late.seed = 4;
    gpu.add_tenant(late, {0, 3333.3, 200000, 200000.1, 300000});
}

unsigned long long digest(uint32_t rule, bool together) {
    sim::Machine machine;
    machine.sms = 132;
    machine.memory_gbps = 4800;
    machine.together = together;
    machine.priorities = together;
    machine.interference.contention = 0.07;
    machine.interference.cold_us = 3.1;
    sim::Gpu gpu(machine, 16, 0, kUntilUs, 2000);
    add_jobs(gpu, rule);
    gpu.knobs.rule = rule;
    for (float& parameter : gpu.knobs.parameters) parameter = 40;
    double ticks = 0;
    gpu.run(kUntilUs, 10000, [&] {
        ++ticks;
        gpu.knobs_of(2).rate = rule == admission::fair ? 0 : 0.3 + 0.1 * (ticks / 50);
        gpu.knobs_of(3).sm_share = together ? 0.37 : 1;
        gpu.knobs_of(1).rank = -ticks / 3;
        return true;
    });
    Digest found;
    found.add(gpu);
    return found.value();
}

// Machines, jobs and knobs that are drawn: what nobody thought of together. No two numbers are drawn in one call, whose
// arguments each compiler evaluates in an order of its own; between braces the order is that in which they stand.
class Drawn {
 public:
    // A crowd is of equals, mostly, takes turns, and is there for longer than it takes to drain.
    explicit Drawn(uint64_t seed, bool is_crowd = false)
        : is_crowd_(is_crowd),
          random_(seed),
          gpu_{machine(), one_of({0u, 7u}), one_of({0.0, 9000.0}), 30000,
               one_of({size_t{0}, size_t{50}, size_t{5000}})} {
        uint32_t programs = 1 + below(3), tenants = 1 + below(5);
        for (uint32_t i = 0; i < programs; ++i) gpu_.add_program(program());
        for (uint32_t i = 0; i < tenants; ++i) gpu_.add_tenant(job(programs), {0, 0, 2500, 9000.3, 40000});
        gpu_.knobs.rule =
            is_crowd_ ? one_of<uint32_t>({admission::strict, admission::strict, admission::fair}) : below(8);
    }

    unsigned long long digest() {
        Digest found;
        gpu_.run(is_crowd_ ? kCrowdUs : kDrawnUs, one_of({0, 2500, 4000}), [&] {
            for (uint32_t i = 0; i < gpu_.tenant_count(); ++i) found.add(gpu_.standing(i));
            if (!is_crowd_ || chance(0.1)) set_knobs();
            return !chance(0.01);
        });
        found.add(gpu_);
        return found.value();
    }

 private:
    static constexpr double kDrawnUs = 50000, kCrowdUs = 600000;

    bool chance(double part) { return random_.uniform() <= part; }
    uint32_t below(uint32_t most) { return static_cast<uint32_t>(random_.next() % most); }
    template <class T>
    T one_of(std::initializer_list<T> values) {
        return values.begin()[below(static_cast<uint32_t>(values.size()))];
    }

    sim::Machine machine() {
        sim::Machine made;
        made.sms = one_of({20, 132});
        made.together = chance(0.5);
        made.priorities = chance(0.5);
        made.holds_memory = chance(0.7);
        made.memory_bytes = 10;
        made.memory_gbps = one_of({300, 4800});
        made.slice_us = one_of({500, 2048});
        made.interference.keep_us = one_of({0, 16});
        made.interference.cold_us = one_of({0.0, 2.5});
        made.interference.contention = one_of({0.0, 0.1});
        made.interference.together_tax = one_of({0.0, 0.05});
        return made;
    }

    sim::Program program() {
        sim::Program made;
        for (uint32_t requests = 1 + below(3); requests > 0; --requests) {
            for (uint32_t ops = 1 + below(6); ops > 0; --ops) {
                sim::Op one{};
                one.us = is_crowd_ && chance(0.02) ? 150000.f : one_of({7.3f, 60.f, 700.f, 5000.f});
                one.sms = one_of({1.f, 15.f, 132.f});
                one.gbps = one_of({0.f, 200.f, 900.f});
                one.gap_us = one_of({0.f, 3.f, 90.f, 700.f});
                one.block_us = std::min(one.us, 300.f);
                one.kind = static_cast<uint8_t>(below(5));
                one.sync = chance(0.2);
                one.bound = static_cast<uint8_t>(below(4));
                made.ops.push_back(one);
            }
            made.request_ends.push_back(static_cast<uint32_t>(made.ops.size()));
        }
        return made;
    }

    sim::Job job(uint32_t programs) {
        sim::Job made;
        made.program = below(programs);
        made.tenant_class = made.priority = is_crowd_ ? one_of({0, 1, 2, 2, 2}) : below(3);
        made.arrivals = is_crowd_ && chance(0.7) ? sim::Arrivals::closed : static_cast<sim::Arrivals>(below(5));
        made.waits_for_request = chance(0.5);
        made.is_recorded = chance(0.3);
        made.requests = one_of({0, 0, 4, 30});
        made.every_us = one_of({800.5, 6000.1});
        made.burst_us = 5000;
        made.pause_us = 7000;
        made.think_most_us = one_of({0, 0, 400});
        made.spread = one_of({0.0, 0.4});
        made.request_spread = one_of({0.0, 0.5});
        made.begins_us = is_crowd_ ? one_of({0, 0, 8000, 100000}) : one_of({0, 0, 0, 8000});
        made.run_ahead_us = one_of({0, 2000, 10000});
        made.weight = one_of({0.5, 1.0, 3.0});
        made.floor = one_of({0.0, 0.0, 0.2});
        made.clock = one_of({1.0, 1.0, 1.0, 0.8});
        made.persistent_bytes = one_of({1, 4});
        made.ephemeral_bytes = one_of({0, 3});
        made.seed = random_.next();
        return made;
    }

    void set_knobs() {
        if (!is_crowd_ && chance(0.1)) gpu_.knobs.rule = below(8);
        gpu_.knobs.turn_us = one_of({0, 0, 900});
        gpu_.knobs.gate_every_us = one_of({20, 100});
        gpu_.knobs.in_flight_us = one_of({100, 50000});
        for (float& parameter : gpu_.knobs.parameters) parameter = one_of({1.f, 40.f, 1000.f});
        for (uint32_t i = 0; i < gpu_.tenant_count(); ++i)
            if (chance(0.3))
                gpu_.knobs_of(i) = {chance(0.1),
                                    chance(0.2),
                                    one_of({0.0, 0.0, 0.3}),
                                    one_of({1.0, 1.0, 0.4}),
                                    one_of({0.0, 0.0, 300.0}),
                                    one_of({-1.0, 0.0, 2.0}),
                                    below(2)};
    }

    const bool is_crowd_;
    sim::Random random_;
    sim::Gpu gpu_;
};

double units_off(double found, double expected) {
    return std::abs(found - expected) / (std::nextafter(std::abs(expected), HUGE_VAL) - std::abs(expected));
}

int print_accuracy() {
    double log = 0, exp = 0, turn = 0;
    for (int i = 1; i < 200000; ++i) {
        double x = i / 200000.0;
        log =
            std::max({log, units_off(sim::log_of(x), std::log(x)), units_off(sim::log_of(1e6 * x), std::log(1e6 * x))});
        exp = std::max({exp, units_off(sim::exp_of(30 * x), std::exp(30 * x)),
                        units_off(sim::exp_of(-30 * x), std::exp(-30 * x))});
        // Near zero only the absolute error counts: 1 is the largest there is.
        sim::Direction found = sim::direction_of(x);
        turn = std::max({turn, std::abs(found.cosine - std::cos(6.283185307179586 * x)) / 0x1p-52,
                         std::abs(found.sine - std::sin(6.283185307179586 * x)) / 0x1p-52});
    }
    std::printf("log %.2f\nexp %.2f\nturn %.2f\n", log, exp, turn);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc > 1 && std::string(argv[1]) == "accuracy") return print_accuracy();
    for (uint32_t rule = admission::none; rule <= admission::chimera; ++rule)
        for (bool together : {false, true}) std::printf("%u %d %016llx\n", rule, together, digest(rule, together));
    for (uint64_t seed = 0; seed < kDrawn; ++seed)
        std::printf("drawn %u %016llx\n", static_cast<unsigned>(seed), Drawn(seed).digest());
    for (uint64_t seed = 0; seed < kCrowds; ++seed)
        std::printf("crowd %u %016llx\n", static_cast<unsigned>(seed), Drawn(seed, true).digest());
    return 0;
}
