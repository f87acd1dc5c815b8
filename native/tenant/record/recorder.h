// Records what a process puts on its GPUs into the trace file that COTENANT_RECORD names. Without COTENANT_RECORD no
// path contains any of this: the hooks that call it are not installed (native/shim/record_hooks.cpp).
//
// The launch path looks up the operation's shape and stream and puts it into a ring; the recorder's thread encodes and
// writes it. What does not fit into the ring is dropped and counted. A failure ends the recording, never the job.
#pragma once

#include "tenant/durations.h"
#include "tenant/locked.h"
#include "tenant/primary_life.h"
#include "tenant/record/tables.h"

namespace tenant {

// Driver functions that are good to have; null where the driver has none. Set before anything is recorded.
struct RecorderCalls {
    CUresult (*cuFuncGetName)(const char**, CUfunction);
    CUresult (*cuKernelGetName)(const char**, void*);
    CUresult (*cuOccupancyMaxActiveBlocksPerMultiprocessor)(int*, CUfunction, int, size_t);
    CUresult (*cuFuncGetAttribute)(int*, CUfunction_attribute, CUfunction);
    CUresult (*cuKernelGetAttribute)(int*, CUfunction_attribute, void*, CUdevice);
    CUresult (*cuPointerGetAttribute)(void*, CUpointer_attribute, CUdeviceptr);
    CUresult (*cuDeviceGetName)(char*, int, CUdevice);
    CUresult (*cuDeviceGetAttribute)(int*, CUdevice_attribute, CUdevice);
    CUresult (*cuDeviceTotalMem_v2)(size_t*, CUdevice);
    CUresult (*cuDriverGetVersion)(int*);
};
extern RecorderCalls recorder_calls;

// A call, as its hook describes it.
struct Described {
    TraceKind kind = TraceKind::kernel;
    Direction direction = Direction::unknown;
    bool blocks = false;         // it returns when its work is done
    bool is_in_stream = true;    // it is ordered by a stream, and could be captured
    const void* what = nullptr;  // the kernel's function, the graph's exec
    unsigned int grid[3] = {}, block[3] = {}, shared_bytes = 0;
    uint64_t bytes = 0;
};

class Recorder {
 public:
    // Null: nothing is recorded (any more). The first work of a process with a context starts it.
    static Recorder* current() {
        Recorder* on = on_.load(std::memory_order_acquire);
        return __builtin_expect(on != nullptr, 1) ? on : start();
    }
    static Recorder* current_if_on() { return on_.load(std::memory_order_acquire); }

    RecordedStream* stream_of(CUstream* stream, bool per_thread_default, CUcontext context);
    RecordedShape* shape_of(const Described& described, bool* is_new);
    // `exists`: the driver knows what was named, so it may be asked about it.
    void describe(RecordedShape& shape, const Described& described, int gpu, bool exists);
    void put(const RecordedOperation& operation) {
        if (!ring_.put(operation)) lost_.fetch_add(1, std::memory_order_relaxed);
    }

    // The call's operation shall be timed; null: no pair of events is free.
    OpTimer::Sample* begin_timing(RecordedShape* shape, CUcontext context, CUstream stream);

    void saw_graph(CUgraphExec exec, CUgraph graph);
    void saw_allocation(uint64_t address, uint64_t bytes);
    uint64_t take_allocation(uint64_t address);
    void saw_unload() { functions_generation_.fetch_add(1); }
    // Around the end of a context: its events go with it, and nobody may ask for one meanwhile.
    void lock_events() { events_lock_.lock(); }
    void unlock_events() { events_lock_.unlock(); }

    OpTimer timer;

    static void forget_in_child();

 private:
    static Recorder* start();
    static void finish_at_exit();
    static void* thread_main(void* self);

    bool start_thread();
    void run();
    void note_facts();
    void write_fact(const char* key, const char* value);
    void write_breakdown();
    void note_gpu(CUdevice device);
    void collect_times();
    void drain(bool for_good);
    bool is_written_down(const RecordedOperation& operation, bool for_good);
    void write_gpu(int number);
    void write_stream(RecordedStream& stream);
    void write_shape(RecordedShape& shape);
    uint32_t write_name(const char* name, uint32_t length);
    void write_record(char tag);
    void write_timings();
    void write_block();
    void finish(const char* why);
    void stop(const char* problem);
    unsigned int sms_filled(uint64_t blocks, unsigned int blocks_per_sm, int gpu) const;

    static constexpr uint32_t kShapes = 16384, kStreams = 4096, kGpus = 32, kNames = 32768;
    static constexpr uint32_t kNameBytes = 4 << 20, kLongestName = 1024;
    static constexpr uint32_t kOverflowing = static_cast<uint32_t>(TraceKind::free) + 1;

    static std::atomic<Recorder*> on_;
    // What a thread remembers of an earlier recorder, before a fork, is not true any more.
    static std::atomic<uint32_t> epoch_;

    Ring<RecordedOperation, 65536> ring_;
    KeyedTable<RecordedShape, kShapes> shapes_;
    RecordedShape overflow_[kOverflowing];  // for what has no place in the table, one a kind
    KeyedTable<RecordedStream, kStreams> streams_;
    RecordedGpu gpus_[kGpus];
    std::atomic<uint64_t> lost_{0};
    std::atomic<uint32_t> functions_generation_{0};
    std::atomic<uint32_t> name_bytes_used_{0};
    char name_bytes_[kNameBytes];
    Lock events_lock_{Rank::recorded_events};
    Lock sizes_lock_{Rank::recorded_sizes};
    AllocationSizes sizes_;
    std::atomic<uint32_t> leaving_{0}, done_{0};

    // The thread's own.
    TraceFile file_;
    OperationCoder coder_;
    Bytes payload_, body_;
    RecordedShape* numbered_[kShapes + kOverflowing];
    uint32_t shape_count_ = 0, stream_count_ = 0, name_count_ = 0;
    struct {
        uint64_t hash;
        uint32_t number;
    } names_[kNames] = {};
    uint64_t lost_written_ = 0, last_write_ns_ = 0, limit_bytes_ = 0, stop_at_ns_ = 0;
    bool is_over_ = false;
};

// Around every recorded call. Nothing is recorded of a call that failed, or that only became a part of a graph.
class RecordedCall {
 public:
    RecordedCall(const Described& described, CUstream stream, bool per_thread_default);
    RecordedCall(const RecordedCall&) = delete;
    RecordedCall& operator=(const RecordedCall&) = delete;

    CUresult result(CUresult result) {
        if (recorder_) note(result == CUDA_SUCCESS);
        return result;
    }

 private:
    void note(bool succeeded);

    Recorder* recorder_;
    const Described described_;
    CUstream handle_;
    RecordedStream* stream_ = nullptr;
    RecordedShape* shape_ = nullptr;
    OpTimer::Sample* sample_ = nullptr;
    bool is_first_ = false, is_new_shape_ = false;
    uint64_t begun_ns_ = 0;
};

// Around the driver's call that may end a context.
class EndingContext {
 public:
    explicit EndingContext(CUcontext context);  // it ends
    explicit EndingContext(CUdevice device);    // the device's primary context, if this was its last user
    ~EndingContext();
    EndingContext(const EndingContext&) = delete;
    EndingContext& operator=(const EndingContext&) = delete;

 private:
    Recorder* recorder_;
    PrimaryLife life_;
    NotCancelled with_the_lock_;
};

// Which way a copy between two addresses goes.
Direction direction_between(CUdeviceptr to, CUdeviceptr from);

}  // namespace tenant
