// `fresh_blocks CASE`: host memory that several threads make. Status 0, or the line that does not hold.
#include "tenant/memory/fresh_blocks.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "../require.h"

namespace {

constexpr uint64_t kBlock = uint64_t{4} << 20;
tenant::FreshBlocks fresh(kBlock);

const uint64_t kPage = sysconf(_SC_PAGESIZE);

bool is_mapped(const char* block) {
    std::vector<unsigned char> pages(kBlock / kPage);
    return mincore(const_cast<char*>(block), kBlock, pages.data()) == 0;
}

bool is_there(const char* block) {
    std::vector<unsigned char> pages(kBlock / kPage);
    if (mincore(const_cast<char*>(block), kBlock, pages.data()) != 0) return false;
    return std::all_of(pages.begin(), pages.end(), [](unsigned char page) { return page & 1; });
}

// In blocks: nothing else is kept from children.
uint64_t block_bytes() {
    char line[512];
    unsigned long from = 0, to = 0, first = 0, last = 0;
    uint64_t all = 0;
    FILE* file = fopen("/proc/self/smaps", "re");
    REQUIRE(file);
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%lx-%lx ", &first, &last) == 2) from = first, to = last;
        if (!strncmp(line, "VmFlags:", 8) && strstr(line, " dc")) all += to - from;
    }
    fclose(file);
    return all;
}

uint64_t mapped_bytes() {
    unsigned long pages = 0;
    FILE* file = fopen("/proc/self/statm", "re");
    REQUIRE(file && fscanf(file, "%lu", &pages) == 1);
    fclose(file);
    return pages * kPage;
}

void taken() {
    std::set<char*> all;
    for (uint32_t count : {1u, 3u, 16u, 64u}) {
        fresh.begin(count);
        for (uint32_t i = 0; i < count; ++i) {
            char* block = fresh.take();
            REQUIRE(block && is_there(block) && all.insert(block).second);
            memset(block, 1, kBlock);
        }
        REQUIRE(!fresh.take());
        fresh.end();
    }
    for (char* block : all) {
        REQUIRE(is_mapped(block));
        fresh.give_up(block);
        REQUIRE(!is_mapped(block));
    }
}

void left_over() {
    for (uint32_t count = 0; count < 40; ++count) {
        fresh.begin(count);
        char* kept = count ? fresh.take() : nullptr;
        for (uint32_t i = 0; i < count / 3; ++i) fresh.give_up(fresh.take());
        fresh.end();
        REQUIRE(block_bytes() == (kept ? kBlock : 0));
        if (kept) fresh.give_up(kept);
    }
}

// Each of the helpers, and who takes, may be the one that finds no more.
void out_of_memory() {
    for (uint64_t room = 20; room < 40; ++room) {
        rlimit all{}, some{};
        REQUIRE(getrlimit(RLIMIT_AS, &all) == 0);
        some = all;
        some.rlim_cur = mapped_bytes() + room * kBlock;
        REQUIRE(setrlimit(RLIMIT_AS, &some) == 0);
        fresh.begin(64);
        std::set<char*> got;
        while (char* block = fresh.take()) got.insert(block);
        fresh.end();
        REQUIRE(got.size() < 64 && block_bytes() == got.size() * kBlock);
        for (char* block : got) fresh.give_up(block);
        REQUIRE(setrlimit(RLIMIT_AS, &all) == 0);
    }
}

// What was on its way when it began is its parent's.
void child() {
#ifdef __SANITIZE_ADDRESS__
    // Its allocator has locks that a fork copies as they are: in one of 400 runs on a busy machine the child waits for
    // a thread that it does not have.
    return;
#endif
    fresh.begin(64);
    char* one = fresh.take();
    if (pid_t pid = fork()) {
        int status = 1;
        REQUIRE(waitpid(pid, &status, 0) == pid && status == 0);
        fresh.give_up(one);
        fresh.end();
        return;
    }
    fresh.forget_in_child();
    fresh.end();
    taken();
}

}  // namespace

int main(int, char** arguments) {
    const std::map<std::string, void (*)()> cases{
        {"taken", taken}, {"left over", left_over}, {"out of memory", out_of_memory}, {"child", child}};
    cases.at(arguments[1])();
    return 0;
}
