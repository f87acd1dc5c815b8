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
    for (uint32_t i = 0; i < gpu.tenant_count(); ++i) {
        const sim::Figures& f = gpu.figures(i);
        found.add(f.latency);
        found.add(f.service);
        for (uint64_t count : {f.operations, f.requests, f.unanswered, f.bursts, f.gates, f.preemptions})
            found.add(count);
        for (double us : {f.work_us, f.wasted_us, f.sm_us, f.used_us, f.busy_us, f.held_us, f.begun_us, f.ended_us})
            found.add(us);
        for (float sms : gpu.timeline(i)) found.add(sms);
    }
    const sim::GpuFigures& f = gpu.gpu_figures();
    for (double us : {gpu.now(), f.busy_us, f.sm_us, f.switch_us}) found.add(us);
    for (const sim::Span& span : gpu.spans()) {
        found.add(span.start_us);
        found.add(span.end_us);
    }
    return found.value();
}

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
    return 0;
}
