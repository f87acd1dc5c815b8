#include "tenant/terms.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tenant/mps.h"
#include "tenant/settings.h"

namespace tenant {

namespace {

void read_program_name(char* out, size_t room) {
    int fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    ssize_t got = read(fd, out, room - 1);
    close(fd);
    out[got > 0 ? got : 0] = 0;
    out[strcspn(out, "\n")] = 0;
}

// `cotenant run --sms`: it stays for good.
uint32_t share_told_to_mps() {
    const char* percentage = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    double share = percentage ? strtod(percentage, nullptr) : 0;
    return share > 0 && share < 100 ? static_cast<uint32_t>(share * 10) : 0;
}

}  // namespace

void Terms::become(const LaneTerms& lane) {
    weight = std::max(lane.weight, 1u);
    slowdown = lane.slowdown;
    floor = lane.floor;
    this->lane = lane.number;
    // The end of a long name goes, not the lane's.
    const char* of = job[0] ? job : name;
    size_t room = sizeof job - 2 - strnlen(lane.name, sizeof lane.name);
    char joined[sizeof job];
    snprintf(joined, sizeof joined, "%.*s/%s", static_cast<int>(std::min(room, strlen(of))), of, lane.name);
    memcpy(job, joined, sizeof job);
    bool has_id = std::any_of(run_id, run_id + sizeof run_id, [](uint8_t byte) { return byte != 0; });
    if (!has_id) return;
    uint64_t half[2];
    memcpy(half, run_id, sizeof half);
    for (const char* at = lane.name; *at; ++at) {
        half[0] = (half[0] ^ static_cast<uint8_t>(*at)) * 0x100000001b3;
        half[1] = (half[1] + half[0]) * 0x9e3779b97f4a7c15;
    }
    memcpy(run_id, half, sizeof half);
}

void Terms::introduce(wire::Slot& slot, const LaneTerms* lane) {
    weight = std::max(thousandths_from_environment("COTENANT_WEIGHT", 1000), 1u);
    slowdown = thousandths_from_environment("COTENANT_SLOWDOWN", 0);
    floor = thousandths_from_environment("COTENANT_FLOOR", 0);
    run_id_from_environment(run_id);
    read_program_name(name, sizeof name);
    job_from_environment(job, sizeof job);
    if (lane) become(*lane);
    slot.weight.store(weight);
    slot.slowdown.store(slowdown);
    slot.floor.store(floor);
    slot.lane.store(this->lane);
    mps_daemon = mps::daemon_here();
    sms = mps_daemon ? share_told_to_mps() : 0;
    slot.sms.store(sms);
    memcpy(slot.run_id, run_id, sizeof run_id);
    memcpy(slot.name, name, sizeof name);
    memcpy(slot.job, job, sizeof job);
    slot.mps_daemon.store(mps_daemon);
}

void Terms::mend(wire::Segment& segment, int index) const {
    wire::Slot& slot = segment.slot(index);
    auto put = [](wire::Flag& word, uint32_t value) {
        if (word.load(std::memory_order_relaxed) != value) word.store(value);
    };
    put(slot.weight, weight);
    put(slot.slowdown, slowdown);
    put(slot.floor, floor);
    put(slot.lane, lane);
    put(slot.sms, sms);
    if (memcmp(slot.run_id, run_id, sizeof run_id) != 0) memcpy(slot.run_id, run_id, sizeof run_id);
    if (memcmp(slot.name, name, sizeof name) != 0) memcpy(slot.name, name, sizeof name);
    if (memcmp(slot.job, job, sizeof job) != 0) memcpy(slot.job, job, sizeof job);
    if (slot.mps_daemon.load(std::memory_order_relaxed) != mps_daemon) slot.mps_daemon.store(mps_daemon);
    if (slot.mps_fault.load(std::memory_order_relaxed) != mps::fault()) slot.mps_fault.store(mps::fault());
    if (slot.tenant_class.load() != tenant_class)
        wire::join_class(segment, index, static_cast<wire::Class>(tenant_class));
}

}  // namespace tenant
