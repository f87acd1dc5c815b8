#include "tenant/memory/host_pool.h"

#include <sys/mman.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "tenant/driver_calls.h"
#include "wire/shared_segment.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace tenant {

namespace {

constexpr uint64_t kHugePage = uint64_t{2} << 20;

uint64_t memory_of_machine() {
    struct sysinfo about;
    uint64_t bytes = sysinfo(&about) == 0 ? uint64_t{about.totalram} * about.mem_unit : 0;
    // A container's limit counts for less than the machine.
    if (FILE* file = fopen("/sys/fs/cgroup/memory.max", "re")) {
        unsigned long long limit = 0;
        if (fscanf(file, "%llu", &limit) == 1 && limit > 0) bytes = std::min<uint64_t>(bytes, limit);
        fclose(file);
    }
    return bytes;
}

uint64_t pinned_by_all(wire::Segment& segment) {
    uint64_t sum = 0;
    if (wire::is_shared(segment)) wire::look_around(segment);
    for (int i = 0; i < wire::kSlots; ++i)
        if (wire::is_live(segment.slot(i))) sum += segment.slot(i).residence.host_pinned.load();
    return sum;
}

char* map_block() {
    void* mapped = mmap(nullptr, HostPool::kBlock + kHugePage, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) return nullptr;
    auto start = reinterpret_cast<uint64_t>(mapped), base = (start + kHugePage - 1) / kHugePage * kHugePage;
    if (base > start) munmap(mapped, base - start);
    if (uint64_t rest = start + kHugePage - base) munmap(reinterpret_cast<void*>(base + HostPool::kBlock), rest);
    auto* block = reinterpret_cast<char*>(base);
    madvise(block, HostPool::kBlock, MADV_HUGEPAGE);
    // A fork would part the pages that the GPU writes from those that we know.
    madvise(block, HostPool::kBlock, MADV_DONTFORK);
    if (madvise(block, HostPool::kBlock, MADV_POPULATE_WRITE) != 0)
        for (uint64_t at = 0; at < HostPool::kBlock; at += 4096) block[at] = 0;
    return block;
}

}  // namespace

uint64_t host_budget(const wire::Segment& segment) {
    static const uint64_t quarter = memory_of_machine() / 4;
    uint64_t knob = segment.header.crowding.host_memory.load();
    return knob ? knob : quarter;
}

bool HostPool::take_from_budget() {
    wire::Count& pinned = slot_->residence.host_pinned;
    pinned.fetch_add(kBlock);
    if (pinned_by_all(*segment_) <= host_budget(*segment_)) return true;
    pinned.fetch_sub(kBlock);
    return false;
}

void HostPool::touch_block() {
    if (!touched_) touched_ = map_block();
}

bool HostPool::add_block(wire::Refusal* why) {
    *why = wire::host_memory;
    if (count_ == room_) {
        uint64_t room = room_ ? room_ * 2 : 64;
        auto* blocks = static_cast<char**>(realloc(blocks_, room * sizeof(char*)));
        if (!blocks) return false;
        blocks_ = blocks;
        room_ = room;
    }
    if (!take_from_budget()) {
        *why = wire::host_budget;
        return false;
    }
    touch_block();
    char* block = touched_;
    touched_ = nullptr;
    if (block && driver.cuMemHostRegister_v2(block, kBlock, CU_MEMHOSTREGISTER_PORTABLE) == CUDA_SUCCESS) {
        blocks_[count_++] = block;
        return true;
    }
    if (block) {
        // It may be registered all the same; and these addresses may be another block's next.
        driver.cuMemHostUnregister(block);
        munmap(block, kBlock);
    }
    slot_->residence.host_pinned.fetch_sub(kBlock);
    return false;
}

bool HostPool::hold(uint64_t bytes, wire::Refusal* why) {
    while (this->bytes() < bytes)
        if (!add_block(why)) return false;
    return true;
}

bool HostPool::prepare(uint64_t bytes) {
    wire::Refusal why;
    return this->bytes() < bytes && add_block(&why);
}

void HostPool::shrink_to(uint64_t bytes) {
    if (touched_) munmap(touched_, kBlock);
    touched_ = nullptr;
    while (count_ > 0 && (count_ - 1) * kBlock >= bytes) {
        char* block = blocks_[count_ - 1];
        // What the driver would not let go stays ours, and counted.
        CUresult result = driver.cuMemHostUnregister(block);
        if (result != CUDA_SUCCESS && result != CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED) return;
        munmap(block, kBlock);
        --count_;
        slot_->residence.host_pinned.fetch_sub(kBlock);
    }
}

}  // namespace tenant
