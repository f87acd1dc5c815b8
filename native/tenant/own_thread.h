// A thread of our own inside the program: no signal of the program is delivered to it, and nobody joins it. It calls
// the driver, so it has room for that even where the program's threads have little (`ulimit -s`).
#pragma once

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

#include "wire/clock.h"
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

// What `find` finds, on a thread of our own: for libraries that may need more of a stack than a thread of the program
// has. The caller waits, but not for ever: the library may wait in turn for a lock that the caller holds, such as the
// loader's while a library's constructor runs. Nothing: too late, or no thread can be started.
constexpr uint64_t kLongestErrandNs = 1000000000;

template <class Find>
auto find_on_own_thread(Find find) -> decltype(find()) {
    struct Errand {
        Find find;
        decltype(find()) found;
        std::atomic<uint32_t> done{0}, owners{2};
        void leave() {
            if (owners.fetch_sub(1) == 1) delete this;
        }
    };
    auto main = [](void* argument) -> void* {
        auto* errand = static_cast<Errand*>(argument);
        errand->found = errand->find();
        errand->done.store(1);
        wire::wake_here(errand->done);
        errand->leave();
        return nullptr;
    };
    auto* errand = new (std::nothrow) Errand{std::move(find), {}};
    if (!errand) return {};
    if (!start_own_thread(main, errand)) {
        delete errand;
        return {};
    }
    uint64_t end_ns = wire::now_ns() + kLongestErrandNs;
    for (uint64_t now_ns = wire::now_ns(); !errand->done.load() && now_ns < end_ns; now_ns = wire::now_ns())
        wire::wait_here(errand->done, 0, end_ns - now_ns);
    decltype(find()) found{};
    if (errand->done.load()) found = errand->found;
    errand->leave();
    return found;
}

}  // namespace tenant
