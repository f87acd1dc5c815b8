// What is charged, and who has company (native/admission). Status 0, or the line that does not hold.
#include "admission/charging.h"

#include <cmath>
#include <random>

#include "../require.h"
#include "admission/company.h"
#include "admission/cut.h"
#include "admission/share.h"

using admission::executed_ns;
using admission::Look;

namespace {

constexpr uint64_t kMs = 1000000, kNow = 1000 * kMs;

// A look 2 ms after the last one, at streams that run behind an open gate.
Look running() { return {kNow, kNow - 2 * kMs, true, true, false, true, true, true, 0, 1}; }

void executed() {
    REQUIRE(executed_ns(running()) == 2 * kMs);
    Look look = running();
    look.has_work = look.is_running = false;
    REQUIRE(executed_ns(look) == 0);
    // Another context has three quarters of the slices.
    look = running();
    look.share = 0.25f;
    REQUIRE(executed_ns(look) == kMs / 2);
    // It was not running itself for most of the time since a look so long ago.
    look = running();
    look.since_ns = 0;
    REQUIRE(executed_ns(look) == admission::kLongestLookNs);
    // A burst that has begun after `now` was read.
    look = running();
    look.since_ns = kNow + kMs;
    REQUIRE(executed_ns(look) == 0);
}

void behind_a_closed_gate() {
    Look look = running();
    look.gate_was_open = look.gate_is_open = false;
    REQUIRE(executed_ns(look) == 0);
    look.stop_ns = kNow - 3 * kMs;
    REQUIRE(executed_ns(look) == 2 * kMs);  // it drains
    look.is_running = false;
    REQUIRE(executed_ns(look) == 0);  // its streams stand at the gate
    look.is_running = true;
    look.is_on = false;
    REQUIRE(executed_ns(look) == 0);  // it has left the GPU
    look.is_on = true;
    look.stop_ns = kNow - admission::kDrainNs;
    REQUIRE(executed_ns(look) == 0);  // it should have long ago
}

// What is charged of 20 s in which the gate is open for `open_us` of every 2.5 ms, over what was executed.
double charged(double open_us, double every_us, bool is_woken) {
    constexpr double kPeriodUs = 2500, kTotalUs = 2e7;
    std::mt19937_64 random(1);
    std::uniform_real_distribution<double> naps(0.75 * every_us, 1.25 * every_us);
    Look look = running();
    look.is_woken = is_woken;
    double us = 0, sum_us = 0;
    while (us < kTotalUs) {
        double period = std::floor(us / kPeriodUs) * kPeriodUs, next = us + naps(random);
        if (is_woken && us - period >= open_us) next = std::min(next, period + kPeriodUs);
        look.since_ns = static_cast<uint64_t>(1000 * us);
        look.now_ns = static_cast<uint64_t>(1000 * next);
        look.gate_was_open = look.gate_is_open;
        look.gate_is_open = next - std::floor(next / kPeriodUs) * kPeriodUs < open_us;
        sum_us += static_cast<double>(executed_ns(look)) / 1000;
        us = next;
    }
    return sum_us / kTotalUs * kPeriodUs / open_us;
}

// However often somebody looks, and however short the gaps are in which it runs.
void gates_that_change() {
    for (double open_us : {300.0, 800.0, 1700.0, 2300.0})
        for (double every_us : {50.0, 150.0, 1000.0, 2000.0}) {
            double alone = charged(open_us, every_us, false);
            REQUIRE(0.9 < alone && alone < 1.1);
            // With equals it looks often.
            double woken = charged(open_us, every_us, true);
            REQUIRE(every_us > 150 || (0.75 < woken && woken < 1.1));
        }
}

// Whatever another process has written, no look is charged more than has passed.
void garbage() {
    std::mt19937_64 random(1);
    for (int i = 0; i < 100000; ++i) {
        auto bit = [&] { return random() % 2 == 0; };
        auto moment = [&] { return random() >> random() % 64; };
        float share = static_cast<float>(random() % 1001) / 1000;
        Look look{moment(), moment(), bit(), bit(), bit(), bit(), bit(), bit(), moment(), share};
        REQUIRE(executed_ns(look) <= admission::kLongestLookNs);
        REQUIRE(executed_ns(look) <= look.now_ns - std::min(look.now_ns, look.since_ns));
    }
}

void company() {
    using admission::has_company;
    constexpr uint32_t kFair = admission::fair, kStrict = admission::strict;
    REQUIRE(!has_company(kStrict, {}, false) && has_company(kStrict, {}, true));
    REQUIRE(has_company(kStrict, {true, false, false}, false) && has_company(kStrict, {false, true, false}, false));
    REQUIRE(!has_company(kStrict, {false, false, true}, false) && has_company(kFair, {false, false, true}, false));
}

void budgets() {
    admission::Budgets budgets;
    budgets.pass(0, 0, {1e6f, 1e6f});
    REQUIRE(!budgets.over_rate() && !budgets.below_floor());
    // Half may be used, and a tenth was promised: all was used, then nothing.
    for (int ms = 0; ms < 100; ++ms) budgets.pass(0.5f, 0.1f, {1000, 1000});
    REQUIRE(budgets.over_rate() && !budgets.below_floor());
    for (int ms = 0; ms < 1200; ++ms) budgets.pass(0.5f, 0.1f, {1000, 0});
    REQUIRE(!budgets.over_rate() && budgets.below_floor());
    // What it was kept from using is spent at once when it is let in again: that is little.
    REQUIRE(budgets.of_rate().credit_us() == admission::Budgets::kRateTurnUs);
    // What is set anew remembers nothing: neither the credit of a rate nor that of a floor.
    budgets.pass(0, 0, {1000, 0});
    REQUIRE(budgets.of_rate().credit_us() == 0 && budgets.of_floor().credit_us() == 0);
    // A new rate of nearly everything does not begin with a wait, and one of next to nothing not with a turn.
    budgets.pass(0.9f, 0, {1000, 1000});
    REQUIRE(!budgets.over_rate() && budgets.of_rate().credit_us() > 0.8f * admission::Budgets::kRateTurnUs);
    budgets.pass(0, 0, {1000, 0});
    for (int ms = 0; ms < 2; ++ms) budgets.pass(0.02f, 0, {1000, 1000});
    REQUIRE(budgets.over_rate());
}

// The same, however often somebody looks: ten seconds of long kernels, then three of short ones.
void cutting() {
    for (double every_us : {1000.0, 20000.0}) {
        admission::Cutting cutting;
        cutting.look(0, 0, 0, admission::kCutCostUs);
        REQUIRE(cutting.cuts());  // nothing is known
        auto run = [&](double from_us, double to_us, double kernel_us) {
            for (double at = from_us; at < to_us; at += every_us)
                cutting.look(at, every_us, every_us * kernel_us, admission::kCutCostUs);
        };
        run(0, 1e7, 1000);
        REQUIRE(cutting.cuts());
        run(1e7, 1.3e7, 50);
        REQUIRE(!cutting.cuts());
    }
    // Beside the class for which it was cut a kernel may end once it has cost more than that; a very long one may not.
    using admission::shall_end;
    REQUIRE(!shall_end(0, 0) && !shall_end(10000, 5500) && shall_end(20000, 5500) && !shall_end(1e6f, 50000));
}

}  // namespace

int main() {
    executed();
    behind_a_closed_gate();
    gates_that_change();
    garbage();
    company();
    budgets();
    cutting();
    return 0;
}
