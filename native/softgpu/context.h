// Contexts, and each thread's stack of them.
#pragma once

#include <atomic>
#include <mutex>

#include "softgpu/driver.h"
#include "softgpu/registry.h"

namespace softgpu {

struct Stream;
using StreamRef = std::shared_ptr<Stream>;

struct GreenContext {
    CUgreenCtx handle = nullptr;
    CUcontext context = nullptr;  // its handle as a context; the object behind it is the primary context
    CUcontext primary = nullptr;
    CUdevice device = 0;
    int sms = 0;  // of the device's, its own
    std::atomic<bool> destroyed{false};
};
using GreenRef = std::shared_ptr<GreenContext>;

struct Context {
    CUcontext handle = nullptr;
    CUdevice device = 0;
    bool primary = false;
    std::atomic<bool> destroyed{false};
    StreamRef legacy;  // set once, when the context is made

    std::mutex mutex;                // guards what follows; never held while waiting
    std::vector<StreamRef> streams;  // all open ones but the legacy one
    std::vector<OpId> closing;       // the newest operation of each destroyed stream, while it may still run
    QueueId records = 0;             // what cuCtxRecordEvent records in; 0: not yet opened

    // Last, so that it goes first: what it still runs refers to the rest.
    std::unique_ptr<Engine> engine;
};

// CUDA_SUCCESS for a live context without a sticky error.
CUresult check_context(Context& context);
Registry<Context, CUcontext>& contexts();
GreenRef green_of(CUcontext context);  // null: it is no green context's

// The calling thread's stack. Holds handles, so that a context destroyed elsewhere is found out when it is used.
bool push_context(CUcontext context);
CUcontext pop_context();
CUcontext top_context();
void set_context(CUcontext context);  // replaces the top; null pops

// Another context is current within a scope; null leaves it as it is.
class ScopedContext {
 public:
    explicit ScopedContext(CUcontext context) : pushed_(context && push_context(context)) {}
    ~ScopedContext() {
        if (pushed_) pop_context();
    }
    ScopedContext(const ScopedContext&) = delete;
    ScopedContext& operator=(const ScopedContext&) = delete;

 private:
    bool pushed_;
};

}  // namespace softgpu
