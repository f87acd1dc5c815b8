// Lists of listeners: a room announces an event, and other rooms listen, without being known to it. A listener puts its
// entry into a section of the library, and the linker makes one array of each section: a list is complete as soon as
// the library is loaded, whatever constructors have run. An announcement takes no lock and no memory.
//
// A list has an entry type, and an enum of steps, which is the order in which the listeners are told:
//
//     struct Ended { EndStep step; void (*act)(CUcontext); };
//     LISTENERS(Ended)                                  // in the announcer's header; the last step is kSteps
//     LISTEN(Ended, EndStep::ledger, give_back_all_of)  // in the listener's source
//     tell<Ended>([&](const Ended& one) { one.act(context); });
#pragma once

namespace tenant {

template <class Entry>
struct Listeners;  // first(), end()

// Linkers other than GNU's drop a section that nothing but its bounds refers to.
#ifdef __clang__
#define LISTENERS_KEPT __attribute__((used, retain))
#else
#define LISTENERS_KEPT __attribute__((used))
#endif

#define LISTENERS(Entry)                                                                                  \
    extern "C" __attribute__((weak, visibility("hidden"))) const Entry* const __start_cotenant_##Entry[]; \
    extern "C" __attribute__((weak, visibility("hidden"))) const Entry* const __stop_cotenant_##Entry[];  \
    template <>                                                                                           \
    struct Listeners<Entry> {                                                                             \
        static const Entry* const* first() { return __start_cotenant_##Entry; }                           \
        static const Entry* const* end() { return __stop_cotenant_##Entry; }                              \
    };

#define LISTEN(Entry, ...)                                                                             \
    constexpr Entry listener_##Entry{__VA_ARGS__};                                                     \
    LISTENERS_KEPT __attribute__((section("cotenant_" #Entry))) const Entry* const listening_##Entry = \
        &listener_##Entry;

template <class Entry, class Act>
void tell_at(int step, Act&& act) {
    for (const Entry* const* at = Listeners<Entry>::first(); at != Listeners<Entry>::end(); ++at)
        if (static_cast<int>((*at)->step) == step) act(**at);
}

template <class Entry, class Act>
void tell(Act&& act) {
    for (int step = 0; step < static_cast<int>(decltype(Entry::step)::kSteps); ++step) tell_at<Entry>(step, act);
}

}  // namespace tenant
