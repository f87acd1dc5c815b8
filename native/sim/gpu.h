// One GPU and its tenants in virtual time. Pure: no clock, no thread, no file.
//
// Each tenant is a CPU thread that launches operations into one stream. Time advances from event to event; between two
// events each running operation has a rate between 0 and 1, as in model::DeviceModel, whose rules for turns, SMs,
// bandwidth and copies are followed here. In addition there are: CPU time of launches, gates, bursts and grace periods
// as native/tenant has them, admission rules, kernels that keep their SMs against later ones, and a controller's ticks.
//
// While one tenant has the GPU to itself there is no event for each of its operations: run_alone() advances through
// them in a loop until another event is due.
//
// An event costs O(log n) in the waiting tenants, and O(k) in the k that have work at that moment; a tenant that takes
// turns and is ready again compares its key with those of all n. No operation allocates, and nothing grows with the
// length of a run.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "admission/admission.h"
#include "admission/cut.h"
#include "admission/grace.h"
#include "admission/hold.h"
#include "admission/moment.h"
#include "admission/share.h"
#include "admission/time_slices.h"
#include "admission/turn_keys.h"
#include "admission/turns.h"
#include "sim/histogram.h"
#include "sim/job.h"
#include "sim/machine.h"
#include "sim/timers.h"

namespace sim {

struct TenantKnobs {
    bool shut = false, tolerant = false;
    double rate = 0;  // 0: no limit
    double sm_share = 1;
    double slice_us = 0;  // 0: by the rule and the class
    double rank = 0;
    int64_t lane = 0;
};

struct Knobs {
    uint32_t rule = admission::strict;
    double gate_every_us = admission::kDefaultGateEveryUs, in_flight_us = admission::kDefaultInFlightUs;
    double turn_us = admission::kDefaultTurnUs;  // 0: by the cost of a switch
    float parameters[admission::kParameters] = {};
};

struct Figures {
    Histogram latency, service;
    uint64_t operations = 0, requests = 0, unanswered = 0, bursts = 0, gates = 0;
    uint64_t preemptions = 0;  // a kernel was stopped in the middle
    double work_us = 0;        // what it has got done, in time alone
    double wasted_us = 0;      // work that was begun anew
    double sm_us = 0;
    double used_us = 0, busy_us = 0, held_us = 0;
    double gap_us = 0;      // of busy_us, its streams were empty
    double blocked_us = 0;  // its CPU waited for an operation
    uint64_t blocking_calls = 0;
    double own_cpu_us = 0;       // its CPU worked
    double asleep_us = 0;        // it had nothing to do until the next request came
    double executed_us = 0;      // GPU time of its kernels and graphs, without copies to and from the host
    double longest_wait_us = 0;  // for a turn, from having something to start
    double begun_us = never, ended_us = never;
};

struct Span {
    double start_us, end_us;
    uint32_t tenant;
    uint32_t kind;
    uint64_t request;
};

struct GpuFigures {
    double busy_us = 0;  // some kernel ran
    double sm_us = 0;
    double switch_us = 0;  // between contexts
    uint64_t switches = 0, events = 0;
};

class Gpu {
 public:
    // The timeline has the SMs of each tenant between two moments, in so many places.
    Gpu(const Machine& machine, uint32_t timeline_places, double timeline_from_us, double timeline_us,
        size_t most_spans);

    // Its durations are fitted to the machine: what asks for more than there is takes longer.
    uint32_t add_program(Program program);
    // What is added is there from the start; it begins at its job's begins_us.
    uint32_t add_tenant(const Job& job, std::vector<double> arrivals);

    // Ends at `until`, or when nothing will happen any more, or when `tick` returns false.
    void run(double until, double tick_every_us, const std::function<bool()>& tick);

    double now() const { return now_; }
    size_t tenant_count() const { return tenants_.size(); }
    const Figures& figures(uint32_t tenant) const { return tenants_[tenant].figures; }
    const GpuFigures& gpu_figures() const { return gpu_; }
    const std::vector<float>& timeline(uint32_t tenant) const { return tenants_[tenant].timeline; }
    const std::vector<Span>& spans() const { return spans_; }
    uint64_t spans_left_out() const { return spans_left_out_; }

