// The GPU's addresses of this tenant's gates and progress words.
//
// When a context ends, memory that was registered in it is unregistered for every context, and a stream of another
// context that waits there is lost with everything that its context has queued. So each context has its own mappings of
// the same pages, registered in it: what ends with a context, only its own streams have used.
#pragma once

#include "tenant/progress.h"
#include "wire/wire.h"

namespace tenant {

class GpuPages {
 public:
    struct Addresses {
        CUdeviceptr slot = 0;   // 0: the driver would not, or these are too many contexts
        CUdeviceptr words = 0;  // 0: there are none
    };

    // Of the current context, registered at the first call. Under the tenant's lock, as is what follows.
    Addresses of(CUcontext current, wire::Slot& slot, Progress& progress);
    // Around the end of a context, which may take as long as a closed gate: from the first on its handle may mean
    // another context, but its mappings are not another's before the second. None: it has no number.
    static constexpr int kNone = -1;
    int begin_end_of(CUcontext context);
    void complete_end(int number);
    CUresult refusal() const { return refusal_; }  // what the driver said when it would not

 private:
    static constexpr int kContexts = 64;
    struct Mapped {
        CUcontext context = nullptr;
        bool is_taken = false;  // by its context, also while that ends
        void *slot = nullptr, *words = nullptr;
        Addresses addresses;
    };
    CUdeviceptr map(void** mapping, void* pages, size_t bytes);

    Mapped mapped_[kContexts];
    CUresult refusal_ = CUDA_SUCCESS;
};

}  // namespace tenant
