#include "tenant/memory/fresh_blocks.h"

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "tenant/own_thread.h"

namespace tenant {

namespace {

constexpr uint64_t kHugePage = uint64_t{2} << 20;
constexpr uint32_t kMostHelpers = 8, kBlocksAHelper = 4;

uint32_t helpers_for(uint32_t blocks) {
    cpu_set_t ours;
    uint32_t processors = sched_getaffinity(0, sizeof ours, &ours) == 0 ? CPU_COUNT(&ours) : 1;
    return std::min({processors / 2, blocks / kBlocksAHelper, kMostHelpers});
}

char* next_of(const char* block) {
    char* next;
    memcpy(&next, block, sizeof next);
    return next;
}

}  // namespace

char* FreshBlocks::make() const {
    void* mapped = mmap(nullptr, block_bytes_ + kHugePage, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) return nullptr;
    auto start = reinterpret_cast<uint64_t>(mapped), base = (start + kHugePage - 1) / kHugePage * kHugePage;
    if (base > start) munmap(mapped, base - start);
    if (uint64_t rest = start + kHugePage - base) munmap(reinterpret_cast<void*>(base + block_bytes_), rest);
    auto* block = reinterpret_cast<char*>(base);
    madvise(block, block_bytes_, MADV_HUGEPAGE);
    // A fork would part the pages that the GPU writes from those that we know.
    madvise(block, block_bytes_, MADV_DONTFORK);
    madvise(block, block_bytes_, MADV_DONTDUMP);
    // One by one: populating many at once keeps every thread that maps memory waiting, the other helpers too.
    for (uint64_t at = 0; at < block_bytes_; at += 4096) static_cast<volatile char*>(block)[at] = 0;
    return block;
}

void FreshBlocks::give_up(char* block) const { munmap(block, block_bytes_); }

// One of those that are to be made; the lock is held, but not meanwhile.
char* FreshBlocks::make_counted() {
    --to_make_;
    ++in_making_;
    lock_.unlock();
    char* block = make();
    lock_.lock();
    --in_making_;
    if (!block) to_make_ = 0;
    return block;
}

void FreshBlocks::help() {
    Locked locked(lock_);
    while (to_make_) {
        if (char* block = make_counted()) {
            memcpy(block, &ready_, sizeof ready_);
            ready_ = block;
        }
        pthread_cond_broadcast(&changed_);
    }
    --helpers_;
    pthread_cond_broadcast(&changed_);
}

void* FreshBlocks::helper_main(void* self) {
    pthread_setname_np(pthread_self(), "cotenant-pages");
    static_cast<FreshBlocks*>(self)->help();
    return nullptr;
}

void FreshBlocks::begin(uint32_t count) {
    Locked locked(lock_);
    to_make_ = count;
    for (uint32_t i = helpers_for(count); i; --i)
        if (start_own_thread(helper_main, this)) ++helpers_;
}

char* FreshBlocks::take() {
    Locked locked(lock_);
    while (!ready_ && !to_make_ && in_making_) lock_.wait(changed_);
    if (ready_) {
        char* block = ready_;
        ready_ = next_of(block);
        return block;
    }
    return to_make_ ? make_counted() : nullptr;
}

void FreshBlocks::end() {
    Locked locked(lock_);
    to_make_ = 0;
    while (helpers_) lock_.wait(changed_);
    while (ready_) {
        char* block = ready_;
        ready_ = next_of(block);
        give_up(block);
    }
}

void FreshBlocks::forget_in_child() {
    // Threads and blocks stay with the parent.
    lock_.renew();
    pthread_cond_init(&changed_, nullptr);
    ready_ = nullptr;
    to_make_ = in_making_ = helpers_ = 0;
}

}  // namespace tenant
