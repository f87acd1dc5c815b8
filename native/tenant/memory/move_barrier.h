// The move barrier stops the program's threads while its memory moves: they wait at the entry of every call that would
// use the memory, and hold no lock there, neither ours nor the driver's.
//
// A Still exists during every such call. The mover raises the barrier, then waits until no thread is inside; a thread
// counts itself in, then looks at the barrier: so one of the two sees the other.
#pragma once

#include <atomic>
#include <cstdint>

namespace tenant {

// While one exists, the memory of this process does not move.
class Still {
 public:
    Still() {
        if (__builtin_expect(memory_moves.load(std::memory_order_relaxed), 0)) enter();
    }
    ~Still() {
        if (entered_) leave();
    }
    Still(const Still&) = delete;
    Still& operator=(const Still&) = delete;

    // The process ends, and what it had on the GPU is not there any more: what would use it must not be called.
    bool is_too_late() const { return entered_ && too_late(); }

    static std::atomic<bool> memory_moves;  // decided before the first call of this kind

 private:
    void enter();
    void leave();
    static bool too_late();

    bool entered_ = false;
};

// While one exists, its thread is not counted as inside: it waits for something that moving may bring about.
class Outside {
 public:
    Outside();
    ~Outside();  // waits while the barrier is up
    Outside(const Outside&) = delete;
    Outside& operator=(const Outside&) = delete;

    // False: the barrier is up, and it is still outside.
    bool end_if_down();

 private:
    uint32_t depth_;
};

namespace move_barrier {

// Raises it. False: a thread was still inside after `patience_ns`, and it is down again.
bool raise(uint64_t patience_ns);
void lower();
// For good: waiting threads go on, and are too late.
void lower_at_exit();

}  // namespace move_barrier

}  // namespace tenant
