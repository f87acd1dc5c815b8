#include "tenant/memory/host_pool.h"

#include "tenant/context.h"
#include "tenant/lazy.h"
#include "tenant/memory/host_memory.h"
#include "wire/border.h"
#include "wire/shared_segment.h"

namespace tenant {

namespace {

constexpr uint64_t kMostCredible = uint64_t{1} << 46;  // of pinned memory; what is more is garbage

uint64_t pinned_by_all(wire::Segment& segment) {
    uint64_t sum = 0;
    if (wire::is_shared(segment)) wire::look_around(segment);
    for (int i = 0; i < wire::kSlots; ++i)
        if (uint64_t bytes = segment.slot(i).residence.host_pinned_bytes.load(); wire::is_live(segment.slot(i)))
            sum += bytes < kMostCredible ? bytes : 0;
    return sum;
}

// Where there is less the kernel would end a process, perhaps this one. Some of it stays for the program itself.
bool is_left(uint64_t bytes) {
    uint64_t left = host_memory().left;
    return bytes <= left - left / 8;
}

}  // namespace

uint64_t host_budget(const wire::Segment& segment) {
    static Lazy<uint64_t> found;
    if (uint64_t knob = wire::memory_knobs_of(segment.header).host_memory) return knob;
    HostMemory memory;
    uint64_t all = found.get([&] {
        memory = host_memory();
        return memory.is_known ? memory.bytes : 0;
    });
    return (all ? all : memory.bytes) / 4;
}

bool HostPool::fits(uint64_t bytes) const {
    if (bytes > this->bytes() && !is_left(bytes - this->bytes())) return false;
    return pinned_by_all(*segment_) - slot_->residence.host_pinned_bytes.load() + bytes <= host_budget(*segment_);
}

bool HostPool::take_from_budget(uint64_t blocks) {
    wire::Count& pinned = slot_->residence.host_pinned_bytes;
    pinned.fetch_add(blocks * kBlock);
    if (pinned_by_all(*segment_) <= host_budget(*segment_)) return true;
    pinned.fetch_sub(blocks * kBlock);
    return false;
}

bool HostPool::claim(uint64_t bytes, wire::Refusal* why) {
    uint64_t wanted = (bytes + kBlock - 1) / kBlock;
    if (wanted <= blocks_.count()) return true;
    *why = wire::host_memory;
    if (!blocks_.reserve(wanted)) return false;
    *why = wire::host_budget;
    uint64_t more = wanted - blocks_.count();
    if (!is_left(more * kBlock)) {
        *why = wire::host_memory;
        return false;
    }
    if (!take_from_budget(more)) return false;
    claimed_ = more;
    fresh_.begin(static_cast<uint32_t>(claimed_ - (touched_ ? 1 : 0)));
    return true;
}

bool HostPool::add_block() {
    char* block = touched_ ? touched_ : fresh_.take();
    touched_ = nullptr;
    if (!block) return false;
    if (driver.cuMemHostRegister_v2(block, kBlock, CU_MEMHOSTREGISTER_PORTABLE) != CUDA_SUCCESS) {
        // It may be registered all the same; and these addresses may be another block's next.
        driver.cuMemHostUnregister(block);
        fresh_.give_up(block);
        return false;
    }
    blocks_.add({block, current_context()});  // there is space: claim
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
    slot_->residence.host_pinned_bytes.fetch_sub(claimed_ * kBlock);
    claimed_ = 0;
}

void HostPool::touch_block() {
    if (!touched_) touched_ = fresh_.make();
}

bool HostPool::prepare(uint64_t bytes) {
    wire::Refusal why;
    uint64_t one_more = this->bytes() + kBlock;
    bool good = this->bytes() < bytes && claim(one_more, &why) && have(one_more);
    settle();
    return good;
}

bool HostPool::give_back_one(uint64_t bytes) {
    if (touched_) fresh_.give_up(touched_);
    touched_ = nullptr;
    uint64_t count = blocks_.count();
    if (count == 0 || (count - 1) * kBlock < bytes) return false;
    // What the driver would not let go stays ours, and counted.
    if (driver.cuCtxSetCurrent(blocks_[count - 1].context) != CUDA_SUCCESS) return false;
    CUresult result = driver.cuMemHostUnregister(blocks_[count - 1].pages);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED) return false;
    drop(count - 1);
    return true;
}

void HostPool::forget_context(CUcontext context) {
    for (size_t i = blocks_.count(); i-- > 0;)
        if (blocks_[i].context == context) drop(i);
}

void HostPool::drop(size_t i) {
    fresh_.give_up(blocks_[i].pages);
    blocks_.remove(i);
    slot_->residence.host_pinned_bytes.fetch_sub(kBlock);
}

void HostPool::forget_in_child() {
    blocks_.abandon();
    touched_ = nullptr;
    claimed_ = 0;
    segment_ = nullptr;
    slot_ = nullptr;
    fresh_.forget_in_child();
}

}  // namespace tenant
