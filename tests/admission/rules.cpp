// The modelled rules (native/admission/rules.h) one by one: what goes, what waits, and what becomes of what runs below
// production.
#include "admission/rules.h"

#include "../require.h"

using namespace admission;

namespace {

Moment moment_of(uint32_t tenant_class) {
    Moment moment;
    moment.tenant.tenant_class = tenant_class;
    moment.tenant.number = 4;
    moment.gpu.sms = 100;
    moment.gpu.free_sms = 100;
    moment.operation.sms = 30;
    moment.operation.us = 50;
    return moment;
}

bool goes(uint32_t rule, const Moment& moment, const float* parameters) {
    Verdict verdict = decide(rule, moment, parameters);
    REQUIRE(verdict != Verdict::gate);
    return verdict == Verdict::go;
}

void of_orion() {
    const float parameters[kParameters] = {40, 500};  // SMs, outstanding time
    Moment moment = moment_of(kOpportunistic), above = moment_of(kProduction);
    auto may = [&] { return goes(orion, moment, parameters); };
    REQUIRE(may());
    moment.gpu.production.with_work = above.gpu.production.with_work = 1;
    for (Bound bound : {Bound::compute, Bound::memory})
        for (Bound other : {Bound::unknown, Bound::compute, Bound::memory}) {
            moment.operation.bound = bound;
            moment.gpu.production.bound = other;
            REQUIRE(may() == (bound != other));
        }
    moment.operation.bound = moment.gpu.production.bound = Bound::unknown;
    REQUIRE(may());
    // SMs: what is below holds with it, at most the threshold.
    moment.gpu.below.sms = 10;
    REQUIRE(may());
    moment.gpu.below.sms = 11;
    REQUIRE(!may());
    moment.gpu.production.with_work = 0;
    REQUIRE(may());
    // Much that is outstanding holds everything below, copies too, until all of it has ended.
    moment.gpu.below.running = 1;
    for (Kind kind : {Kind::kernel, Kind::copy_to_host}) {
        moment.operation.kind = kind;
        moment.gpu.below.outstanding_us = 500;
        REQUIRE(may());
        moment.gpu.below.outstanding_us = 501;
        REQUIRE(!may());
    }
    moment.gpu.below.running = 0;
    REQUIRE(may());
    // Copies over the host's link wait for production's copies, and for nothing else.
    moment.gpu.production.with_work = 1;
    for (Kind kind : {Kind::copy_to_device, Kind::copy_to_host, Kind::copy_on_device}) {
        moment.operation.kind = kind;
        moment.gpu.production.copies = 0;
        REQUIRE(may() == (kind != Kind::copy_on_device));
        moment.gpu.production.copies = 1;
        REQUIRE(!may());
    }
    above.gpu.below = {9, 9, 9, 99, 9999, 9999, Bound::unknown};
    REQUIRE(goes(orion, above, parameters));
    REQUIRE(preempt(orion, above, {}, parameters) == Preemption::let_run);
}

void of_reef() {
    const float parameters[kParameters] = {2, 0}, lets_run[kParameters] = {2, 1};
    Moment moment = moment_of(kOpportunistic), above = moment_of(kProduction);
    auto may = [&] { return goes(reef, moment, parameters); };
    moment.gpu.below.running = 1;
    REQUIRE(may());
    moment.gpu.below.running = 2;
    REQUIRE(!may());
    moment.gpu.below.running = 0;
    // Beside production on what it leaves, if it ends there no later.
    moment.gpu.production.with_work = 1;
    moment.gpu.production.left_us = 50;
    REQUIRE(may());
    moment.gpu.production.left_us = 49;
    REQUIRE(!may());
    moment.gpu.free_sms = 15;
    moment.gpu.production.left_us = 99;
    REQUIRE(!may());
    moment.gpu.production.left_us = 100;
    REQUIRE(may());
    moment.gpu.free_sms = 0.5f;
    moment.gpu.production.left_us = 1e9f;
    REQUIRE(!may());
    above.gpu.below.running = 99;
    REQUIRE(goes(reef, above, parameters));
    // It kills at the start of a request only, and not where kernels cannot be killed.
    REQUIRE(preempt(reef, above, {}, parameters) == Preemption::let_run);
    above.operation.begins_request = true;
    REQUIRE(preempt(reef, above, {}, parameters) == Preemption::kill);
    REQUIRE(preempt(reef, above, {}, lets_run) == Preemption::let_run);
}

void of_lanes() {
    Moment moment = moment_of(kOpportunistic);
    auto may = [&] { return goes(lanes, moment, nullptr); };
    moment.tenant.lane_is_taken = true;
    REQUIRE(may());  // in the middle of an iteration
    moment.operation.begins_request = true;
    moment.tenant.lane_next = 4;
    REQUIRE(!may());
    moment.tenant.lane_is_taken = false;
    REQUIRE(may());
    moment.tenant.lane_next = 3;
    REQUIRE(!may());
}

void of_paella() {
    const float parameters[kParameters] = {2, 0}, deficit[kParameters] = {2, 1};
    for (const float* now : {parameters, deficit}) {
        Moment moment = moment_of(kOpportunistic);
        auto may = [&] { return goes(paella, moment, now); };
        uint32_t& waiting = now == deficit ? moment.gpu.lowest_rank_waiting : moment.gpu.least_left_waiting;
        uint32_t& all = now == deficit ? moment.gpu.lowest_rank_tenant : moment.gpu.least_left_tenant;
        REQUIRE(!may());
        waiting = 4;
        REQUIRE(may());  // it fits, and is the first of those that wait
        moment.operation.sms = 999;
        REQUIRE(may());  // it can fill all, and all are free
        moment.gpu.free_sms = 99;
        REQUIRE(!may());
        all = 4;
        REQUIRE(may());  // ahead, as the first of all
        moment.gpu.squeezed = 1;
        REQUIRE(may());
        moment.gpu.squeezed = 2;
        REQUIRE(!may());
        moment.operation.sms = 30;
        REQUIRE(may());
        waiting = 5;
        REQUIRE(!may());
    }
}

void of_chimera() {
    const float latency[kParameters] = {100};
    Moment moment = moment_of(kOpportunistic), above = moment_of(kProduction);
    auto may = [&] { return goes(chimera, moment, latency); };
    moment.gpu.free_sms = 29;
    REQUIRE(may());
    moment.gpu.production.with_work = 1;
    REQUIRE(!may());
    moment.gpu.free_sms = 30;
    REQUIRE(may());
    moment.operation.sms = 999;
    REQUIRE(!may());
    moment.gpu.free_sms = 100;
    REQUIRE(may());
    above.gpu.free_sms = 0;
    above.gpu.production.with_work = 1;
    REQUIRE(goes(chimera, above, latency));

    // Production wants 100 SMs for 50 us; the kernel below has 100 of them, or fewer.
    above.operation.sms = 100;
    above.gpu.memory_gbps = 1000;
    above.gpu.cut_us = 80;
    Running running;
    running.operation.sms = 100;
    auto how = [&](float left_us) {
        running.left_us = left_us;
        return preempt(chimera, above, running, latency);
    };
    REQUIRE(how(30) == Preemption::drain);
    REQUIRE(how(90) == Preemption::let_run);  // 50 us together cost less than 90, and both lose nothing
    above.tenant.remaining_us = 5000;         // of its request, of which this is one kernel
    REQUIRE(how(90) == Preemption::drain);    // within the latency, where a cut would lose work
    REQUIRE(how(101) == Preemption::cut);
    above.gpu.cut_us = 120;
    REQUIRE(how(110) == Preemption::drain);  // none is within it: the shortest
    REQUIRE(how(130) == Preemption::cut);
    above.operation.sms = 40;
    running.operation.sms = 60;
    REQUIRE(how(130) == Preemption::let_run);  // there is place for both
    running.operation.sms = 70;
    REQUIRE(how(300) == Preemption::let_run);  // a quarter of its SMs for 300 us
    REQUIRE(how(600) == Preemption::cut);
    running.operation.sms = 60;
    above.operation.gbps = 500;
    running.operation.gbps = 900;  // but not for their memory: of 500 it lacks 400
    REQUIRE(how(200) == Preemption::cut);
}

}  // namespace

int main() {
    of_orion();
    of_reef();
    of_lanes();
    of_paella();
    of_chimera();
    for (uint32_t rule : {uint32_t{none}, uint32_t{strict}, uint32_t{fair}, 99u})
        REQUIRE(goes(rule, moment_of(kOpportunistic), nullptr));
    REQUIRE(is_asked_live(orion) && is_asked_live(reef));
    for (uint32_t rule : {none, strict, fair, lanes, paella, chimera}) REQUIRE(!is_asked_live(rule));
    return 0;
}
