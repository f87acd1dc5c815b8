// What a call carries, as the assembly beside this lays it out.
#pragma once

#include <cstdint>

struct Registers {
    uint64_t general[10];
    unsigned char vector[8][16];
    uint64_t stack, link;
};
static_assert(sizeof(Registers) == 224);

extern "C" {
// How many of `general` this machine passes arguments in.
extern const uint64_t general_registers;
// Calls the function with these registers, and notes with which stack pointer and return address.
void call_with(const Registers* registers, void (*function)());
extern uint64_t called_with_stack, called_with_link;
// Notes what it was called with.
void target();
extern Registers seen;
// Leaves nothing in any register that a callee need not keep.
void clobber();
// From here on SIGTRAP after each instruction, if this machine has such a thing.
void begin_steps();
void end_steps();
}
