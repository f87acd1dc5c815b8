// What a rule may see when an operation asks whether it may start, and what it may answer. Pure data.
//
// The rules of admission.h (none, strict, fair) decide in live processes from less. Rules with a value from
// kFirstModelled up see the whole GPU: the simulator knows it, and live tenants tell each other what they can of it
// (tenant/launch_rule.h). Each is an inline function in a header of its own beside this one, and rules.h leads to it:
//
//   Verdict decide(const Moment&, const float* parameters)
//       may the operation at the head of this stream start now?
//   Preemption preempt(const Moment&, const Running&, const float* parameters)
//       production wants to run: what of this operation below it?
//
// `decide` is asked again whenever something on the GPU started, ended or arrived, and after each tick of the
// controller: "wait" costs nothing and needs no date. A tenant that the controller has shut, or that is over its rate,
// is not asked: it waits under every rule but none. `parameters` is what the controller put into Knobs.parameters
// (zeros beyond).
#pragma once

#include <cstdint>

#include "admission/admission.h"
#include "admission/knobs.h"

namespace admission {

// What limits a kernel: its draw on the memory's bandwidth is over or under 60 % of what the GPU has.
enum class Bound : uint8_t { unknown, compute, memory };

enum class Kind : uint8_t { kernel, graph, copy_to_device, copy_to_host, copy_on_device };

struct Operation {
    Kind kind = Kind::kernel;
    Bound bound = Bound::unknown;
    bool begins_request = false;  // the first of a request or training iteration
    float us = 0;                 // how long it runs alone
    float sms = 0;                // that it can fill
    float gbps = 0;               // device-memory bandwidth it draws
};

struct Asker {
    uint32_t number = 0;              // of the tenant, from 0
    uint32_t tenant_class = 0;        // 0 production, 1 standard, 2 opportunistic
    uint32_t running = 0;             // operations of it that have started and not ended
    float in_flight_us = 0;           // of these, what is left to run
    float used_us = 0;                // GPU time it has had
    float remaining_us = 0;           // of its present request, alone
    float sm_share = 1;               // of the GPU that the controller leaves it
    float rank = 0;                   // the controller's order: lower goes first
    bool lane_is_taken = false;       // another tenant of its lane (TenantKnobs.lane) is in the middle of a request
    uint32_t lane_next = UINT32_MAX;  // of its lane's tenants that wait to begin one: lowest rank, then who came first
    double arrived_us = 0;            // its present request
};

// What is on the GPU now, summed over a side: production, or all below it.
struct Side {
    uint32_t running = 0;          // operations
    uint32_t copies = 0;           // of these, copies to or from the host
    uint32_t with_work = 0;        // tenants with a request under way, whether anything of it runs or not
    float sms = 0;                 // that its running kernels hold
    float left_us = 0;             // until the last of its running operations would end alone
    float outstanding_us = 0;      // what its kernels and graphs had to do when they started, summed since nothing of
                                   // it ran: falls to 0 only when all of it has ended
    Bound bound = Bound::unknown;  // of the kernel that started last
};

struct Gpu {
    double now_us = 0;
    float sms = 0;
    float free_sms = 0;
    float memory_gbps = 0;
    Side production, below;
    uint32_t lowest_rank_tenant = UINT32_MAX;   // of all tenants with work: who has the lowest rank, then came first
    uint32_t least_left_tenant = UINT32_MAX;    // of all tenants with work: whose request has least left to run
    uint32_t lowest_rank_waiting = UINT32_MAX;  // the same two, of the tenants whose next operation has not started
    uint32_t least_left_waiting = UINT32_MAX;
    uint32_t squeezed = 0;  // running operations that started on fewer free SMs than they can fill
    float cut_us = 0;       // what stopping a kernel in the middle and going on with another costs
};

struct Moment {
    Operation operation;
    Asker tenant;
    Gpu gpu;
};

// An operation below production that runs at the moment.
struct Running {
    Operation operation;
    Asker tenant;
    float done_us = 0;
    float left_us = 0;
};

enum class Preemption : uint8_t {
    let_run,  // beside production, on the SMs it has
    drain,    // it ends, and nothing of its tenant starts before production is done
    cut,      // stopped now, at the cost of a context switch; it goes on later where it was
    kill,     // stopped now, at little cost; it begins anew later
};

}  // namespace admission
