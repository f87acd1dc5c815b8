#include "wire/owner.h"

#include <sys/syscall.h>
#include <unistd.h>

// A process may be killed between any two stores: tests define this to be killed at each place in turn.
#ifndef FAULT_POINT
#define FAULT_POINT()
#endif

namespace wire {

namespace {

uint32_t own_thread() { return static_cast<uint32_t>(syscall(SYS_gettid)); }

bool use_list(robust_list_head* list, size_t bytes) { return syscall(SYS_set_robust_list, list, bytes) == 0; }

// The kernel reads the list when this thread ends: between two of its instructions, in whose order it must be right.
template <class Pointer>
void put(Pointer*& where, Pointer* what) {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    __atomic_store_n(&where, what, __ATOMIC_RELAXED);
    std::atomic_signal_fence(std::memory_order_seq_cst);
}

// The entry whose word this would be; it need not exist, for the kernel does not read the pending one.
robust_list* entry_of(const robust_list_head& list, Flag& word) {
    return reinterpret_cast<robust_list*>(reinterpret_cast<char*>(&word) - list.futex_offset);
}

bool exchange(Flag& word, uint32_t seen, uint32_t wanted) { return word.compare_exchange_strong(seen, wanted); }

bool register_list(Hold& hold, Flag& word, pid_t thread) {
    // In a forked child the thread that had it is not there.
    pid_t nobody = hold.thread.load();
    if (nobody && syscall(SYS_tgkill, getpid(), nobody, 0) == 0) return false;
    if (!hold.thread.compare_exchange_strong(nobody, thread)) return false;
    hold.head.list.next = &hold.head.list;
    hold.head.futex_offset = reinterpret_cast<char*>(&word) - reinterpret_cast<char*>(&hold.entry);
    hold.head.list_op_pending = &hold.entry;
    hold.entry.next = &hold.head.list;
    if (syscall(SYS_get_robust_list, 0, &hold.before, &hold.before_bytes) != 0) hold.before = nullptr;
    if (use_list(&hold.head, sizeof hold.head)) return true;
    hold.thread.store(0);
    return false;
}

void unregister_list(Hold& hold) {
    if (hold.before) use_list(hold.before, hold.before_bytes);
    hold.thread.store(0);
}

}  // namespace

bool take_owner(Hold& hold, Flag& word) {
    uint32_t self = own_thread(), seen = word.load();
    if (is_live(seen)) return false;
    bool is_marked = register_list(hold, word, static_cast<pid_t>(self));
    bool taken = exchange(word, seen, self);
    if (!is_marked) return taken;
    FAULT_POINT();
    if (taken) put(hold.head.list.next, &hold.entry);
    put<robust_list>(hold.head.list_op_pending, nullptr);
    if (!taken) unregister_list(hold);
    return taken;
}

void leave_owner(Hold& hold, Flag& word) {
    uint32_t self = own_thread();
    bool is_marked = hold.thread.load() == static_cast<pid_t>(self) && entry_of(hold.head, word) == &hold.entry;
    if (is_marked) {
        put(hold.head.list_op_pending, &hold.entry);
        put(hold.head.list.next, &hold.head.list);
    }
    FAULT_POINT();
    exchange(word, self, 0);
    FAULT_POINT();
    if (!is_marked) return;
    put<robust_list>(hold.head.list_op_pending, nullptr);
    unregister_list(hold);
}

bool keep_owner(Flag& word) {
    uint32_t self = own_thread(), seen = word.load();
    return seen == self || (!is_live(seen) && exchange(word, seen, self));
}

void seize_owner(Flag& word) { word.store(own_thread()); }

Reaping::Reaping(Hold& hold, Flag& word, uint32_t seen) : word_(word), own_{}, list_(&own_) {
    uint32_t self = own_thread();
    if (hold.thread.load() == static_cast<pid_t>(self)) {
        list_ = &hold.head;
    } else {
        own_.list.next = &own_.list;
        if (syscall(SYS_get_robust_list, 0, &before_, &before_bytes_) != 0 || !use_list(&own_, sizeof own_))
            before_ = nullptr;
    }
    put(list_->list_op_pending, entry_of(*list_, word_));
    has_ = exchange(word_, seen, self);
}

Reaping::~Reaping() {
    if (has_) exchange(word_, own_thread(), 0);
    put<robust_list>(list_->list_op_pending, nullptr);
    if (before_) use_list(before_, before_bytes_);
}

}  // namespace wire
