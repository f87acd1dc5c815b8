// What the hooks call. A process is a tenant, and so is each of its lanes (lanes.h): it joins the segment at the first
// work that it sees, counts, marks itself busy, and puts gates into its streams. The launch path takes no lock, makes
// no system call and allocates nothing.
#pragma once

#include <atomic>

#include "tenant/durations.h"
#include "tenant/lanes.h"
#include "tenant/launch_rule.h"
#include "tenant/locked.h"
#include "tenant/memory/move_barrier.h"
#include "tenant/primary_life.h"
#include "tenant/streams.h"
#include "wire/wire.h"

namespace tenant {

enum class Kind : uint8_t { kernel, graph, copy, memory_op, host_call };

// Around every operation: constructed before the driver is called, destroyed after. Nothing is done for an operation
// that only records into a graph.
class Work {
 public:
    // `bus_bytes`: of a copy between host memory and the GPU (host_copies.h); 0: it is none.
    Work(Kind kind, CUstream stream, bool per_thread_default, size_t bus_bytes = 0)
        : Work(What{static_cast<uint64_t>(kind) | bus_bytes << 8}, stream, per_thread_default) {}
    ~Work() {
        if (state_) stay_busy();
    }
    Work(const Work&) = delete;
    Work& operator=(const Work&) = delete;

    bool passes_gates() const { return passes_gates_; }
    bool is_too_late() const { return still_.is_too_late(); }
    int gpu() const { return state_ ? int{state_->gpu} : -1; }  // -1: it is not known
    // For work that occupies the GPU: puts a gate before it where one is due, and times the operation where that is
    // due.
    void pass_gate(Shape shape);
    // The same for an operation of which more is known than its shape. `scale`: what is learned is the time it takes,
    // times this.
    struct Expected {
        float us, gate_every_us, scale;
    };
    void pass_gate(Shape shape, const Expected& expected);
    // For a copy: the call returns when it has ended.
    void ends_with_call() { aside_ |= aside_ & kUsesBus ? kEndsWithCall : 0; }
    // For a rule that is asked at each launch (launch_rule.h): waits until the operation may go.
    bool asks_rule() const { return asks_rule_; }
    void ask_rule(Shape shape, const KernelSize& size);
    // For a graph: it may have the gates of another tenant of the process inside.
    void launches(CUgraphExec exec) {
        if (__builtin_expect(Membership::lanes_open() != 0, 0) && state_) look_into(exec);
    }
    CUresult result(CUresult result) {  // what the driver said
        if (sample_) end_sample(result == CUDA_SUCCESS);
        return result;
    }

    // For copies in pieces (host_copies.h).
    bool shares_bus() const;
    float piece_us() const;  // then
    float learned_us(Shape shape) const;
    CUstream stream() const { return state_->handle; }
    // False: another thread is amid a call that must not come between two pieces.
    bool begin_pieces();
    bool pieces_are_waited_for() const;
    void count_piece();
    void end_pieces();

 private:
    // In one register: every launch passes it on.
    struct What {
        uint64_t kind_and_bytes;
    };
    Work(What what, CUstream stream, bool per_thread_default);
    void stay_busy();
    void wait_for_pieces();
    bool others_are_calling(StreamKey key);
    void enter();
    void enter(wire::OnGpu& here);
    void begin_burst();
    void be_ready();
    void enter_aside(size_t bus_bytes, uint32_t tenant_class);
    void end_aside();
    enum Aside : uint8_t {
        kByCopyGate = 1,
        kUsesBus = 2,  // it is a copy for which lower classes do not copy
        kInPieces = 4,
        kHasLanes = 8,  // the process has
        kCrosses = 16,  // it concerns another tenant of the process
        kEndsWithCall = 32,
        kHolds = 64,  // the GPU, once it is launched (hold.h)
    };
    bool by_copy_gate() const { return aside_ & kByCopyGate; }
    wire::Flag& gate() const;
    // The following only where the process has lanes.
    void choose_lane(CUstream stream, bool per_thread_default);
    void look_into(CUgraphExec exec);
    void begin_crossing();
    void end_crossing();
    void wait_for_room(float in_flight_us);
    void end_sample(bool launched);

    Membership* membership_;
    Still still_;
    StreamState* state_ = nullptr;
    Samples::Sample* sample_ = nullptr;
    Kind kind_ = Kind::kernel;
    bool passes_gates_ = false;
    bool asks_rule_ = false;
    uint8_t aside_ = 0;  // what most launches have nothing to do with
};

// Around the driver's call that opens a capture: no helper thread is inside a stream call when it begins.
class OpeningCapture {
 public:
    OpeningCapture(CUstream stream, CUstreamCaptureMode mode, bool per_thread_default);
    ~OpeningCapture();
    OpeningCapture(const OpeningCapture&) = delete;
    OpeningCapture& operator=(const OpeningCapture&) = delete;

    CUresult result(CUresult result);

 private:
    Membership* membership_;
    StreamKey stream_ = kNoStream;
    CUcontext context_ = nullptr;
    CUstreamCaptureMode mode_;
    NotCancelled with_the_lock_;
};
// Around the driver's call that ends one, whatever it answers: a stream that captures afterwards has ended nothing.
class EndingCapture {
 public:
    EndingCapture(CUstream stream, bool per_thread_default);
    ~EndingCapture();
    EndingCapture(const EndingCapture&) = delete;
    EndingCapture& operator=(const EndingCapture&) = delete;

 private:
    Membership* membership_;
    CUstream stream_ = nullptr;
    uint64_t capture_ = 0;
};
// Around the driver's call that destroys a stream. Its handle may be another stream's as soon as that has returned.
class EndingStream {
 public:
    explicit EndingStream(CUstream stream);
    EndingStream(const EndingStream&) = delete;
    EndingStream& operator=(const EndingStream&) = delete;

    CUresult result(CUresult result);

 private:
    Membership* membership_;
    uint64_t capture_ = 0;
};

// Around the driver's call that ends a green context: no thread of ours uses its streams from before the call on.
class EndingGreenContext {
 public:
    explicit EndingGreenContext(CUgreenCtx green);

    CUresult result(CUresult result);

 private:
    CUgreenCtx green_;
};

// Around the driver's call that destroys a context.
class DestroyingContext {
 public:
    explicit DestroyingContext(CUcontext context);
    ~DestroyingContext();
    DestroyingContext(const DestroyingContext&) = delete;
    DestroyingContext& operator=(const DestroyingContext&) = delete;

 private:
    Membership* membership_;
    int ending_[1 + Membership::kMostLanes];
};

// Around the driver's call that gives a primary context back: its streams are forgotten if that ended it.
class ReleasingPrimary {
 public:
    explicit ReleasingPrimary(CUdevice device);
    ~ReleasingPrimary();
    ReleasingPrimary(const ReleasingPrimary&) = delete;
    ReleasingPrimary& operator=(const ReleasingPrimary&) = delete;

 private:
    Membership* membership_;
    PrimaryLife life_;
    NotCancelled with_the_lock_;
};

}  // namespace tenant
