// The simulator behind a flat C interface, for Python (ctypes). Nothing is thrown across it. Structs are plain and
// padded by hand; src/cotenant/simulator/native.py mirrors them and compares their sizes.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>

#include "model/device_model.h"
#include "sim/elementary.h"
#include "sim/gpu.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

extern "C" {

struct CotenantSimDevice {
    int32_t sms, all_at_once;
    double memory_gbps, bus_gbps;
    double slice_us, switch_us, launch_us;
    uint64_t memory_bytes;
};

struct CotenantSimTenant {
    uint32_t is_here, has_work, is_held, in_request;
    uint64_t operations, requests, unanswered, bursts, gates, preemptions, blocking_calls;
    double work_us, wasted_us, sm_us, used_us, busy_us, gap_us, blocked_us, own_cpu_us, asleep_us, held_us, executed_us,
        longest_wait_us;
    double begun_us, ended_us;  // infinite: not yet
    double in_flight_us, remaining_us, alone_us;
    double latency_sum_us, latency_least_us, latency_most_us;
    double service_sum_us, service_least_us, service_most_us;
    uint64_t latency_count, service_count;
};

struct CotenantSimGpu {
    double now_us, busy_us, sm_us, switch_us;
    uint64_t switches, events, spans, spans_left_out;
};

struct CotenantSimKnobs {
    uint32_t rule, unused;
    double gate_every_us, in_flight_us, turn_us;
    float parameters[admission::kParameters];
};

struct CotenantSimTenantKnobs {
    uint32_t shut, tolerant;
    double rate, sm_share, slice_us, rank;
    int64_t lane;
};

// 0: stop.
typedef int (*CotenantSimTick)(void* about);
}

namespace {

template <class Do>
int guarded(Do&& act) {
    try {
        act();
        return 0;
    } catch (const std::exception&) {
        return -1;
    }
}

}  // namespace

EXPORT void cotenant_sim_sizes(uint64_t* sizes) {
    const size_t all[] = {sizeof(sim::Machine),           sizeof(sim::Op),        sizeof(sim::Job),
                          sizeof(CotenantSimTenant),      sizeof(CotenantSimGpu), sizeof(CotenantSimKnobs),
                          sizeof(CotenantSimTenantKnobs), sizeof(sim::Span),      sim::Histogram::kPlaces};
    for (size_t i = 0; i < sizeof all / sizeof *all; ++i) sizes[i] = all[i];
}

// Of mean 1, from two numbers drawn evenly between 0 and 1; they give two, the cosine's and the sine's.
EXPORT double cotenant_sim_log_normal(double sigma, double turn, double part, int sine) {
    sim::Direction direction = sim::direction_of(turn);
    double normal = (sine ? direction.sine : direction.cosine) * std::sqrt(-2 * sim::log_of(1 - part));
    return sim::exp_of(normal * sigma - sigma * sigma / 2);
}

// Fills *device from a device file; 0, or -1 with a line in `why`.
EXPORT int cotenant_sim_read_device(const char* path, CotenantSimDevice* device, char* why, size_t why_bytes) {
    try {
        model::DeviceSpec spec = model::read_device_file(path);
        *device = {spec.sms,      spec.all_at_once, spec.memory_gbps, spec.bus_gbps,
                   spec.slice_us, spec.switch_us,   spec.launch_us,   spec.memory_bytes};
        return 0;
    } catch (const std::exception& error) {
        std::snprintf(why, why_bytes, "%s", error.what());
        return -1;
    }
}

// Null when there is no memory for it.
EXPORT sim::Gpu* cotenant_sim_new(const sim::Machine* machine, uint32_t timeline_places, double timeline_from_us,
                                  double timeline_us, uint64_t most_spans) {
    try {
        return new sim::Gpu(*machine, timeline_places, timeline_from_us, timeline_us, most_spans);
    } catch (const std::exception&) {
        return nullptr;
    }
}

EXPORT void cotenant_sim_delete(sim::Gpu* gpu) { delete gpu; }