    struct Standing {
        bool is_here, has_work, is_held, in_request;
        double in_flight_us, remaining_us, alone_us;
    };
    Standing standing(uint32_t tenant) const;

    Knobs knobs;
    TenantKnobs& knobs_of(uint32_t tenant) { return tenants_[tenant].knobs; }

 private:
    enum class State : uint8_t {
        away,      // not here yet
        thinking,  // nothing is at the head of its stream before ready_us
        held,      // at a closed gate
        asking,    // its rule has not let it start yet
        running,   // on the device, at whatever rate
        gone,
    };

    struct Gate {
        bool open = true;
        double closed_us = -2, opened_us = -1;  // the last time it was closed

        bool was_open(double us) const { return us < closed_us || (open && us >= opened_us); }
    };

    // Those that take turns with each other.
    struct Round {
        uint32_t first = Timers::nobody;  // of those that are ready
        uint32_t ready = 0, brief = 0, on = 0;
        uint32_t some_on[2] = {Timers::nobody, Timers::nobody};  // two that others have to wait for
    };

    struct Tenant {
        // First what every operation touches.
        double cpu_us = 0;   // when the present operation was launched
        double done_us = 0;  // when the one before it ended
        double op_us = 0;    // of the present operation
        double left_us = 0;  // as of since_us
        double rest_us = 0;  // and behind the gate inside a graph where it will stop
        double rate = 0, since_us = 0, end_us = never;
        double pace = 1;  // by the clock, of what it has alone; part of the rate
        double started_us = never;
        float since_gate_us = 0;
        State state = State::away;
        Kind kind = Kind::kernel;
        bool busy = false;
        bool passed = false;   // the present operation's gate, or the delay of what it preempted
        bool cleared = false;  // it has preempted what it wanted to
        bool holds_turn = false, in_request = false;
        bool above_is_busy = false, production_is_busy = false, seen_on = false, seen_ready = false, over_rate = false,
             below_floor = false;   // at the last look at the gates
        bool is_squeezed = false;   // it started on fewer free SMs than it can fill
        bool is_contended = false;  // a more urgent stream wants SMs, too
        bool has_place = false;     // in the order of kernels that run together
        bool is_brief = false;      // it wants turns for a moment between two copies
        bool beside = false;        // it takes no turn now
        bool yields = false;        // it gives its SMs up to a waiting stream, for one sharing-out
        uint32_t number = 0;
        Source source;
        const Job* job;
        Gate gate, link_gate;  // of kernels and graphs; of copies to and from the host
        double ready_us = never, idle_us = never, empty_us = 0;
        double arrived_us = 0, service_us = 0, next_arrival_us = never;
        double charged_us = 0;
        double busy_until_us = 0;  // that its busy_us knows of
        admission::TurnCharge turn_charge;
        uint64_t turn_key_ns = 0, keyed_ns = 0;  // the latter: executed, as far as the key knows
        double charged_executed_us = 0;
        double turn_us = 0;                        // executed in its present turn
        double gave_us = never;                    // when it gave its turn away
        uint64_t brief_ns = admission::kNotBrief;  // admission::Equal, beside is_brief
        double drain_us = 0;                       // how long it has been on since the turn ended
        double cut_for_us = 0;     // how long it has been on behind its gate for a class that is not production
        double looked_us = 0;      // its watcher has looked at its streams, as far as looks are followed
        double look_us = never;    // and will look next where that may change something
        double gaps_us = 0;        // in its present turn, as its watcher saw them
        double leaves_us = never;  // it has drained behind its closed gate, and will be seen to have
        double comes_us = never;   // a kernel behind its copies is at the gate, and will be seen there
        uint32_t looks = 0;
        bool was_empty = false;    // at the last look
        bool found_empty = false;  // and that has ended its turn
        bool after_copy = false;   // its present operation follows a copy to or from the host
        double waits_since_us = never;
        admission::Budgets budgets;
        admission::Cutting cutting;
        double last_us = 0;  // how long its last kernel was
        uint32_t gaps = 0;   // in this burst
        float mean_gaps = 0;
        double met_us = -never;    // when another production job was last at work with it
        double below_us = -never;  // when it was last below its floor
        double granted_sms = 0, gained_us = 0, locked_sms = 0, lock_us = -1, place_used_us = 0;
        uint64_t place = 0;
        double speed = 0;
        TenantKnobs knobs;
        admission::Grace grace;
        Figures figures;
        std::vector<float> timeline;

