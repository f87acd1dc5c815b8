// Eviction and return over a driver of this test's own, whose calls fail when told to. After every failure the contents
// are whole, on the GPU or on the host, and what the driver has left agrees with what the chunks say.
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tenant/memory/eviction.h"
#include "wire/border.h"
#include "wire/segment.h"

#define REQUIRE(condition)                                                                      \
    do {                                                                                        \
        if (!(condition)) {                                                                     \
            fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #condition, about); \
            exit(1);                                                                            \
        }                                                                                       \
    } while (0)

namespace tenant {
DriverCalls driver;
}

namespace {

char about[200];

// The driver: handles are buffers, mappings say which buffer is behind an address.
std::map<uint64_t, std::vector<char>> physicals;
struct Mapping {
    uint64_t handle, bytes;
    size_t accesses;  // how many GPUs get at it
};
std::map<uint64_t, Mapping> mappings;
uint64_t last_handle = 100;
uint64_t capacity = UINT64_MAX;
long calls = 0, copies = 0, fail_from = -1, fail_until = -1;
std::map<CUstream, std::vector<CUdeviceptr>> on_their_way;  // copies that nobody has waited for
uint64_t last_stream = 7;
CUcontext current = nullptr;
std::map<CUstream, CUcontext> streams;     // and which context each is of
std::map<uint64_t, CUcontext> context_of;  // by address: that it is copied in

bool fails() {
    long now = calls++;
    return fail_from >= 0 && now >= fail_from && now < fail_until;
}

char* behind(uint64_t address, uint64_t bytes) {
    auto next = mappings.upper_bound(address);
    if (next == mappings.begin()) return nullptr;
    auto& [base, mapping] = *--next;
    if (!mapping.accesses || address + bytes > base + mapping.bytes) return nullptr;
    return physicals.at(mapping.handle).data() + (address - base);
}

uint64_t physical_bytes() {
    uint64_t sum = 0;
    for (auto& [handle, bytes] : physicals) sum += bytes.size();
    return sum;
}

CUresult create(CUmemGenericAllocationHandle* out, size_t bytes, const CUmemAllocationProp*, unsigned long long) {
    if (fails() || physical_bytes() + bytes > capacity) return CUDA_ERROR_OUT_OF_MEMORY;
    physicals[*out = ++last_handle].assign(bytes, char(0xcc));
    return CUDA_SUCCESS;
}
CUresult release(CUmemGenericAllocationHandle handle) {
    if (fails()) return CUDA_ERROR_UNKNOWN;
    for (auto& [base, mapping] : mappings) REQUIRE(mapping.handle != handle);
    REQUIRE(physicals.erase(handle) == 1);
    return CUDA_SUCCESS;
}
CUresult map(CUdeviceptr at, size_t bytes, size_t, CUmemGenericAllocationHandle handle, unsigned long long) {
    if (fails()) return CUDA_ERROR_UNKNOWN;
    REQUIRE(!mappings.count(at) && physicals.at(handle).size() == bytes);
    mappings[at] = {handle, bytes, 0};
    return CUDA_SUCCESS;
}
CUresult unmap(CUdeviceptr at, size_t bytes) {
    if (fails()) return CUDA_ERROR_UNKNOWN;
    if (!mappings.count(at)) return CUDA_ERROR_INVALID_VALUE;
    REQUIRE(mappings[at].bytes == bytes);
    for (const auto& [stream, places] : on_their_way)
        for (CUdeviceptr place : places) REQUIRE(place < at || place >= at + bytes);
    mappings.erase(at);
    return CUDA_SUCCESS;
}
CUresult set_access(CUdeviceptr at, size_t, const CUmemAccessDesc*, size_t count) {
    if (fails()) return CUDA_ERROR_UNKNOWN;
    if (!count) return CUDA_ERROR_INVALID_VALUE;
    mappings.at(at).accesses = count;
    return CUDA_SUCCESS;
}
void is_in_its_context(CUdeviceptr address, CUstream stream) {
    REQUIRE(current && streams.at(stream) == current && (--context_of.upper_bound(address))->second == current);
}
CUresult to_host(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
    is_in_its_context(from, stream);
    if (fails()) return CUDA_ERROR_UNKNOWN;
    char* there = behind(from, bytes);
    if (!there) return CUDA_ERROR_INVALID_VALUE;
    on_their_way[stream].push_back(from);
    memcpy(to, there, bytes);
    ++copies;
    return CUDA_SUCCESS;
}
CUresult to_gpu(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
    is_in_its_context(to, stream);
    if (fails()) return CUDA_ERROR_UNKNOWN;
    char* there = behind(to, bytes);
    if (!there) return CUDA_ERROR_INVALID_VALUE;
    on_their_way[stream].push_back(to);
    memcpy(there, from, bytes);
    ++copies;
    return CUDA_SUCCESS;
}
CUresult set_current(CUcontext context) {
    if (fails()) return CUDA_ERROR_UNKNOWN;
    current = context;
    return CUDA_SUCCESS;
}
CUresult create_stream(CUstream* out, unsigned int) {
    if (fails()) return CUDA_ERROR_UNKNOWN;
    streams[*out = reinterpret_cast<CUstream>(++last_stream)] = current;
    return CUDA_SUCCESS;
}
CUresult synchronize(CUstream stream) {
    REQUIRE(streams.at(stream) == current);
    if (fails()) return CUDA_ERROR_UNKNOWN;
    on_their_way[stream].clear();
    return CUDA_SUCCESS;
}
long most_pinned = 1000, pinned = 0;  // blocks
CUresult register_host(void*, size_t, unsigned int) {
    if (fails() || pinned == most_pinned) return CUDA_ERROR_OUT_OF_MEMORY;
    ++pinned;
    return CUDA_SUCCESS;
}
CUresult get_current(CUcontext* out) { return *out = current, CUDA_SUCCESS; }
CUcontext ended = nullptr;  // a call in it is an error
CUresult unregister_host(void*) {
    REQUIRE(current && current != ended);
    return fails() ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

void give_back(tenant::HostPool& pool, uint64_t all_but) {
    while (pool.give_back_one(all_but)) {
    }
}

void install() {
    tenant::driver.cuMemCreate = create;
    tenant::driver.cuMemRelease = release;
    tenant::driver.cuMemMap = map;
    tenant::driver.cuMemUnmap = unmap;
    tenant::driver.cuMemSetAccess = set_access;
    tenant::driver.cuMemcpyDtoHAsync_v2 = to_host;
    tenant::driver.cuMemcpyHtoDAsync_v2 = to_gpu;
    tenant::driver.cuCtxSetCurrent = set_current;
    tenant::driver.cuCtxGetCurrent = get_current;
    tenant::driver.cuStreamCreate = create_stream;
    tenant::driver.cuStreamSynchronize = synchronize;
    tenant::driver.cuMemHostRegister_v2 = register_host;
    tenant::driver.cuMemHostUnregister = unregister_host;
}

struct : tenant::Others {
} nobody;

// A tenant with a few chunks in two contexts, one of them pinned, each full of its own bytes.
struct Job {
    tenant::Chunks chunks;
    tenant::HostPool pool;
    tenant::Eviction eviction{chunks, pool, 4096};  // a batch for each chunk
    std::map<uint64_t, std::vector<char>> truth;
    std::vector<tenant::UnusedRanges::Range> unused;
    uint64_t bytes = 0, pinned = 0;

    Job(wire::Segment& segment, uint32_t seed) {
        pool.use(&segment, &segment.slot(0));
        std::mt19937 random(seed);
        uint64_t address = 1 << 30;
        for (int i = 0; i < 7; ++i, address += 1 << 26) {
            auto* chunk = new tenant::Chunk;
            chunk->address = address;
            // The largest does not fit into one block of the pool.
            chunk->bytes = i == 3 ? tenant::HostPool::kBlock + 8192 : 4096 * (1 + random() % 8);
            chunk->context = context_of[address] = reinterpret_cast<CUcontext>(i % 2 + 1);
            chunk->gpu = 0;
            chunk->access_count = 1 + i % 3;  // of these, the other GPUs that the program let in
            chunk->pinned = i == 5;
            create(&chunk->handle, chunk->bytes, &chunk->properties, 0);
            map(address, chunk->bytes, 0, chunk->handle, 0);
            set_access(address, chunk->bytes, chunk->access, chunk->access_count);
            if (chunk->pinned) chunk->access_count = 0;  // its rights are the program's own
            chunk->mapped = true;
            std::vector<char>& contents = truth[address];
            contents.resize(chunk->bytes);
            for (size_t at = 0; at < contents.size(); at += 64) contents[at] = char(random());
            memcpy(behind(address, chunk->bytes), contents.data(), contents.size());
            bytes += chunk->bytes;
            if (chunk->pinned) pinned += chunk->bytes;
            REQUIRE(chunks.insert(chunk));
            if (i == 2 || i == 4) unused.push_back({address + 512, 1024});
        }
    }
    ~Job() {
        give_back(pool, 0);
        for (uint32_t i = 0; i < chunks.count(); ++i) delete &chunks[i];
        mappings.clear();
        physicals.clear();
    }

    tenant::UnusedRanges nothing() const { return {}; }
    tenant::UnusedRanges some() const { return {unused.data(), static_cast<uint32_t>(unused.size())}; }

    void is_whole_on_gpu(bool without_unused = false) {
        REQUIRE(!eviction.is_evicted() && physical_bytes() == bytes);
        for (uint32_t i = 0; i < chunks.count(); ++i)
            REQUIRE(chunks[i].pinned || mappings.at(chunks[i].address).accesses == chunks[i].access_count);
        for (auto& [address, contents] : truth) {
            char* there = behind(address, contents.size());
            REQUIRE(there != nullptr);
            std::vector<char> now(there, there + contents.size()), expected = contents;
            for (auto& range : unused)
                if (without_unused && range.address - address < contents.size())
                    for (auto* one : {&now, &expected}) memset(one->data() + (range.address - address), 0, range.bytes);
            REQUIRE(now == expected);
        }
    }
    void agrees_with_driver() {
        uint64_t held = 0;
        for (uint32_t i = 0; i < chunks.count(); ++i) {
            REQUIRE(chunks[i].mapped == (mappings.count(chunks[i].address) == 1));
            REQUIRE(!chunks[i].handle || physicals.count(chunks[i].handle));
            if (chunks[i].handle) held += chunks[i].bytes;
        }
        REQUIRE(held == physical_bytes());
    }
};

// `_off`: and then all of it leaves, from wherever it has got to.
enum Kind { evicting, evicting_off, restoring, restoring_off };

// `length`: how many calls fail, one after another, from each place in turn.
void faults(wire::Segment& segment, Kind kind, long length) {
    for (long at = 0;; ++at) {
        snprintf(about, sizeof about, "%s, failing %ld calls from the %ldth on",
                 kind >= restoring ? "restoring" : "evicting", length, at);
        fail_from = -1;
        Job job(segment, 1);
        if (kind >= restoring) REQUIRE(job.eviction.evict(job.nothing(), nobody));
        calls = 0;
        fail_from = at;
        fail_until = at + length;
        bool done = kind >= restoring ? job.eviction.restore(nobody) : job.eviction.evict(job.nothing(), nobody);
        bool reached = calls > at;
        fail_from = -1;
        job.agrees_with_driver();
        REQUIRE(segment.slot(0).residence.host_pinned_bytes.load() == job.pool.bytes());
        if (kind < restoring && done) {
            REQUIRE(job.eviction.is_evicted() && physical_bytes() == job.pinned);
        } else if (!job.eviction.is_evicted()) {
            REQUIRE(kind >= restoring ? done : job.eviction.refusal() != wire::none_refused);
            job.is_whole_on_gpu();
        }
        if (kind == evicting_off || kind == restoring_off) {
            uint64_t saved = job.eviction.saved_bytes();
            bool goes_on = job.eviction.is_evicted();
            REQUIRE(job.eviction.evict(job.nothing(), nobody) && physical_bytes() == job.pinned);
            REQUIRE(!goes_on || job.eviction.saved_bytes() == saved);
            job.agrees_with_driver();
        } else if (kind == evicting && !done && physical_bytes() < job.bytes) {
            // Somebody has taken the place of what has gone.
            capacity = physical_bytes();
            REQUIRE(!job.eviction.restore(nobody) && job.eviction.is_evicted());
            job.agrees_with_driver();
            capacity = UINT64_MAX;
        }
        REQUIRE(job.eviction.restore(nobody));
        job.is_whole_on_gpu();
        // It is none the worse for it.
        REQUIRE(job.eviction.evict(job.some(), nobody) && physical_bytes() == job.pinned);
        REQUIRE(job.eviction.dropped_bytes() == 2048 && job.eviction.saved_bytes() == job.bytes - job.pinned - 2048);
        REQUIRE(job.eviction.restore(nobody));
        job.is_whole_on_gpu(true);
        if (!reached) {
            REQUIRE(at > 20);
            return;
        }
    }
}

void no_space(wire::Segment& segment) {
    Job job(segment, 2);
    REQUIRE(job.eviction.evict(job.nothing(), nobody));
    // Others have taken the place meanwhile, all of it or a part.
    for (uint64_t left : {uint64_t{0}, uint64_t{8192}, tenant::HostPool::kBlock}) {
        capacity = job.pinned + left;
        REQUIRE(!job.eviction.restore(nobody) && job.eviction.is_evicted());
        REQUIRE(physical_bytes() == job.pinned);
        job.agrees_with_driver();
    }
    capacity = UINT64_MAX;
    REQUIRE(job.eviction.restore(nobody));
    job.is_whole_on_gpu();
}

// Others can have the first of it long before the last is on the host; what is of no use, before anything is copied.
void parts(wire::Segment& segment) {
    struct Seen : tenant::Others {
        std::vector<uint64_t> left;
        std::vector<long> copied;
        void have_more_space() override {
            left.push_back(physical_bytes());
            copied.push_back(copies);
        }
    } seen;
    Job job(segment, 4);
    tenant::UnusedRanges::Range whole{job.chunks[1].address, job.chunks[1].bytes};
    copies = 0;
    REQUIRE(job.eviction.evict({&whole, 1}, seen));
    REQUIRE(seen.copied.front() == 0 && seen.left.front() == job.bytes - whole.bytes);
    REQUIRE(seen.left.size() >= 5 && seen.left.back() == job.pinned);
    for (size_t i = 1; i < seen.left.size(); ++i) REQUIRE(seen.left[i] <= seen.left[i - 1]);
    REQUIRE(seen.left[2] > job.pinned);
    REQUIRE(job.eviction.restore(nobody));
}

// On its way back it is asked to turn round, each time a little later: all of its place is free again, and no byte
// lost.
void turning(wire::Segment& segment) {
    struct Asked : tenant::Others {
        long times = 0, turns_at = 0;
        bool need_the_space() override { return times++ == turns_at; }
    };
    Job job(segment, 5);
    REQUIRE(job.eviction.evict(job.nothing(), nobody));
    for (long at = 0;; ++at) {
        snprintf(about, sizeof about, "turning round at the %ldth question", at);
        Asked asked;
        asked.turns_at = at;
        if (job.eviction.restore(asked)) {
            // Once for each chunk, and for each batch of copies.
            REQUIRE(at == asked.times && at >= 2 * (7 - 1));
            break;
        }
        REQUIRE(job.eviction.is_evicted() && physical_bytes() == job.pinned);
        job.agrees_with_driver();
    }
    job.is_whole_on_gpu();
    // One that has left in part would keep the rest: it comes back, whoever asks.
    copies = 0;
    fail_from = 20;
    fail_until = 30;
    calls = 0;
    REQUIRE(!job.eviction.evict(job.nothing(), nobody) && job.eviction.is_evicted());
    fail_from = fail_until = -1;
    REQUIRE(physical_bytes() > job.pinned && physical_bytes() < job.bytes);
    Asked asked;
    REQUIRE(job.eviction.restore(asked) && asked.times == 0);
    job.is_whole_on_gpu();
}

// Where the machine itself has too little, that is found out once on the way, and then before.
void host_memory(wire::Segment& segment) {
    Job job(segment, 7);
    most_pinned = pinned + 1;
    REQUIRE(!job.eviction.evict(job.nothing(), nobody) && job.eviction.refusal() == wire::host_memory);
    REQUIRE(job.eviction.is_evicted() && job.eviction.restore(nobody));
    copies = 0;
    for (int again = 0; again < 3; ++again) {
        REQUIRE(!job.eviction.evict(job.nothing(), nobody) && job.eviction.refusal() == wire::host_memory);
        REQUIRE(!job.eviction.is_evicted() && copies == 0 && physical_bytes() == job.bytes);
    }
    // What was claimed and not had is given back once, also when the next one claims nothing.
    REQUIRE(!job.pool.prepare(0) && segment.slot(0).residence.host_pinned_bytes.load() == job.pool.bytes());
    most_pinned = 1000;
    REQUIRE(job.eviction.evict(job.nothing(), nobody) && job.eviction.restore(nobody));
    job.is_whole_on_gpu();
}

void budget(wire::Segment& segment) {
    Job job(segment, 3);
    constexpr uint64_t kAll = 4 * tenant::HostPool::kBlock;  // which every machine has left
    wire::set_memory_knobs(segment.header, {0, kAll, 0});
    REQUIRE(job.pool.fits(kAll) && !job.pool.fits(kAll + 1));
    wire::Count& pinned = segment.slot(0).residence.host_pinned_bytes;
    wire::set_memory_knobs(segment.header, {0, tenant::HostPool::kBlock, 0});
    REQUIRE(!job.eviction.evict(job.nothing(), nobody) && job.eviction.refusal() == wire::host_budget);
    REQUIRE(pinned.load() == 0 && job.pool.bytes() == 0);
    job.is_whole_on_gpu();
    wire::set_memory_knobs(segment.header, {0, 2 * tenant::HostPool::kBlock, 0});
    REQUIRE(job.eviction.evict(job.nothing(), nobody) && job.eviction.restore(nobody));
    job.is_whole_on_gpu();
    REQUIRE(pinned.load() == 2 * tenant::HostPool::kBlock);
    give_back(job.pool, 0);
    REQUIRE(pinned.load() == 0);
}

// Of a range that lies over two allocations each drops its own part.
void wide_ranges(wire::Segment& segment) {
    Job job(segment, 8);
    tenant::Chunk &first = job.chunks[1], &second = job.chunks[2];
    uint64_t end = second.address + 2048;
    tenant::UnusedRanges::Range wide{first.address + 1024, end - first.address - 1024};
    REQUIRE(job.eviction.evict({&wide, 1}, nobody));
    REQUIRE(job.eviction.dropped_bytes() == first.bytes - 1024 + 2048);
    REQUIRE(job.eviction.saved_bytes() == job.bytes - job.pinned - job.eviction.dropped_bytes());
    REQUIRE(job.eviction.restore(nobody));
    job.unused = {{wide.address, first.bytes - 1024}, {second.address, 2048}};
    job.is_whole_on_gpu(true);
}

// A context takes along the stream that copies in it; another may have its handle next.
void context_ends(wire::Segment& segment) {
    Job job(segment, 9);
    for (int again = 0; again < 2; ++again) {
        REQUIRE(job.eviction.evict(job.nothing(), nobody) && job.eviction.restore(nobody));
        job.is_whole_on_gpu();
        CUcontext gone = job.chunks[again].context;
        for (auto at = streams.begin(); at != streams.end();) at = at->second == gone ? streams.erase(at) : ++at;
        job.eviction.forget_context(gone);
    }
    REQUIRE(job.eviction.evict(job.nothing(), nobody) && job.eviction.restore(nobody));
    job.is_whole_on_gpu();
}

void shrinking(wire::Segment& segment) {
    Job job(segment, 10);
    constexpr uint64_t kBlock = tenant::HostPool::kBlock;
    wire::Count& counted = segment.slot(0).residence.host_pinned_bytes;
    REQUIRE(job.eviction.evict(job.nothing(), nobody) && job.eviction.restore(nobody));
    REQUIRE(job.pool.bytes() == 2 * kBlock);
    for (uint64_t keep : {kBlock + 1, kBlock, uint64_t{1}, uint64_t{0}}) {
        give_back(job.pool, keep);
        REQUIRE(job.pool.bytes() == (keep + kBlock - 1) / kBlock * kBlock && counted.load() == job.pool.bytes());
    }
    // What was touched ahead goes too, and is not used any more.
    job.pool.touch_block();
    give_back(job.pool, 0);
    REQUIRE(job.pool.prepare(1) && job.pool.bytes() == kBlock);
    memset(job.pool.at(0), 1, kBlock);
}

// A context takes along what was pinned in it, and the rest is given back in the contexts that it was pinned in.
void pinned_in_a_context_that_ends(wire::Segment& segment) {
    Job job(segment, 11);
    constexpr uint64_t kBlock = tenant::HostPool::kBlock;
    wire::Count& counted = segment.slot(0).residence.host_pinned_bytes;
    auto one = reinterpret_cast<CUcontext>(1), other = reinterpret_cast<CUcontext>(2);
    for (uint64_t block = 0; block < 4; ++block) {
        current = block % 2 ? other : one;
        REQUIRE(job.pool.prepare((block + 1) * kBlock));
    }
    ended = current = one;
    job.pool.forget_context(one);
    REQUIRE(job.pool.bytes() == 2 * kBlock && counted.load() == 2 * kBlock);
    for (uint64_t block : {0, 1}) memset(job.pool.at(block * kBlock), 1, kBlock);
    give_back(job.pool, 0);
    REQUIRE(job.pool.bytes() == 0 && counted.load() == 0);
    ended = nullptr;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) return 2;
    std::string why;
    wire::Segment* segment = wire::create_or_open_segment(argv[1], &why);
    if (!segment || wire::take_slot(*segment) != 0) return 1;
    wire::set_memory_knobs(segment->header, {0, uint64_t{1} << 40, 0});
    install();
    std::string which = argv[2];
    if (which == "evicting") faults(*segment, evicting, 1);
    if (which == "evicting, and restoring") faults(*segment, evicting, 5);
    if (which == "evicting, for good") faults(*segment, evicting, 1000000);
    if (which == "evicting, and the rest") faults(*segment, evicting_off, 1);
    if (which == "restoring, and evicting again") faults(*segment, restoring_off, 1);
    if (which == "restoring") faults(*segment, restoring, 1);
    if (which == "restoring, for good") faults(*segment, restoring, 1000000);
    if (which == "no space") no_space(*segment);
    if (which == "parts") parts(*segment);
    if (which == "turning") turning(*segment);
    if (which == "host memory") host_memory(*segment);
    if (which == "budget") budget(*segment);
    if (which == "wide ranges") wide_ranges(*segment);
    if (which == "a context ends") context_ends(*segment);
    if (which == "shrinking") shrinking(*segment);
    if (which == "pinned in a context that ends") pinned_in_a_context_that_ends(*segment);
    return 0;
}
