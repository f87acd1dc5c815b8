// driver_memory SEGMENT CASE: the limit that a tenant begins with and gets, and what the driver takes by itself
// (native/tenant/memory/driver_memory.cpp), by what this test's NVML says.
#include <map>
#include <string>

#include "../require.h"
#include "../wire/cases.h"
#include "bare_membership.h"
#include "tenant/fork.h"
#include "tenant/identity_file.h"
#include "tenant/membership_events.h"
#include "tenant/memory/ledger.h"
#include "tenant/memory/nvml.h"
#include "tenant/memory/pools.h"
#include "tenant/memory/quota.h"

namespace {

constexpr uint64_t kMiB = 1 << 20, kSecond = 1000000000;

std::string memory;  // COTENANT_MEMORY
bool is_in_file = false;
std::map<int, uint64_t> nvml;  // by the first byte of the UUID: what the process has there; or it does not say
uint64_t unseen[wire::kGpus] = {}, moment = 0;
std::map<int, int> asked;  // how often
auto change = tenant::Change::none;
int allocates = 0;  // while NVML is asked for this GPU

}  // namespace

namespace tenant {

DriverCalls driver;
bool has_identity_file() { return is_in_file; }
const char* setting(const char*) { return memory.c_str(); }
std::optional<uint64_t> nvml_bytes_of_this_process(const Uuid& gpu) {
    ++asked[gpu[0]];
    if (gpu[0] == allocates) moment += 2;
    return nvml.count(gpu[0]) ? std::optional<uint64_t>(nvml[gpu[0]]) : std::nullopt;
}
Change settle_pools(Membership&) { return change; }
uint64_t UnderWay::moment() { return ::moment; }
uint64_t unseen_by_nvml(int gpu) { return unseen[gpu]; }
void correct(const Place& place, uint64_t charged, uint64_t taken) {
    count_memory(place.membership->slot(), place.gpu, taken - charged);
}

}  // namespace tenant

namespace {

using namespace tenant;

struct Scene {
    Membership& membership;
    wire::Slot& slot;
    uint64_t now_ns = 100 * kSecond;

