// A thread of our own inside the program: no signal of the program is delivered to it, and nobody joins it. It calls
// the driver, so it has room for that even where the program's threads have little (`ulimit -s`).
#pragma once

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "wire/sleep.h"

namespace tenant {

constexpr size_t kLeastStack = size_t{1} << 20;

inline bool start_own_thread(void* (*main)(void*), void* argument) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    size_t stack = 0;
    if (pthread_attr_getstacksize(&attributes, &stack) || stack < kLeastStack)
        pthread_attr_setstacksize(&attributes, kLeastStack);
    pthread_t thread;
    bool started = pthread_create(&thread, &attributes, main, argument) == 0;
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return started;
}

// Where a library is called that may need more of a stack than a thread of the program has: on a thread of our own,
// for which the caller waits. False: no thread can be started.
template <class Act>
bool act_on_own_thread(Act&& act) {
    struct Errand {
        Act& act;
        std::atomic<uint32_t> done{0};
    } errand{act};
    auto main = [](void* argument) -> void* {
        auto& errand = *static_cast<Errand*>(argument);
        errand.act();
        errand.done.store(1);
        wire::wake_here(errand.done);
        return nullptr;
    };
    if (!start_own_thread(main, &errand)) return false;
    while (!errand.done.load()) wire::wait_here(errand.done, 0, 100000000);
    return true;
}

}  // namespace tenant
