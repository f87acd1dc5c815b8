#include "tenant/kernel_profile.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "admission/moment.h"
#include "tenant/relaxed.h"
#include "wire/wire.h"

namespace tenant {

NamingCalls naming;

namespace {

constexpr char kMagic[8] = {'c', 'o', 'k', 'e', 'r', 'n', 'e', 'l'};
constexpr uint32_t kVersion = 1, kMostEntries = 20000;
constexpr size_t kLongestName = 1024, kLongestModelName = 256, kLongestEnding = 8;
constexpr int kLongestModel = 120;
constexpr float kLongestUs = 1e7;

struct Head {
    char magic[8];
    uint32_t version, entries;
    uint64_t profile_ns, profile_bytes;  // when the profile was written, and its size
};
struct Entry {
    uint32_t name_crc, name_bytes, grid[3], block[3], shared_bytes, bound;
    float us;
};
static_assert(sizeof(Head) == 32 && sizeof(Entry) == 44);

struct Table {
    uint32_t count = 0;
    Entry* entries = nullptr;
};
Table nothing;
std::atomic<const Table*> tables[wire::kGpus];  // by device; null: not looked for yet

// CRC-32, as zlib has it. Asked once for a shape.
uint32_t crc_of(const char* text, size_t length) {
    uint32_t crc = ~0u;
    for (size_t i = 0; i < length; ++i) {
        crc ^= static_cast<uint8_t>(text[i]);
        for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

// FOLDER/MODEL, the model as cotenant.profile.store names files. False: it does not fit.
bool path_of(const char* folder, char (&model)[kLongestModelName], char (&into)[PATH_MAX]) {
    size_t length = 0;
    bool stayed = true;
    for (const char* at = model; *at; ++at) {
        bool stays = isalnum(static_cast<unsigned char>(*at)) || strchr("_.+-", *at);
        if (stays || stayed) model[length++] = stays ? *at : '-';
        stayed = stays;
    }
    model[length] = 0;
    const char* name = model + strspn(model, "-.");
    while (length && strchr("-.", model[length - 1])) model[--length] = 0;
    if (!*name) name = "unnamed";
    int written = snprintf(into, sizeof into - kLongestEnding, "%s/%.*s", folder, kLongestModel, name);
    return written > 0 && static_cast<size_t>(written) < sizeof into - kLongestEnding;
}

bool read_whole(int file, void* into, size_t bytes) {
    auto* at = static_cast<char*>(into);
    while (bytes) {
        ssize_t got = read(file, at, bytes);
        if (got <= 0) return false;
        at += got;
        bytes -= static_cast<size_t>(got);
    }
    return true;
}

// Null: it is none of ours.
Table* table_in(int file, const struct stat& profile) {
    Head head{};
    struct stat there{};
    if (fstat(file, &there) != 0 || !S_ISREG(there.st_mode) || !read_whole(file, &head, sizeof head)) return nullptr;
    auto written_ns =
        static_cast<uint64_t>(profile.st_mtim.tv_sec) * 1000000000 + static_cast<uint64_t>(profile.st_mtim.tv_nsec);
    if (memcmp(head.magic, kMagic, sizeof kMagic) != 0 || head.version != kVersion || head.entries > kMostEntries ||
        head.profile_ns != written_ns || head.profile_bytes != static_cast<uint64_t>(profile.st_size))
        return nullptr;
    auto* table = new (std::nothrow) Table;
    if (!table) return nullptr;
    table->count = head.entries;
    table->entries = new (std::nothrow) Entry[head.entries];
    if (table->entries && read_whole(file, table->entries, head.entries * sizeof(Entry))) return table;
    delete[] table->entries;
    delete table;
    return nullptr;
}

const Table* load(CUdevice device) {
    const char* folder = getenv("COTENANT_KERNEL_PROFILES");
    char model[kLongestModelName] = "";
    if (!folder || *folder != '/' || !naming.cuDeviceGetName) return &nothing;
    if (naming.cuDeviceGetName(model, sizeof model - 1, device) != CUDA_SUCCESS) return &nothing;
    struct Path {
        char text[PATH_MAX];
    };
    std::unique_ptr<Path> named(new (std::nothrow) Path);  // not on the stack: a thread of the program may have little
    if (!named || !path_of(folder, model, named->text)) return &nothing;
    char* path = named->text;
    int saved = errno;
    struct stat profile{};
    Table* found = nullptr;
    char* ending = path + strlen(path);
    strcpy(ending, ".json");
    if (stat(path, &profile) == 0) {
        strcpy(ending, ".table");
        int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (file >= 0) {
            found = table_in(file, profile);
            close(file);
        }
    }
    errno = saved;
    return found ? found : &nothing;
}

const Table& table_of(CUdevice device) {
    if (device < 0 || device >= wire::kGpus) return nothing;
    const Table* known = tables[device].load(std::memory_order_acquire);
    if (known) return *known;
    // Two threads may read it at once: one of the two tables stays.
    const Table* made = load(device);
    if (tables[device].compare_exchange_strong(known, made, std::memory_order_acq_rel)) return *made;
    if (made != &nothing) {
        delete[] made->entries;
        delete made;
    }
    return *known;
}

// A launch may name a CUfunction or a CUkernel, and each has a function of its own to ask.
const char* name_of(const void* function) {
    const char* name = nullptr;
    auto* handle = const_cast<void*>(function);
    Relaxed relaxed;
    if (naming.cuFuncGetName && naming.cuFuncGetName(&name, static_cast<CUfunction>(handle)) == CUDA_SUCCESS && name)
        return name;
    return naming.cuKernelGetName && naming.cuKernelGetName(&name, handle) == CUDA_SUCCESS && name ? name : "";
}

}  // namespace

KernelProfile profile_of(CUdevice device, const KernelSize& size) {
    const Table& table = table_of(device);
    if (!table.count || !size.function) return {};
    const char* name = name_of(size.function);
    size_t length = strnlen(name, kLongestName);
    if (!length) return {};
    uint32_t crc = crc_of(name, length);
    const Entry *first = table.entries, *last = first + table.count;
    for (const Entry *at = std::lower_bound(first, last, crc,
                                            [](const Entry& one, uint32_t sought) { return one.name_crc < sought; });
         at != last && at->name_crc == crc; ++at) {
        bool same = at->name_bytes == length && at->shared_bytes == size.shared_bytes &&
                    std::equal(at->grid, at->grid + 3, size.grid) && std::equal(at->block, at->block + 3, size.block);
        if (!same) continue;
        bool is_class = at->bound <= static_cast<uint32_t>(admission::Bound::memory);
        return {true, is_class ? at->bound : 0, at->us > 0 && at->us < kLongestUs ? at->us : -1};
    }
    return {};
}

}  // namespace tenant
