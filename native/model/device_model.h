// A GPU in time, and nothing else: what runs when, given what was submitted. Pure: no clock, no thread, no file, no
// CUDA. softgpud runs it against the wall clock. The simulator (native/sim) has an engine of its own that follows the
// same rules; tests/simulator/test_agreement.py compares the two operation by operation.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace model {

// How a GPU may be partitioned: an instance has so many SMs and this memory, and takes `size` of the GPU's 8 slices of
// memory from one of `starts` on.
struct MigProfile {
    std::string name;  // "3g.71gb"
    int id = 0, sms = 0, size = 0;
    uint64_t memory_bytes = 0;
    std::vector<int> starts;
};

struct DeviceSpec {
    std::string name;  // what cuDeviceGetName says
    int sms = 0;
    uint64_t memory_bytes = 0;
    double memory_gbps = 0;    // device memory, read plus write
    double bus_gbps = 0;       // each direction of the host link
    double slice_us = 2048;    // how long one context runs while another wants to
    double switch_us = 150;    // what changing contexts costs
    double launch_us = 2;      // from submission to running at the earliest; a deep queue hides it
    double power_limit_w = 0;  // 0: NVML does not say
    bool all_at_once = false;  // contexts run side by side, as under MPS
    int compute_major = 0, compute_minor = 0;
    std::map<int, int> attributes;  // CUdevice_attribute -> value, of what no other field says
    std::vector<MigProfile> mig_profiles;
    std::string mig;  // the profile of which it is an instance; empty: it is a whole GPU
};

// Reads "key = value" lines; throws std::runtime_error with file, line and remedy.
DeviceSpec read_device_file(const std::string& path);
// The same, or with ":PROFILE" behind the path an instance of it.
DeviceSpec read_device(const std::string& entry);

enum class WorkKind : uint8_t {
    marker,  // takes no time: events, barriers
    kernel,
    copy_to_device,  // host link, its own engine
    copy_to_host,    // host link, its own engine
    copy_on_device,  // device-memory bandwidth: copies and memsets
    hold,            // lasts until released from outside: host functions, waits on values
};

struct Work {
    WorkKind kind = WorkKind::marker;
    double time_us = 0;  // kernel: how long it runs with all the SMs and bandwidth it asks for
    int sms = 0;         // kernel: SMs it can fill
    double gbps = 0;     // kernel: device-memory bandwidth it draws at full speed
    uint64_t bytes = 0;  // copies and memsets; on the device: what is read plus what is written
};

using ContextId = uint32_t;
using QueueId = uint32_t;
using OpId = uint64_t;  // 0 is "no operation"

constexpr double never = std::numeric_limits<double>::infinity();

enum class NoticeKind : uint8_t { done, reached };  // reached: a hold is at the head of its queue

struct Notice {
    uint64_t tag;  // the caller's name for the operation
    OpId op;
    double start_us;  // when it first made progress
    double end_us;    // done: when it ended; reached: the same as the start
    QueueId queue;
    NoticeKind kind;
};

// A fluid model: each running operation has work left, in microseconds at full speed, and a rate between 0 and 1 that
// changes only at events.
//
//   kernels     SMs by priority: the more urgent level first, equals in proportion to what they ask for. Too little
//               device-memory bandwidth slows all operations that draw on it in proportion.
//   contexts    one at a time, in turns of slice_us while several have kernels to run; switch_us passes at each change
//               with no kernel running; a kernel that loses its turn goes on later where it was. A context with no
//               runnable kernel gives up its turn at once. With all_at_once there are no turns. Contexts of one
//               company (clients of an MPS server) have their turns together, and their kernels run side by side.
//   copies      go on whichever context has the turn: one link engine a direction, shared equally; on-device copies
//               draw on the memory bandwidth.
//
// An operation is eligible when it is the head of its queue and all it comes after is done. Everything happens at
// now(): callers advance() first, then submit. Ids of queues and contexts that are closed may be used again.
class DeviceModel {
 public:
    explicit DeviceModel(const DeviceSpec& spec);

    // A context of `company` takes its turns together with the others of that company; 0: by itself. `share`: of the
    // SMs, what its kernels together get at most.
    ContextId open_context(uint64_t company = 0, double share = 1);
    void cancel_context(ContextId context);        // drops all of its operations without notice; frees its queues
    void set_slice(ContextId context, double us);  // a company keeps the device's own
    // Whether a kernel of it has begun and not ended.
    bool is_in_kernel(ContextId context) const;

    QueueId open_queue(ContextId context, int priority);  // lower is more urgent
    void close_queue(QueueId queue);                      // what was submitted still completes

    OpId submit(QueueId queue, const Work& work, const OpId* after, size_t after_count, uint64_t tag);
    void release(OpId op);  // ends a hold, also one that is not reached yet; anything else is ignored

