// The rules, and how the knobs stand while nobody turns them: in a new segment, in the simulator and for the daemon.
// Python has them from here (native/codegen/wire_layout.py); wire.h says what each knob means.
#pragma once

#include <cstdint>

namespace admission {

// Rules from this value up see the whole GPU (moment.h): all of them run in the simulator, some live too (rules.h).
constexpr uint32_t kFirstModelled = 3;
constexpr int kParameters = 8;  // that a controller may set for a modelled rule

enum Rule : uint32_t {
    none = 0,    // everybody goes
    strict = 1,  // a class goes only while every class above it is idle; equals below production take turns by weight
    fair = 2,    // all take turns by weight, whatever their class
    orion = kFirstModelled,
    reef = 4,
    lanes = 5,
    paella = 6,
    chimera = 7,
};

constexpr uint32_t kDefaultGraceUs = 300;
constexpr uint32_t kDefaultGateEveryUs = 100;
constexpr uint32_t kDefaultStaleMs = 60;
constexpr uint32_t kDefaultInFlightUs = 50000;
constexpr uint32_t kDefaultTurnUs = 0;
constexpr uint32_t kDefaultPatienceMs = 20;

}  // namespace admission
