#include "tenant/memory/host_pool.h"

#include <algorithm>
#include <cstdlib>

#include "tenant/driver_calls.h"
#include "tenant/found_once.h"
#include "tenant/memory/host_memory.h"
#include "wire/segment.h"
#include "wire/shared_segment.h"

namespace tenant {

namespace {

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
    if (uint64_t knob = segment.header.crowding.host_memory.load()) return knob;
    uint64_t now = 0;
    uint64_t once = quarter.get([&now] {
        HostMemory memory = host_memory();
        now = memory.all / 4;
        return memory.is_known ? now : 0;
    });
    return once ? once : now;
}

bool HostPool::fits(uint64_t bytes) const {
    return pinned_by_all(*segment_) - slot_->residence.host_pinned.load() + bytes <= host_budget(*segment_);
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
    if (kept() >= bytes || !make_room(count_ + ready_ + 1)) return false;
    char* block = fresh_.make();
    if (!block) return false;
    if (!fresh_.offer_pages(block)) keep_none_ready();
    blocks_[count_ + ready_++] = block;
    return true;
}

// A quarter of it stays free. Files are opened for that, in somebody's program: not for every block.
uint64_t HostPool::spare_bytes() {
    uint64_t now = wire::now_ns();
    if (now - looked_ns_ > kBetweenLooksNs) {
        looked_ns_ = now;
        HostMemory memory = host_memory();
        spare_bytes_ = memory.free - std::min(memory.free, memory.all / 4);
    }
    return mappings_are_limited() ? 0 : spare_bytes_;
}

bool HostPool::ready_spare(uint64_t bytes) {
    if (!keeps_ready_ || kept() >= bytes || !fits(kept() + kBlock)) return false;
    if (spare_bytes() < kBlock || !ready(bytes)) return false;
    spare_bytes_ -= kBlock;
    if (!keeps_ready_) fresh_.give_up(blocks_[count_ + --ready_]);
    return keeps_ready_;
}

void HostPool::forget_what_was_taken() {
    for (uint64_t i = count_; i < count_ + ready_;)
        if (fresh_.has_pages(blocks_[i])) {
            ++i;
        } else {
            fresh_.give_up(blocks_[i]);
            blocks_[i] = blocks_[count_ + --ready_];
        }
}

void HostPool::touch_next() {
    if (ready_) fresh_.have_pages(blocks_[count_ + ready_ - 1]);
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
