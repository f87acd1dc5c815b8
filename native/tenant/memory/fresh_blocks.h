// Blocks of host memory whose pages are there already. A few threads make them at once, for a moment only: to clear
// pages takes one thread longer than to copy over them. Without a second processor, or thread, the taker makes its own.
#pragma once

#include <cstdint>

#include "tenant/locked.h"

namespace tenant {

class FreshBlocks {
 public:
    constexpr explicit FreshBlocks(uint64_t block_bytes) : block_bytes_(block_bytes) {}

    char* make() const;
    void give_up(char* block) const;

    // Those that will be taken, at most so many. Ends with `end`, which gives up the others.
    void begin(uint32_t count);
    char* take();  // nullptr: there is no memory
    void end();

    void forget_in_child();

 private:
    static void* helper_main(void* self);
    void help();
    char* make_counted();

    uint64_t block_bytes_;
    Lock lock_{Rank::fresh_blocks};  // of what follows
    pthread_cond_t changed_ = PTHREAD_COND_INITIALIZER;
    char* ready_ = nullptr;  // each begins with the address of the next
    uint32_t to_make_ = 0, in_making_ = 0, helpers_ = 0;
};

}  // namespace tenant
