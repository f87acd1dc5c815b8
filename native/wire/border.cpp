#include "wire/border.h"

namespace wire {

namespace {

constexpr int kTries = 100;  // while somebody changes it

uint32_t check_of_memory_knobs(const MemoryKnobs& said) {
    return check_of(said.headroom, said.host_memory, said.stay_ms);
}

uint32_t check_of_grant(const Granted& said) {
    return check_of(said.subject_kind, said.subject_id, said.best_class, said.memory_limit);
}

MemoryKnobs raw(const Header::MemoryKnobs& words) {
    return {words.headroom.load(), words.host_memory.load(), words.stay_ms.load()};
}

Granted raw(const Grant& words) {
    return {words.subject_kind.load(), words.subject_id.load(), words.best_class.load(), words.memory_limit.load()};
}

Asked raw(const Slot& slot) {
    const Slot::Asked& asked = slot.asked;
    return {asked.tenant_class.load(), asked.weight.load(),        asked.slowdown.load(),
            asked.floor.load(),        asked.time_slice_us.load(), slot.residence.asked_pause.load(),
            slot.asked_sms.load(),     slot.asked_memory.load()};
}

uint32_t check_of_requests(const Asked& asked) {
    return check_of(asked.tenant_class, asked.weight, asked.slowdown, asked.floor, asked.time_slice_us, asked.pause,
                    asked.sms, asked.memory);
}

}  // namespace

uint64_t capacity_of(const Header& header, int gpu) {
    const Header::Gpu& words = header.gpus[gpu];
    for (int i = 0; i < kTries; ++i) {
        uint64_t bytes = words.capacity.load();
        if (bytes == 0 || words.capacity_check.load() == check_of(bytes)) return bytes;
    }
    return 0;
}

void set_capacity(Header& header, int gpu, uint64_t bytes) {
    header.gpus[gpu].capacity.store(bytes);
    header.gpus[gpu].capacity_check.store(check_of(bytes));
}

MemoryKnobs memory_knobs_of(const Header& header) {
    for (int i = 0; i < kTries; ++i) {
        MemoryKnobs said = raw(header.memory_knobs);
        uint32_t check = header.memory_knobs.check.load();
        if (check == 0) break;
        if (check == check_of_memory_knobs(said)) return said;
    }
    return {};
}

void set_memory_knobs(Header& header, const MemoryKnobs& knobs) {
    header.memory_knobs.headroom.store(knobs.headroom);
    header.memory_knobs.host_memory.store(knobs.host_memory);
    header.memory_knobs.stay_ms.store(knobs.stay_ms);
    header.memory_knobs.check.store(check_of_memory_knobs(knobs));
}

Granted granted_by(const Grant& grant) {
    for (int i = 0; i < kTries; ++i) {
        Granted said = raw(grant);
        if (said.subject_kind == nobody) break;
        if (grant.check.load() != check_of_grant(said)) continue;
        said.best_class = std::min<uint32_t>(said.best_class, kClasses);
        return said;
    }
    return {};
}

void seal(Header& header) {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    // The words themselves are only read: another tool may be changing them.
    for (Header::Gpu& gpu : header.gpus) gpu.capacity_check.store(check_of(gpu.capacity.load()));
    header.memory_knobs.check.store(check_of_memory_knobs(raw(header.memory_knobs)));
    for (Grant& grant : header.grants) grant.check.store(check_of_grant(raw(grant)));
}

Request take_requests(Slot& slot, Asked* out) {
    *out = raw(slot);
    if (out->is_nothing()) return Request::none;
    if (slot.asked_check.load() != check_of_requests(*out)) return Request::garbage;
    forget_requests(slot);
    return Request::good;
}

void forget_requests(Slot& slot) {
    for (Flag* word : {&slot.asked.tenant_class, &slot.asked.weight, &slot.asked.slowdown, &slot.asked.floor,
                       &slot.asked.time_slice_us, &slot.residence.asked_pause, &slot.asked_sms})
        word->store(0);
    slot.asked_memory.store(0);
}

void seal_requests(Slot& slot) {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    slot.asked_check.store(check_of_requests(raw(slot)));
    slot.asked_timeline_check.store(check_of(slot.asked_timeline.load()));
}

}  // namespace wire