    double now() const { return now_; }
    bool pending(OpId op) const { return find(op) != nullptr; }
    // A time before which `op` cannot end, whatever else happens; now() where it has ended or can at any time.
    double earliest_end(OpId op) const;
    // When advance() next has something to do; now() when notices wait, `never` when nothing will happen by itself.
    double next_event();
    // Appends what happened up to and including `to`, in order.
    void advance(double to, std::vector<Notice>& notices);

    bool valid_context(ContextId id) const { return id < contexts_.size() && contexts_[id].open; }
    bool valid_queue(QueueId id) const { return id < queues_.size() && queues_[id].open; }

 private:
    using Slot = uint32_t;
    static constexpr Slot none = UINT32_MAX;

    enum class State : uint8_t { free, queued, eligible, starting, running, held };

    struct Op {
        uint32_t generation = 1;  // grows with each reuse of the slot, so that old ids are known to be done
        State state = State::free;
        WorkKind kind = WorkKind::marker;
        bool released = false;
        int sms = 0;
        uint32_t unmet = 0;  // operations it comes after and that are not done
        Slot next = none;    // in its queue, or in the list of free slots
        Slot dependents = none;
        QueueId queue = 0;
        uint64_t order = 0;
        uint64_t tag = 0;
        double gbps = 0;
        double earliest_us = 0;
        double left_us = 0;  // at full speed, as of since_us
        double rate = 0;
        double since_us = 0;
        double end_us = never;  // at the present rate
        double start_us = never;
        double work_before_us = 0;  // of the whole queue, this one included
    };
    struct Dependent {
        Slot op;
        uint32_t generation;
        Slot next;
    };
    struct Queue {
        bool open = false, closing = false;
        int priority = 0;
        ContextId context = 0;
        Slot head = none, tail = none;
        double submitted_us = 0;  // work ever submitted, at full speed
    };
    struct Context {
        bool open = false;
        size_t lane = 0;
        double share = 1;
        std::vector<QueueId> queues;
    };
    // What takes turns: a context each, a company, or all contexts together.
    struct Lane {
        std::vector<Slot> kernels;  // runnable, most urgent first, then oldest
        uint64_t company = 0;
        size_t contexts = 0;
        double slice_us = 0;
    };
    struct Starting {
        double at_us;
        OpId op;
        bool operator>(const Starting& other) const {
            return at_us != other.at_us ? at_us > other.at_us : op > other.op;
        }
    };

    const Op* find(OpId id) const;
    OpId id_of(Slot slot) const { return (static_cast<OpId>(ops_[slot].generation) << 32) | (slot + 1); }
    size_t lane_of(const Op& op) const { return contexts_[queues_[op.queue].context].lane; }
    size_t enter_lane(uint64_t company);
    void leave_lane(size_t lane);
    double held_to_share(Slot slot) const;
    bool wants(size_t lane) const { return lane < lanes_.size() && !lanes_[lane].kernels.empty(); }

    Slot take_slot();
    void free_slot(Slot slot);
    void make_eligible_if_due(Slot slot);
    void drain_eligible();
    void run(Slot slot);
    void stop(Slot slot);
    void finish(Slot slot);
    void release_dependents(Slot slot);
    void free_queue(QueueId queue);
    std::vector<Slot>& runners(const Op& op);

    void settle();
    void take_turns();
    void begin_turn(size_t lane);
    size_t next_wanting(size_t after) const;
    void share();
    void share_link(const std::vector<Slot>& copies);
    void set_rate(Slot slot, double rate);
    void find_next_event();

    const int sms_;
    const double memory_gbps_, bus_gbps_, slice_us_, switch_us_, launch_us_;
    const bool all_at_once_;

    double now_ = 0;
    double next_us_ = never;
    bool changed_ = false;  // something runnable came or went: rates and turns are to be worked out again
    uint64_t order_ = 0;

    std::vector<Op> ops_;
    Slot free_op_ = none;
    std::vector<Dependent> dependents_;
    Slot free_dependent_ = none;
    std::vector<Queue> queues_;
    std::vector<QueueId> free_queues_;
    std::vector<Context> contexts_;
    std::vector<ContextId> free_contexts_;

    std::vector<Slot> eligible_;  // a worklist, in order: chains of markers must not recurse
    size_t eligible_read_ = 0;
    std::vector<Starting> starting_;  // a heap, soonest first; may name operations that were dropped
    std::vector<Slot> device_copies_, to_device_, to_host_;
    std::vector<Slot> due_;
    std::vector<Notice> notices_;

    std::vector<Lane> lanes_;
    std::vector<size_t> free_lanes_;
    size_t held_ = 0;               // contexts that get a share of the SMs only
    std::vector<double> asked_by_;  // SMs, by context, of the lane that is being shared out
    size_t wanting_ = 0;            // lanes with kernels
    size_t resident_ = SIZE_MAX;    // the lane whose state is on the device
    size_t rated_ = SIZE_MAX;       // the lane whose kernels have rates
    double turn_start_us_ = 0;
    double turn_end_us_ = never;  // only while others want the device
    double switch_end_us_ = -1;   // while in the future, no kernel runs
};

}  // namespace model
