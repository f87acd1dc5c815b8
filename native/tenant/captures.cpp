#include "tenant/captures.h"

#include <new>

namespace tenant {

void Captures::add(StreamKey stream, CUcontext context) {
    // A stream captures once at a time: an earlier one that is still here has ended unseen.
    remove(find(stream));
    auto* open = new (std::nothrow) Open{++last_number_, stream, context, first_};
    if (!open) return;
    first_ = open;
    count_.fetch_add(1, std::memory_order_release);
}

uint64_t Captures::find(StreamKey stream) const {
    for (const Open* open = first_; open; open = open->next)
        if (open->stream == stream) return open->number;
    return 0;
}

template <class Is>
void Captures::remove_if(Is&& is) {
    for (Open** place = &first_; Open* open = *place;) {
        if (!is(*open)) {
            place = &open->next;
            continue;
        }
        *place = open->next;
        delete open;
        count_.fetch_sub(1, std::memory_order_release);
    }
}

void Captures::remove(uint64_t number) {
    remove_if([&](const Open& open) { return open.number == number; });
}

void Captures::remove_all_of(CUcontext context) {
    remove_if([&](const Open& open) { return open.context == context; });
}

}  // namespace tenant
