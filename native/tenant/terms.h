// What this tenant says of itself in its slot, kept in the process: the watcher, which alone changes it, writes it
// again where it was overwritten.
#pragma once

#include "wire/segment.h"

namespace tenant {

// Of a lane (lanes.h), as the program states them.
struct LaneTerms {
    uint32_t tenant_class = wire::standard, weight = 1000, slowdown = 0, floor = 0;
    char name[32] = {};
    uint32_t number = 0;  // among the lanes of its process, from 1; given when it is opened
};

struct Terms {
    uint32_t tenant_class = wire::standard, weight = 1000, slowdown = 0, floor = 0;
    uint8_t run_id[16] = {};
    char name[sizeof wire::Slot::name] = {};
    char job[sizeof wire::Slot::job] = {};
    uint64_t mps_daemon = 0;
    uint32_t lane = 0;  // its number; 0: the process's own
    uint32_t sms = 0;   // thousandths of a GPU's SMs that its kernels get; 0: all

    // From the environment; all but the class, which others see once the rest of the slot is there. A lane's job is
    // named JOB/LANE and has an id of its own, which is the same for all processes of the run.
    void introduce(wire::Slot& slot, const LaneTerms* lane);
    void mend(wire::Segment& segment, int index) const;

 private:
    void become(const LaneTerms& lane);
};

}  // namespace tenant
