// What the hooks call. One tenant a process: it joins the segment at the first work it sees, counts, marks itself busy,
// and puts gates into its streams. On the launch path: no lock, no system call, no allocation.
#pragma once

#include <atomic>

#include "tenant/durations.h"
#include "tenant/streams.h"
#include "wire/segment.h"

namespace tenant {

class Membership;

enum class Kind : uint8_t { kernel, graph, copy, memory_op, host_call };

// Around every operation: construct before the driver is called, destroy after.
class Work {
   public:
    enum class Load : uint8_t { gpu, none };  // whether it occupies the GPU, and so needs the gate

    Work(Kind kind, Load load, Shape shape, CUstream stream, bool per_thread_default);
    ~Work();
    CUresult result(CUresult result);  // what the driver said
    Work(const Work&) = delete;
    Work& operator=(const Work&) = delete;

   private:
    void pass_gate(Membership& membership, StreamState& state, Shape shape);

    StreamState* state_ = nullptr;  // set while a class below has to wait for this
    StreamState* timed_in_ = nullptr;
    Samples::Sample* sample_ = nullptr;
};

// Around the driver's call that opens a capture: no helper thread is inside a stream call when it begins.
class OpeningCapture {
   public:
    OpeningCapture();
    ~OpeningCapture();
    OpeningCapture(const OpeningCapture&) = delete;
    OpeningCapture& operator=(const OpeningCapture&) = delete;

    CUresult result(CUresult result);

   private:
    Membership* membership_;
};
void ended_capture(CUstream stream, bool per_thread_default);

void forget_stream(CUstream stream);
void forget_context(CUcontext context);

// Around the driver's call that gives a primary context back: its streams are forgotten if that ended it.
class ReleasingPrimary {
   public:
    explicit ReleasingPrimary(CUdevice device);
    ~ReleasingPrimary();
    ReleasingPrimary(const ReleasingPrimary&) = delete;
    ReleasingPrimary& operator=(const ReleasingPrimary&) = delete;

   private:
    Membership* membership_;
    CUdevice device_;
    CUcontext context_ = nullptr;
};

void count_unknown_function();

}  // namespace tenant