// The program's number, or -1. `request_ends` grow, and the last is `op_count`.
EXPORT int64_t cotenant_sim_add_program(sim::Gpu* gpu, const sim::Op* ops, uint32_t op_count,
                                        const uint32_t* request_ends, uint32_t request_count) {
    int64_t number = -1;
    guarded([&] {
        sim::Program program;
        program.ops.assign(ops, ops + op_count);
        program.request_ends.assign(request_ends, request_ends + request_count);
        number = gpu->add_program(std::move(program));
    });
    return number;
}

EXPORT int64_t cotenant_sim_add_tenant(sim::Gpu* gpu, const sim::Job* job, const double* arrivals,
                                       uint64_t arrival_count) {
    int64_t number = -1;
    guarded([&] { number = gpu->add_tenant(*job, std::vector<double>(arrivals, arrivals + arrival_count)); });
    return number;
}

EXPORT int cotenant_sim_run(sim::Gpu* gpu, double until_us, double tick_every_us, CotenantSimTick tick, void* about) {
    return guarded([&] { gpu->run(until_us, tick_every_us, [&] { return tick(about) != 0; }); });
}

EXPORT void cotenant_sim_tenants(const sim::Gpu* gpu, CotenantSimTenant* out) {
    for (uint32_t i = 0; i < gpu->tenant_count(); ++i) {
        const sim::Figures& f = gpu->figures(i);
        sim::Gpu::Standing s = gpu->standing(i);
        out[i] = {s.is_here,        s.has_work,      s.is_held,         s.in_request,     f.operations,
                  f.requests,       f.unanswered,    f.bursts,          f.gates,          f.preemptions,
                  f.blocking_calls, f.work_us,       f.wasted_us,       f.sm_us,          f.used_us,
                  f.busy_us,        f.gap_us,        f.blocked_us,      f.own_cpu_us,     f.asleep_us,
                  f.held_us,        f.executed_us,   f.longest_wait_us, f.begun_us,       f.ended_us,
                  s.in_flight_us,   s.remaining_us,  s.alone_us,        f.latency.sum(),  f.latency.least(),
                  f.latency.most(), f.service.sum(), f.service.least(), f.service.most(), f.latency.count(),
                  f.service.count()};
    }
}

EXPORT void cotenant_sim_gpu(const sim::Gpu* gpu, CotenantSimGpu* out) {
    const sim::GpuFigures& f = gpu->gpu_figures();
    *out = {gpu->now(),           f.busy_us, f.sm_us, f.switch_us, f.switches, f.events, gpu->spans().size(),
            gpu->spans_left_out()};
}

EXPORT void cotenant_sim_set_knobs(sim::Gpu* gpu, const CotenantSimKnobs* knobs,
                                   const CotenantSimTenantKnobs* tenants) {
    gpu->knobs.rule = knobs->rule;
    gpu->knobs.gate_every_us = knobs->gate_every_us;
    gpu->knobs.in_flight_us = knobs->in_flight_us;
    gpu->knobs.turn_us = knobs->turn_us;
    std::memcpy(gpu->knobs.parameters, knobs->parameters, sizeof knobs->parameters);
    for (uint32_t i = 0; i < gpu->tenant_count(); ++i) {
        const CotenantSimTenantKnobs& k = tenants[i];
        gpu->knobs_of(i) = {k.shut != 0, k.tolerant != 0, k.rate, k.sm_share, k.slice_us, k.rank, k.lane};
    }
}

// `counts` has as many places as cotenant_sim_sizes says last.
EXPORT void cotenant_sim_histogram(const sim::Gpu* gpu, uint32_t tenant, int of_service, uint64_t* counts) {
    const sim::Figures& figures = gpu->figures(tenant);
    const auto& from = of_service ? figures.service.counts() : figures.latency.counts();
    std::memcpy(counts, from.data(), sizeof from);
}

EXPORT void cotenant_sim_timeline(const sim::Gpu* gpu, uint32_t tenant, float* places) {
    const std::vector<float>& timeline = gpu->timeline(tenant);
    std::copy(timeline.begin(), timeline.end(), places);
}

EXPORT void cotenant_sim_spans(const sim::Gpu* gpu, sim::Span* out) {
    std::copy(gpu->spans().begin(), gpu->spans().end(), out);
}
