// A tenant's job: a program of operations, cut into requests, and when the requests arrive.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "admission/moment.h"
#include "sim/random.h"

namespace sim {

using admission::Bound;
using admission::Kind;

constexpr double never = std::numeric_limits<double>::infinity();

struct Op {
    float us;        // with all the SMs and bandwidth it asks for
    float sms;       // that it can fill
    float gbps;      // device-memory bandwidth it draws
    float gap_us;    // of the CPU, from the launch before it
    float block_us;  // how long its SMs stay taken where a more urgent stream wants them
    uint8_t kind;    // Kind
    uint8_t sync;    // 1: launched only when all before it are done
    uint8_t bound;   // 1 + Bound where a profile says what limits it; 0: its bandwidth tells
    uint8_t unused;
};

inline bool is_copy(Kind kind) { return kind >= Kind::copy_to_device; }
inline bool is_host_copy(Kind kind) { return kind == Kind::copy_to_device || kind == Kind::copy_to_host; }

// Requests are its operations up to each of `request_ends`, over and over.
struct Program {
    std::vector<Op> ops;
    std::vector<uint32_t> request_ends;
    std::vector<float> left_us;  // from each operation to the end of its request
};

enum class Arrivals : uint32_t {
    closed,  // the next when the one before is done
    poisson,
    uniform,
    bursty,  // Poisson at a higher rate in exponentially distributed bursts, nothing between them
    listed,
};

struct Job {
    uint32_t program = 0;
    uint32_t tenant_class = 0;
    uint32_t priority = 0;  // lower is more urgent; counts where streams have priorities
    Arrivals arrivals = Arrivals::closed;
    uint32_t waits_for_request = 1;  // the CPU synchronises at the end of each request
    uint32_t is_recorded = 0;  // the gap before a request's first launch is a pause between requests, not part of it
    uint64_t requests = 0;     // how many; 0: no end
    double every_us = 0;       // mean time between requests
    double burst_us = 0, pause_us = 0;
    double think_least_us = 0, think_most_us = 0;  // CPU time before a request: data loading
    double spread = 0;                             // sigma of log-normal durations, operation by operation
    double request_spread = 0;                     // and of whole requests
    double begins_us = 0;
    double run_ahead_us = 0;  // how much work the CPU queues where no knob limits it
    double weight = 1, floor = 0;
    double clock = 1;  // what the SM clock is while it alone runs, of the highest
    uint64_t persistent_bytes = 0, ephemeral_bytes = 0;
    uint64_t seed = 0;
};

// In thousandths, as tenants say them.
inline uint32_t weight_of(const Job& job) { return static_cast<uint32_t>(std::lround(job.weight * 1000)); }
inline uint32_t floor_of(const Job& job) { return static_cast<uint32_t>(std::lround(job.floor * 1000)); }

// The stream of a job's operations, one after the other.
class Source {
 public:
    Source(const Program& program, const Job& job, const double* arrivals, size_t arrival_count)
        : program_(&program),
          job_(&job),
          listed_(arrivals),
          listed_count_(arrival_count),
          random_(job.seed),
          arrival_clock_(job.begins_us) {}

    // The next request's arrival; `never` when there is no more. A closed loop's comes at `now`.
    double next_arrival(double now);
    void begin_request();
    double think_us() {
        return job_->think_most_us > 0 ? random_.between(job_->think_least_us, job_->think_most_us) : 0;
    }

    bool at_request_end() const { return op_ == request_end_; }
    const Op& op() const { return program_->ops[op_]; }
    // How long the present operation takes this time.
    double op_us() {
        double us = op().us * request_scale_;
        return job_->spread > 0 ? us * random_.log_normal(job_->spread) : us;
    }
    void step() { ++op_; }
    double request_left_us() const { return at_request_end() ? 0 : program_->left_us[op_] * request_scale_; }
    double request_us() const { return program_->left_us[request_begin_] * request_scale_; }
    bool is_first_op() const { return op_ == request_begin_; }
    uint64_t begun() const { return begun_; }

 private:
    const Program* program_;
    const Job* job_;
    const double* listed_;
    size_t listed_count_;
    Random random_;
    double arrival_clock_;
    double burst_end_us_ = -1;
    uint64_t arrived_ = 0, begun_ = 0;
    uint32_t op_ = 0, request_begin_ = 0, request_end_ = 0, request_ = 0;
    double request_scale_ = 1;
};

inline double Source::next_arrival(double now) {
    if (job_->requests && arrived_ >= job_->requests) return never;
    ++arrived_;
    switch (job_->arrivals) {
        case Arrivals::closed:
            return now;
        case Arrivals::poisson:
            return arrival_clock_ += random_.exponential(job_->every_us);
        case Arrivals::uniform:
            return arrival_clock_ += job_->every_us;
        case Arrivals::bursty: {
            // The mean rate is kept: what is not sent in the pauses is sent in the bursts.
            double within_us = job_->every_us * job_->burst_us / (job_->burst_us + job_->pause_us);
            if (burst_end_us_ < 0) burst_end_us_ = arrival_clock_ + random_.exponential(job_->burst_us);
            arrival_clock_ += random_.exponential(within_us);
            while (arrival_clock_ > burst_end_us_) {
                double begin = burst_end_us_ + random_.exponential(job_->pause_us);
                arrival_clock_ = begin + random_.exponential(within_us);
                burst_end_us_ = begin + random_.exponential(job_->burst_us);
            }
            return arrival_clock_;
        }
        case Arrivals::listed:
            return arrived_ <= listed_count_ ? job_->begins_us + listed_[arrived_ - 1] : never;
    }
    return never;
}

inline void Source::begin_request() {
    if (request_ == program_->request_ends.size()) request_ = 0;
    op_ = request_begin_ = request_ ? program_->request_ends[request_ - 1] : 0;
    request_end_ = program_->request_ends[request_++];
    request_scale_ = job_->request_spread > 0 ? random_.log_normal(job_->request_spread) : 1;
    ++begun_;
}

}  // namespace sim
