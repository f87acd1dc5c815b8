#include "admission/standstill.h"

#include "../require.h"

using admission::Standstill;

constexpr float kLook = 2000;

// Looks every 2 ms; whether longer slices were had after each, in seconds together.
float found_for(Standstill& one, float us, bool is_free, bool has_ended, float rest_us = 0) {
    float seconds = 0;
    for (float at = 0; at < us; at += kLook) {
        one.look(kLook, is_free, has_ended, rest_us);
        if (one.is_found()) seconds += kLook / 1e6f;
    }
    return seconds;
}

bool is_about(float is, float expected) { return is > 0.97f * expected && is < 1.03f * expected; }

int main() {
    // Whoever gets on, or could not, does not stand still; nor while its kernels may take as long.
    Standstill one;
    REQUIRE(found_for(one, 60e6f, true, true) == 0);
    REQUIRE(found_for(one, 60e6f, false, false) == 0);
    REQUIRE(found_for(one, 400e3f, true, false, 100e3f) == 0);
    REQUIRE(found_for(one, 60e3f, true, false, 100e3f) > 0);

    // What ends while longer slices are tried keeps them for 2 s; then it takes 50 ms again.
    Standstill other;
    REQUIRE(found_for(other, 48e3f, true, false) == 0);
    REQUIRE(found_for(other, 60e3f, true, false) > 0.05f);
    REQUIRE(is_about(found_for(other, kLook, true, true) + found_for(other, 5e6f, true, true), 2));
    REQUIRE(found_for(other, 48e3f, true, false) == 0 && found_for(other, 10e3f, true, false) > 0);

    // For these 2 s it does not matter how long something takes.
    Standstill slow;
    while (!slow.is_found()) slow.look(kLook, true, false, 0);
    float seconds = found_for(slow, kLook, true, true) + found_for(slow, 1.5e6f, true, false);
    REQUIRE(is_about(seconds + found_for(slow, 5e6f, true, true), 2));

    // What stood still without being free for it does not count, and neither does the time before something ended.
    Standstill third;
    for (int i = 0; i < 100; ++i) {
        REQUIRE(found_for(third, 40e3f, true, false) == 0);
        REQUIRE(found_for(third, kLook, true, true) == 0 && found_for(third, 40e3f, false, false) == 0);
    }

    // A kernel that never ends: each try comes later, and they take an eighth of the time in the end.
    Standstill never;
    REQUIRE(found_for(never, 60e6f, true, false) < 9);
    REQUIRE(is_about(found_for(never, 180e6f, true, false), 20));
    // When it has ended after all, it is as in the beginning.
    while (!never.is_found()) never.look(kLook, true, false, 0);
    REQUIRE(is_about(found_for(never, kLook, true, true) + found_for(never, 5e6f, true, true), 2));
    REQUIRE(found_for(never, 60e3f, true, false) > 0);
    return 0;
}