    explicit Scene(wire::Segment& segment)
        : membership((all = &segment, *Membership::current())), slot(membership.slot()) {
        for (uint8_t gpu = 0; gpu < 2; ++gpu) {
            uint8_t uuid[16];
            memset(uuid, gpu + 1, sizeof uuid);
            REQUIRE(wire::gpu_number(segment, uuid) == gpu);
        }
    }
    void join() {
        tell<AtJoin>([&](const AtJoin& one) { one.act(membership.segment(), slot); });
    }
    void use(int gpu) {
        tell<AtFirstUse>([&](const AtFirstUse& one) { one.act(membership, gpu); });
    }
    void look(uint64_t later_ns) {
        now_ns += later_ns;
        tell<AtLook>([&](const AtLook& one) { one.act(membership, now_ns); });
    }
    // The limit after `cotenant ctl` has asked for that one.
    uint64_t ask(uint64_t limit) {
        wire::Asked request{};
        request.memory = 1 + limit;
        tell<AtRequest>([&](const AtRequest& one) { one.act(membership, request); });
        uint64_t shown = 0;
        REQUIRE(read_memory_limit(slot, &shown));
        return shown;
    }
    bool has(int gpu, uint64_t mebibytes, uint64_t of_driver) const {
        return memory_of_process(slot, gpu, 0) == mebibytes * kMiB &&
               slot.memory[gpu].driver_bytes.load() == of_driver * kMiB;
    }
};

// What stands in an administrator's file nobody raises, and no share of the GPU, nor "none", gets past it.
void identity(wire::Segment& segment) {
    Scene scene(segment);
    memory = "4M";
    scene.join();
    REQUIRE(scene.slot.memory_limit.load() == 4 * kMiB && scene.ask(8 * kMiB) == 8 * kMiB && scene.ask(0) == 0);
    REQUIRE(scene.ask(kShareOfGpu | 500000) == (kShareOfGpu | 500000));
    is_in_file = true;
    scene.join();
    REQUIRE(scene.slot.memory_limit.load() == 4 * kMiB);
    REQUIRE(scene.ask(2 * kMiB) == 2 * kMiB && scene.ask(8 * kMiB) == 4 * kMiB && scene.ask(0) == 4 * kMiB);
    REQUIRE(scene.ask(kShareOfGpu | 1) == 4 * kMiB);
    memory = "50%";
    REQUIRE(scene.ask(2 * kMiB) == (kShareOfGpu | 500000) && scene.ask(0) == (kShareOfGpu | 500000));
    memory = "";
    REQUIRE(scene.ask(2 * kMiB) == 2 * kMiB && scene.ask(0) == 0);
    wire::Asked other{};
    other.weight = 5;
    REQUIRE(scene.ask(3 * kMiB) == 3 * kMiB);
    tell<AtRequest>([&](const AtRequest& one) { one.act(scene.membership, other); });
    REQUIRE(scene.slot.memory_limit.load() == 3 * kMiB);
}

// A process that comes later has the limit that its run has by now, within the file's.
void of_the_run(wire::Segment& segment) {
    Scene scene(segment);
    memory = "8M";
    int index = wire::take_slot(segment);
    wire::join_class(segment, index, wire::opportunistic);
    wire::Slot& first = segment.slot(index);
    memset(first.run_id, 7, 16);
    change_memory_limit(first, 6 * kMiB);
    scene.join();
    REQUIRE(scene.slot.memory_limit.load() == 8 * kMiB);
    memset(scene.slot.run_id, 7, 16);
    scene.join();
    REQUIRE(scene.slot.memory_limit.load() == 6 * kMiB);
    change_memory_limit(first, 0);
    scene.join();
    REQUIRE(scene.slot.memory_limit.load() == 0);
    is_in_file = true;
    scene.join();
    REQUIRE(scene.slot.memory_limit.load() == 8 * kMiB);
    first.memory_limit.store(5 * kMiB);  // garbage
    is_in_file = false;
    scene.join();
    REQUIRE(scene.slot.memory_limit.load() == 8 * kMiB);
}

// What NVML has more than was counted is the driver's, by GPU.
void measuring(wire::Segment& segment) {
    Scene scene(segment);
    scene.join();
    nvml = {{1, 100 * kMiB}, {2, 70 * kMiB}};
    count_memory(scene.slot, 0, 60 * kMiB);
    count_memory(scene.slot, 1, 20 * kMiB);
    unseen[0] = 10 * kMiB;
    // Without a limit nobody asks.
    scene.use(0);
    scene.look(kSecond);
    REQUIRE(asked.empty() && scene.has(0, 60, 0));
    // With one: at the next look, and on a GPU that is used by then; and on another at its first use, at once.
    REQUIRE(scene.ask(500 * kMiB) == 500 * kMiB);
    scene.look(1);
    REQUIRE(asked[1] == 1 && asked[2] == 0 && scene.has(0, 110, 50) && scene.has(1, 20, 0));
    scene.use(1);
    scene.use(1);
    REQUIRE(asked[1] == 1 && asked[2] == 1 && scene.has(0, 110, 50) && scene.has(1, 70, 50));
    // Once a second; what it measured before does not count twice.
    nvml[1] = 90 * kMiB;
    nvml[2] = 100 * kMiB;
    scene.look(kSecond - 2);
    REQUIRE(asked[1] == 1);
    scene.look(2);
    REQUIRE(asked[1] == 2 && asked[2] == 2 && scene.has(0, 100, 40) && scene.has(1, 100, 80));
    // The two figures are not of one moment: it looks again soon.
    nvml[1] = 150 * kMiB;
    allocates = 1;
    scene.look(kSecond);
    REQUIRE(asked[1] == 3 && scene.has(0, 100, 40));
    allocates = 0;
    moment = 7;
    scene.look(1);
    REQUIRE(asked[1] == 4 && scene.has(0, 100, 40));
    moment = 8;
    change = Change::grew;
    scene.look(1);
    REQUIRE(asked[1] == 5 && scene.has(0, 100, 40));
    change = Change::none;
    scene.look(1);
    REQUIRE(asked[1] == 6 && scene.has(0, 160, 100));
    scene.look(1);
    REQUIRE(asked[1] == 6);
    // It says nothing, or less than was counted; a limit that changes is looked at once.
    nvml.erase(1);
    nvml[2] = 5 * kMiB;
    REQUIRE(scene.ask(400 * kMiB) == 400 * kMiB);
    scene.look(1);
    REQUIRE(asked[1] == 7 && scene.has(0, 160, 100) && scene.has(1, 20, 0));
    // What somebody has written into the slot is put right.
    scene.slot.gpus[0].memory_bytes.store(1);
    scene.look(1);
    REQUIRE(scene.slot.gpus[0].memory_bytes.load() == 160 * kMiB && asked[1] == 7);
    // A child begins anew.
    tell<AtFork>([](const AtFork& one) { one.in_child(); });
    nvml[1] = 30 * kMiB;
    scene.join();
    scene.slot.memory[0].driver_bytes.store(0);
    scene.slot.gpus[0].memory_bytes.store(0);
    REQUIRE(scene.ask(100 * kMiB) == 100 * kMiB);
    scene.look(kSecond);
    REQUIRE(asked[1] == 7);
    unseen[0] = 0;
    scene.use(0);
    REQUIRE(asked[1] == 8 && scene.has(0, 30, 30));
}

}  // namespace

int main(int argc, char** argv) {
    return run_case(argc, argv, {{"identity", identity}, {"of_the_run", of_the_run}, {"measuring", measuring}});
}
