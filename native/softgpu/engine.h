// The client's side of the software GPU: operations go to the device that all processes share, and their
// effects come back. Knows queues, order and modelled time; knows nothing of CUDA's objects.
//
//   submit ──> queue (in order) ──> device model in softgpud (all processes) ──> effect() here ──> done(op)
//
// An operation starts when its queue has reached it and every operation in `after` is done, both in modelled
// time, so a late wake-up of this process does not stretch the schedule. An effect runs on an engine thread after
// the operation's modelled end and before it counts as done; effects of one queue run in order.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "model/device_model.h"

namespace softgpu {

using QueueId = uint32_t;
using OpId = uint64_t;  // grows with each submission of an engine; 0 is "no operation" and always done

struct Timing {
    double start_us;  // modelled, on CLOCK_MONOTONIC
    double end_us;
};

// Moves the bytes. A non-zero result (a CUresult) becomes the engine's error, which sticks.
using Effect = std::function<int(const Timing&)>;

struct MemoryInfo {
    uint64_t free_bytes;
    uint64_t total_bytes;
};

struct ProcessUse {  // for NVML
    int pid;
    uint64_t bytes;
};

class EngineState;

// One connection of one context to one device. Every method may be called from any thread, but submissions not from
// effects: they may sleep until the queue has room. After an error, and in a forked child, submissions are dropped
// (the result is 0) and everything counts as done.
class Engine {
 public:
    // Starts the device's process (softgpud) where none runs. Null where that fails; `why` says it in a line.
    static std::unique_ptr<Engine> connect(int device_index, std::string* why);
    explicit Engine(std::shared_ptr<EngineState> state);
    // What is in flight is dropped, as when a context is destroyed; waits only for an effect that is just running, so
    // that no effect runs afterwards. Gives back what is still reserved.
    ~Engine();
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    QueueId open_queue(int priority);  // CUDA's order: lower is more urgent
    void close_queue(QueueId queue);   // what was submitted still completes

    OpId submit(QueueId queue, const model::Work& work, Effect effect, const std::vector<OpId>& after);
    // Ends when `until` returns true; it is polled on an engine thread (cheap, never blocking).
    OpId submit_wait(QueueId queue, std::function<bool()> until, const std::vector<OpId>& after);
    // Runs `call` on a thread of its own kind (it may block; calls of one engine run one after another).
    OpId submit_host(QueueId queue, std::function<void()> call, const std::vector<OpId>& after);

    bool done(OpId op);
    void wait(OpId op);        // sleeps; returns at once when the engine has an error
    OpId last(QueueId queue);  // the newest operation of a queue, 0 if none
    int error();               // a CUresult, 0 while all is well
    void fail(int result);     // makes the engine fail from now on: every wait ends

    // Device memory is accounted for the whole device. False: it would not fit.
    bool reserve(uint64_t bytes);
    void release(uint64_t bytes);
    MemoryInfo memory();
    std::vector<ProcessUse> processes();

 private:
    std::shared_ptr<EngineState> state_;
};

}  // namespace softgpu
