// Owning a slot: one futex word in shared memory, which the kernel marks FUTEX_OWNER_DIED however its owner ends.
//
// The kernel finds the words of a thread that ends by the thread's robust list (set_robust_list). We register a list of
// our own, with one entry, for the thread that takes the word: head and entry lie in memory of this process alone, and
// the list's one offset leads from the entry to the word. So neither the kernel nor the C library follows anything that
// another process could write. The thread must hold no robust mutex of the C library meanwhile.
//
// Where the kernel takes no such list (qemu-user has none) a tenant takes part all the same: when it dies, its
// heartbeat grows old and its process is gone, and by that it is reaped (segment.h).
#pragma once

#include <linux/futex.h>
#include <sys/types.h>

#include "wire/wire.h"

namespace wire {

// One for each segment that a process has open. A thread that takes a second slot there has no mark for it.
struct Hold {
    std::atomic<pid_t> thread;  // whose list is registered; 0: none
    robust_list_head head;
    robust_list entry;
    robust_list_head* before;  // the C library's, registered again when the word is given back
    size_t before_bytes;
};

// Takes the word for the calling thread, unless a living thread has it.
bool take_owner(Hold& hold, Flag& word);
// Gives it back, if it is the calling thread's.
void leave_owner(Hold& hold, Flag& word);
// Whether the word is the calling thread's; takes it again if it was overwritten with a value that is no living
// thread's.
bool keep_owner(Flag& word);
// Overwrites the word, whatever is there.
void seize_owner(Flag& word);

// For a process that reaps a slot: as take_owner and leave_owner, for a moment in between. The kernel marks the word
// again if the thread ends amid it. False: another process has it.
class Reaping {
 public:
    // `seen`: what the word held when its owner was found dead.
    Reaping(Hold& hold, Flag& word, uint32_t seen);
    ~Reaping();
    Reaping(const Reaping&) = delete;
    Reaping& operator=(const Reaping&) = delete;

    explicit operator bool() const { return has_; }

 private:
    Flag& word_;
    robust_list_head own_;
    robust_list_head* list_;
    robust_list_head* before_ = nullptr;
    size_t before_bytes_ = 0;
    bool has_;
};

}  // namespace wire