        Tenant(Source stream, const Job* its_job) : source(stream), job(its_job) {}
        Gate& gate_of(Kind what) { return is_host_copy(what) ? link_gate : gate; }
        const Gate& gate_of(Kind what) const { return is_host_copy(what) ? link_gate : gate; }
        bool is_production() const { return job->tenant_class == admission::kProduction; }
    };

    // The tenant with the least of something; of equals, who came first.
    struct First {
        uint32_t tenant = Timers::nobody;
        double least = 0, arrived_us = 0;
        void offer(uint32_t other, double value, double came_us) {
            bool goes = tenant == Timers::nobody || value < least || (value == least && came_us < arrived_us);
            if (goes) *this = {other, value, came_us};
        }
    };

    // gpu.cpp: events
    void arrive(Tenant& t);
    void leave(Tenant& t);
    bool admit_waiting();
    void alarm(Tenant& t);
    void set_alarm(Tenant& t);
    void begin_request(Tenant& t);
    void end_request(Tenant& t);
    void next_operation(Tenant& t);
    void fit_launch(Tenant& t);
    void take_operation(Tenant& t);
    void schedule(Tenant& t);
    void reach(Tenant& t);
    void start(Tenant& t);
    void stop(Tenant& t);
    void finish(Tenant& t);
    void finish_due();
    void note_span(const Tenant& t, double end_us);
    void close_books();
    std::vector<uint32_t>& runners(Kind kind);
    double in_flight_limit_us(const Tenant& t) const;
    void see_blocked(Tenant& t);
    void see_own_cpu(Tenant& t);
    static bool uses(const Tenant& t) {
        return t.state != State::away && t.state != State::gone && t.figures.bursts > 0;
    }
    bool has_above(const Tenant& t) const;
    static uint64_t brief_ns_of(const Tenant& t) { return t.is_brief ? 0 : t.brief_ns; }
    bool is_empty(const Tenant& t) const { return t.state == State::thinking && !t.passed; }
    double left_of_operation_us(const Tenant& t) const { return t.left_us + t.rest_us; }

    // alone.cpp: one tenant, many operations
    bool can_run_alone() const;
    void run_alone(double until);

    // sharing.cpp: turns and rates
    void settle();
    void take_turns();
    void begin_turn(uint32_t tenant);
    uint32_t next_wanting(uint32_t after) const;
    double slice_of(Tenant& t);
    admission::Slicing slicing_of(Tenant& t);
    void note_below(Tenant& t);
    bool is_below_on(const Tenant& t) const;
    bool is_cut_below(const Tenant& t) const;
    bool holds_gap() const;
    void share();
    void share_in_proportion();
    void share_in_order();
    void share_link(const std::vector<uint32_t>& copies);
    void change_link(const Tenant& t);
    void set_rate(Tenant& t, double rate, double pace = 1);
    void progress(Tenant& t);
    void draw(Tenant& t, double from_us, double to_us, double sms);
    double keep_us(const Tenant& t) const;
    double locked_for_us(const Tenant& t) const;
    void lose_places();
    void find_next_event();
    double most_sms(const Tenant& t) const;

    // clock.cpp: power, and what it makes of the clock
    void follow_clock();
    void load_clock();
    double pace_of(const Tenant& t) const { return is_hot_ ? (1 - sunk_) / t.job->clock : 1; }
    double clock_edge_us() const;

    // gates.cpp: who has work, who may run
    void go_busy(Tenant& t);
    void go_idle(Tenant& t);
    void see_pause(Tenant& t, double since_us, double until_us);
    double grace_us(const Tenant& t) const;
    bool is_gated(const Tenant& t) const { return admission::is_gated(knobs.rule, t.job->tenant_class); }
    bool is_modelled() const { return knobs.rule >= admission::kFirstModelled; }
    bool must_pass_gate(Tenant& t, double launched_us);
    void add_inner_gates(Tenant& t);
    void stop_inside(Tenant& t);
    void go_on_inside(Tenant& t);
    void note_length(Tenant& t);
    void refresh_gates();
    void set_gate(Tenant& t, Gate& gate, bool open);
    bool is_barred(const Tenant& t) const { return admission::is_barred(t.knobs.shut, t.over_rate, t.below_floor); }
    bool has_company(const Tenant& t) const;
    bool is_equal_at_work(const Tenant& t) const;

