// Reserves memory before the driver is called for it. A reservation charges ahead what the allocation could take,
// within the run's limit; where that does not fit, it frees deferred frees and trims unused pools, and then asks other
// tenants for space (space.h). After the driver's call it keeps what the driver took, or gives the charge back.
//
// A thread of a tenant whose memory is evicted waits before it charges anything: others could not use those bytes.
#pragma once

#include "tenant/memory/ledger.h"
#include "tenant/memory/move_barrier.h"
#include "tenant/memory/space.h"

namespace tenant {

class Reservation {
 public:
    explicit Reservation(uint64_t bytes) : Reservation(bytes, place_of_current_context()) {}
    Reservation(uint64_t bytes, const Place& place);
    ~Reservation();
    Reservation(const Reservation&) = delete;
    Reservation& operator=(const Reservation&) = delete;

    bool refused() const { return refused_; }
    const Place& place() const { return place_; }

    // Calls the driver, and again for as long as it has no memory and others can make space.
    template <class Call>
    CUresult call(Call&& call) {
        if (refused_) return CUDA_ERROR_OUT_OF_MEMORY;
        for (Need need(place_, bytes_);;) {
            CUresult result;
            {
                Still still;
                result = call();
            }
            if (result != CUDA_ERROR_OUT_OF_MEMORY || !place_ || !more_space(need)) return result;
        }
    }

    // The driver has taken it, under this address or handle.
    void keep(uint64_t key, uint64_t bytes, MemoryKind kind);
    // The caller has entered it in a table of its own.
    void kept() { charged_ = 0; }

 protected:
    Reservation() = default;
    bool charge(uint64_t bytes);

    Place place_;
    uint64_t bytes_ = 0, charged_ = 0;
    bool refused_ = false;

 private:
    static bool more_space(Need& need);

    Still still_;
    UnderWay under_way_;
};

// Of an allocation in stream order. What a growth of the pool could take is charged ahead.
class PoolReservation : public Reservation {
 public:
    PoolReservation(uint64_t bytes, CUmemoryPool pool, CUstream stream, bool per_thread_default);

    CUresult result(CUresult result, CUdeviceptr pointer);

 private:
    CUmemoryPool pool_;
    CUstream stream_;
    bool is_captured_ = false;
    bool from_stock_ = false;  // the limit leaves no space for the pool to grow
};

// Of what a launch of this graph allocates.
class GraphReservation : public Reservation {
 public:
    explicit GraphReservation(CUgraph graph);

    void keep_for(CUgraphExec exec);
};

}  // namespace tenant
