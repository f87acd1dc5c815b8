// Threads that ask for the first setting at once: each is told what the identity file says.
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "../require.h"
#include "tenant/identity_file.h"

int main() {
    constexpr int kThreads = 4;
    static std::atomic<int> there{0};
    std::vector<std::thread> running;
    for (int i = 0; i < kThreads; ++i)
        running.emplace_back([] {
            for (++there; there < kThreads;) std::this_thread::yield();
            const char* said = tenant::setting("COTENANT_CLASS");
            REQUIRE(tenant::has_identity_file() && said && strcmp(said, "opportunistic") == 0);
            REQUIRE(!tenant::setting("COTENANT_WEIGHT"));
        });
    for (std::thread& thread : running) thread.join();
}