    // turns.cpp: GPU time, and whose turn it is among equals
    void charge(Tenant& t);
    void catch_up(Tenant& t);
    void claim(Tenant& t);
    void forgo_turns();
    double switch_us() const;
    double turn_us(const Round& round, const Tenant& t) const;
    uint32_t round_of(const Tenant& t) const { return knobs.rule == admission::fair ? 0 : t.job->tenant_class; }
    bool share_turns(const Tenant& a, const Tenant& b) const;
    bool is_on(const Tenant& t) const;
    bool is_ready(const Tenant& t) const;
    admission::Equal as_equal(const Tenant& t) const;
    void end_turns();
    void look_at_rounds();
    bool may_start(const Tenant& t, const Round& round) const;
    void take_turn(Tenant& t);
    double turn_edge_us(const Tenant& t) const;
    void note_turn(Tenant& t);

    // looks.cpp: when a watcher sees what its streams do
    double looks_every_us(double naps) const {
        return naps * machine_.interference.watch_us + machine_.interference.look_us;
    }
    double look_every_us(const Tenant& t) const;
    double next_look_us(const Tenant& t, double from_us) const;
    double copying_look_us(const Tenant& t) const;
    void expect_looks(Tenant& t);
    void become_ready(Tenant& t);
    void look(Tenant& t);
    void look_due();
    double look_edge_us(const Tenant& t) const;
    bool counts_as_on(const Tenant& t) const { return is_on(t) || t.leaves_us != never; }

    // rules.cpp: modelled rules
    void let_start();
    bool clear_the_way(Tenant& t);
    bool waits_to_begin(const Tenant& t) const;
    double left_now_us(const Tenant& t) const;
    double request_left_us(const Tenant& t) const;
    admission::Operation operation_of(const Tenant& t) const;
    admission::Asker asker_of(const Tenant& t) const;
    admission::Gpu seen_gpu() const;

    const Machine machine_;
    const uint32_t timeline_places_;
    const double timeline_from_us_, timeline_place_us_;
    const size_t most_spans_;

    std::vector<std::unique_ptr<Program>> programs_;
    std::vector<std::unique_ptr<Job>> jobs_;
    std::vector<std::unique_ptr<std::vector<double>>> lists_;
    std::vector<Tenant> tenants_;
    Timers timers_;
    std::vector<uint32_t> waiting_for_memory_;
    uint64_t memory_used_ = 0;

    double now_ = 0, until_ = 0;
    double next_us_ = never;  // of what runs
    double edge_us_ = never;  // when a turn or a budget ends
    double tick_us_ = never;
    bool changed_ = true;  // something runnable came or went
    uint64_t places_given_ = 0;

    std::vector<uint32_t> with_work_;
    Round rounds_[4];
    bool is_contended_ = false;  // two that take turns with each other have work
    std::vector<uint32_t> asking_;
    std::vector<uint32_t> kernels_;                          // tenants with a kernel on the device
    std::vector<uint32_t> to_device_, to_host_, on_device_;  // tenants with a copy there
    std::vector<uint32_t> due_, order_;

    uint32_t resident_ = Timers::nobody;  // whose context is on the device, where they take turns
    uint32_t rated_ = Timers::nobody;
    bool is_held_ = false;  // by the resident, in a gap of its burst
    double turn_start_us_ = 0, turn_end_us_ = never, switch_end_us_ = -1;
    bool is_hot_ = false;             // some job's clock is below the highest
    double sunk_ = 0, sinks_to_ = 0;  // how far below the highest the clock is, and where it goes
    double sunk_us_ = 0;              // as of then
    bool active_ = false;
    double active_since_us_ = 0;
    Bound production_bound_ = Bound::unknown;  // of the production kernel that started last
    // Production, below.
    float outstanding_us_[2] = {0, 0};
    uint32_t here_[4] = {};  // tenants of each class
    // In thousandths: floors together, and the weights of the production jobs.
    uint32_t floors_here_ = 0, weights_here_ = 0;
    double below_us_ = -never;  // when somebody was last below a floor

    GpuFigures gpu_;
    std::vector<Span> spans_;
    uint64_t spans_left_out_ = 0;
};

}  // namespace sim
