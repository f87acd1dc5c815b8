// A limit of SMs that changes while the job runs. While one holds, kernels take a *detour*: a launch into a stream of
// the program goes into a stream of a green context that has so many SMs, its stand-in. Events keep the program's
// order:
//
//   launch      the stream is at home:  record in the stream, wait for that in the stand-in; the stream is away now
//               then:                   launch into the stand-in
//   all else    first the stream comes home: record in the stand-in, wait for that in the stream
//
// So the program's stream is at home whenever something but a kernel launch asks for it, and no function has to
// translate streams. All streams that are away come home before any such call, whichever stream it names: what the
// legacy stream waits for, what waits for it, and what a synchronous copy waits for is then right by itself. Each
// stream has a stand-in of its own, so that no stream waits for another one that it would not wait for without us.
//
// The detour lies below the hooks, between them and the driver (native/shim/detour_hooks.h): gates, marks of progress
// and the events of samples are calls like any other. Only processes that begin in a lower class have it: production's
// launches lead to the driver as they are.
//
// Threads. A launch holds the detour's lock while the driver has it. A call of another kind counts itself (`others`),
// then looks whether a stream is away; a launch that begins a detour says that its stream is away, then looks whether
// others are counted, and if so stays. So one of the two sees the other, and what a program puts into one stream from
// two threads still runs one after the other.
//
// A kernel that may rely on all of its blocks being on the GPU at once, and would not have them in fewer SMs, takes no
// detour: a barrier of the program's own would never be passed there.
#pragma once

#include "tenant/detour_places.h"
#include "tenant/kernel_profile.h"
#include "tenant/locked.h"

namespace tenant {

namespace detour {

// Around the driver's call for a kernel, in any phase but `off`.
class Departure {
 public:
    // `config`: of a launch that has one. `may_leave`: the launch has nothing about it that keeps it at home.
    Departure(CUstream stream, bool per_thread_default, const KernelSize& size, const CUlaunchConfig* config,
              bool may_leave);
    ~Departure();
    Departure(const Departure&) = delete;
    Departure& operator=(const Departure&) = delete;

    // The stand-in; null: it stays in its own stream.
    CUstream stand_in() const { return stand_in_; }
    // The driver would not launch it there, and so has not: it stays.
    void fails();

 private:
    CUstream stand_in_ = nullptr;
    int place_ = -1;
    int gpu_ = -1;
    NotCancelled with_the_lock_;
};

void bring_home();

// Around a call that puts something into a stream, or the order of streams, and is no kernel launch.
class AtHome {
 public:
    AtHome() {
        others.fetch_add(1);
        if (__builtin_expect(away.load() != 0, 0)) bring_home();
    }
    ~AtHome() { others.fetch_sub(1); }
    AtHome(const AtHome&) = delete;
    AtHome& operator=(const AtHome&) = delete;
};

// From now on no kernel takes a detour.
void give_up(Refusal why);

// Before the driver destroys a stream, or may end a device's primary context.
void forget(CUstream stream);
void forget(CUdevice device);
// cuStreamQuery as the tenant's own threads ask: no lock, nobody comes home.
CUresult CUDAAPI query(CUstream stream);

}  // namespace detour

}  // namespace tenant
