#include "tenant/memory/host_pool.h"

#include <sys/resource.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "tenant/driver_calls.h"
#include "tenant/found_once.h"
#include "wire/shared_segment.h"

namespace tenant {

namespace {

struct HostMemory {
    uint64_t all = 0, free = 0;
};

// 0: it has none, or is not there.
uint64_t number_in(const char* path) {
    unsigned long long number = 0;
    if (FILE* file = fopen(path, "re")) {
        if (fscanf(file, "%llu", &number) != 1) number = 0;
        fclose(file);
    }
    return number;
}

HostMemory memory_of_machine() {
    HostMemory memory;
    struct sysinfo about;
    if (sysinfo(&about) == 0)
        memory = {uint64_t{about.totalram} * about.mem_unit, uint64_t{about.freeram} * about.mem_unit};
    // A container's limit counts for less than the machine.
    if (uint64_t limit = number_in("/sys/fs/cgroup/memory.max")) {
        uint64_t used = number_in("/sys/fs/cgroup/memory.current");
        memory.all = std::min(memory.all, limit);
        memory.free = std::min(memory.free, limit - std::min(limit, used));
    }
    return memory;
}

// Where mapped memory is limited, used or not, the program may need what is left.
bool addresses_cost_nothing() {
    constexpr uint64_t kEachIsCounted = 2;
    if (number_in("/proc/sys/vm/overcommit_memory") == kEachIsCounted) return false;
    rlimit data{};
    return getrlimit(RLIMIT_DATA, &data) == 0 && data.rlim_cur == RLIM_INFINITY;
}

uint64_t pinned_by_all(wire::Segment& segment) {
    uint64_t sum = 0;
    if (wire::is_shared(segment)) wire::look_around(segment);
    for (int i = 0; i < wire::kSlots; ++i)
        if (wire::is_live(segment.slot(i))) sum += segment.slot(i).residence.host_pinned.load();
    return sum;
}

}  // namespace

uint64_t host_budget(const wire::Segment& segment) {
    static FoundOnce<uint64_t> quarter;
    uint64_t knob = segment.header.crowding.host_memory.load();
    return knob ? knob : quarter.get([] { return memory_of_machine().all / 4; });
}

bool HostPool::take_from_budget(uint64_t blocks) {
    wire::Count& pinned = slot_->residence.host_pinned;
    pinned.fetch_add(blocks * kBlock);
    if (pinned_by_all(*segment_) <= host_budget(*segment_)) return true;
    pinned.fetch_sub(blocks * kBlock);
    return false;
}

bool HostPool::make_room(uint64_t blocks) {
    if (blocks <= room_) return true;
    uint64_t room = std::max(blocks, room_ * 2);
    auto* larger = static_cast<char**>(realloc(blocks_, room * sizeof(char*)));
    if (!larger) return false;
    blocks_ = larger;
    room_ = room;
    return true;
}

bool HostPool::claim(uint64_t bytes, wire::Refusal* why) {
    uint64_t wanted = (bytes + kBlock - 1) / kBlock;
    if (wanted <= count_) return true;
    *why = wire::host_memory;
    if (!make_room(wanted)) return false;
    *why = wire::host_budget;
    if (!take_from_budget(wanted - count_)) return false;
    claimed_ = wanted - count_;
    fresh_.begin(static_cast<uint32_t>(claimed_ - std::min(claimed_, ready_)));
    return true;
}

char* HostPool::next_block() {
    if (!ready_) return fresh_.take();
    char* block = blocks_[count_ + --ready_];
    fresh_.have_pages(block);
    return block;
}

bool HostPool::add_block() {
    char* block = next_block();
    if (!block) return false;
    if (driver.cuMemHostRegister_v2(block, kBlock, CU_MEMHOSTREGISTER_PORTABLE) != CUDA_SUCCESS) {
        // It may be registered all the same; and these addresses may be another block's next.
        driver.cuMemHostUnregister(block);
        fresh_.give_up(block);
        return false;
    }
    blocks_[count_ + ready_] = blocks_[count_];
    blocks_[count_++] = block;
    --claimed_;
    return true;
}

bool HostPool::have(uint64_t bytes) {
    while (this->bytes() < bytes)
        if (!claimed_ || !add_block()) return false;
    return true;
}

void HostPool::settle() {
    fresh_.end();
    slot_->residence.host_pinned.fetch_sub(claimed_ * kBlock);
    claimed_ = 0;
}

bool HostPool::ready(uint64_t bytes) {
    uint64_t had = count_ + ready_;
    if (had * kBlock >= bytes || !make_room(had + 1)) return false;
    char* block = fresh_.make();
    if (!block) return false;
    if (!fresh_.offer_pages(block)) keep_none_ready();
    blocks_[had] = block;
    ++ready_;
    return true;
}

// The budget would allow for it, and a quarter of the machine's memory stays free: not used as a cache either.
bool HostPool::is_spare(uint64_t blocks) const {
    static FoundOnce<bool> costs_nothing;
    if (!keeps_ready_ || !costs_nothing.get(addresses_cost_nothing)) return false;
    uint64_t others = pinned_by_all(*segment_) - slot_->residence.host_pinned.load();
    HostMemory memory = memory_of_machine();
    return others + blocks * kBlock <= host_budget(*segment_) && memory.free >= memory.all / 4 + kBlock;
}

bool HostPool::ready_spare(uint64_t bytes) {
    if (!is_spare(count_ + ready_ + 1) || !ready(bytes)) return false;
    if (!keeps_ready_) fresh_.give_up(blocks_[count_ + --ready_]);
    return keeps_ready_;
}

bool HostPool::prepare(uint64_t bytes) {
    wire::Refusal why;
    uint64_t one_more = this->bytes() + kBlock;
    bool good = this->bytes() < bytes && claim(one_more, &why) && have(one_more);
    settle();
    return good;
}

void HostPool::shrink_to(uint64_t bytes) {
    while (ready_ > 0 && (count_ + ready_ - 1) * kBlock >= bytes) fresh_.give_up(blocks_[count_ + --ready_]);
    while (count_ > 0 && (count_ - 1) * kBlock >= bytes) {
        char* block = blocks_[count_ - 1];
        // What the driver would not let go stays ours, and counted.
        CUresult result = driver.cuMemHostUnregister(block);
        if (result != CUDA_SUCCESS && result != CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED) return;
        fresh_.give_up(block);
        --count_;
        slot_->residence.host_pinned.fetch_sub(kBlock);
    }
}

void HostPool::forget_in_child() {
    blocks_ = nullptr;
    count_ = ready_ = claimed_ = room_ = 0;
    segment_ = nullptr;
    slot_ = nullptr;
    fresh_.forget_in_child();
}

}  // namespace tenant
