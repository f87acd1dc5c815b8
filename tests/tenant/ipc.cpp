// ipc CASE: memory that moves and is shared between processes (native/tenant/memory/ipc_export.h and ipc_import.h),
// over a driver and sockets of this test's own: what is mapped, lent and kept open, and for how long.
#include <dirent.h>
#include <fcntl.h>

#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "../require.h"
#include "tenant/captures.h"
#include "tenant/context_end.h"
#include "tenant/fork.h"
#include "tenant/membership.h"
#include "tenant/memory/ipc_export.h"
#include "tenant/memory/ipc_import.h"
#include "tenant/memory/ipc_socket.h"

namespace {

constexpr uint64_t kWhole = 2 << 20, kOffset = 512, kBytes = 1000;
CUcontext const kFirst = reinterpret_cast<CUcontext>(0x100), kSecond = reinterpret_cast<CUcontext>(0x200);
CUcontext const kGreen = reinterpret_cast<CUcontext>(0x300);  // a green one of the first

CUcontext current = kFirst;
std::map<CUcontext, int> waited;
std::set<CUmemGenericAllocationHandle> handles;
std::map<CUdeviceptr, bool> ranges;                // reserved; whether they are mapped
std::map<CUdeviceptr, std::set<CUdevice>> let_in;  // who gets at them
uint64_t last_handle = 0, last_range = 0;
CUresult mapping = CUDA_SUCCESS, access_given = CUDA_SUCCESS;

CUresult get_current(CUcontext* out) {
    *out = current;
    return CUDA_SUCCESS;
}
CUresult set_current(CUcontext context) {
    current = context;
    return CUDA_SUCCESS;
}
CUresult get_device(CUdevice* out) {
    *out = 1;
    return CUDA_SUCCESS;
}
CUresult synchronize() {
    ++waited[current];
    return CUDA_SUCCESS;
}
CUresult device_count(int* out) {
    *out = 4;
    return CUDA_SUCCESS;
}
CUresult can_access(int* out, CUdevice who, CUdevice whose) {
    REQUIRE(whose == 1 && who != 1);
    *out = who != 2;
    return CUDA_SUCCESS;
}
CUresult import_file(CUmemGenericAllocationHandle* out, void* file, CUmemAllocationHandleType) {
    REQUIRE(fcntl(static_cast<int>(reinterpret_cast<intptr_t>(file)), F_GETFD) >= 0);
    handles.insert(*out = ++last_handle);
    return CUDA_SUCCESS;
}
CUresult release(CUmemGenericAllocationHandle handle) {
    REQUIRE(handles.erase(handle) == 1);
    return CUDA_SUCCESS;
}
CUresult reserve(CUdeviceptr* out, size_t bytes, size_t, CUdeviceptr, unsigned long long) {
    REQUIRE(bytes == kWhole);
    ranges[*out = ++last_range << 30] = false;
    return CUDA_SUCCESS;
}
CUresult map(CUdeviceptr at, size_t bytes, size_t, CUmemGenericAllocationHandle handle, unsigned long long) {
    REQUIRE(bytes == kWhole && handles.count(handle) && !ranges.at(at));
    ranges[at] = mapping == CUDA_SUCCESS;
    return mapping;
}
CUresult unmap(CUdeviceptr at, size_t bytes) {
    REQUIRE(bytes == kWhole && ranges.at(at));
    ranges[at] = false;
    return CUDA_SUCCESS;
}
CUresult give_up(CUdeviceptr at, size_t bytes) {
    REQUIRE(bytes == kWhole && !ranges.at(at));
    ranges.erase(at);
    return CUDA_SUCCESS;
}
CUresult set_access(CUdeviceptr at, size_t bytes, const CUmemAccessDesc* access, size_t count) {
    REQUIRE(bytes == kWhole && count == 1);
    if (access_given == CUDA_SUCCESS) let_in[at].insert(access->location.id);
    return access_given;
}
CUresult export_file(void* out, CUmemGenericAllocationHandle, CUmemAllocationHandleType, unsigned long long) {
    int file = open("/dev/zero", O_RDONLY);
    memcpy(out, &file, sizeof file);
    return CUDA_SUCCESS;
}

size_t open_files() {
    size_t count = 0;
    DIR* folder = opendir("/proc/self/fd");
    while (readdir(folder)) ++count;
    closedir(folder);
    return count;
}

// What the exporter says.
tenant::ExportedRange told{kWhole, kOffset, kBytes};
tenant::Asked answer = tenant::Asked::got;
int questions = 0;
std::function<void()> meanwhile;  // what another thread does while this one asks

// One question at a time to this process's own exporter.
std::mutex asking;
std::condition_variable changed;
uint64_t asked_key = 0;
bool is_asked = false, is_answered = false, was_lent = false;
tenant::ExportedRange lent_range{};

bool is_lent(uint64_t key) {
    std::unique_lock locked(asking);
    asked_key = key;
    is_asked = true;
    is_answered = false;
    changed.notify_all();
    changed.wait(locked, [] { return is_answered; });
    return was_lent;
}

}  // namespace

// The rest of the tenant, as far as it is asked.
namespace tenant {

DriverCalls driver;
Membership* Membership::join() { return nullptr; }
bool mind_forks() { return true; }
CUcontext owner_of(CUcontext context) { return context == kGreen ? kFirst : context; }
int listen_for_importers(const uint8_t (&)[16]) { return open("/dev/null", O_RDONLY); }
int next_importer(int, uint64_t* key) {
    std::unique_lock locked(asking);
    changed.wait(locked, [] { return is_asked; });
    is_asked = false;
    *key = asked_key;
    return open("/dev/null", O_RDONLY);
}
void answer_importer(int, const ExportedRange& range, int file) {
    std::lock_guard locked(asking);
    was_lent = file >= 0;
    lent_range = range;
    is_answered = true;
    changed.notify_all();
}
Asked ask_exporter(const uint8_t (&)[16], uint64_t, ExportedRange* range, int* file) {
    ++questions;
    if (auto act = std::exchange(meanwhile, nullptr)) act();
    *range = told;
    *file = answer == Asked::got ? open("/dev/null", O_RDONLY) : -1;
    return answer;
}

}  // namespace tenant

namespace {

using namespace tenant;

CUipcMemHandle another(uint64_t key) {
    IpcHandle handle{};
    memcpy(handle.mark, IpcHandle::kMark, sizeof handle.mark);
    handle.exporter[0] = 7;
    handle.key = key;
    CUipcMemHandle out;
    memcpy(&out, &handle, sizeof out);
    return out;
}
CUresult opened(uint64_t key, CUdeviceptr* out, unsigned int flags = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) {
    CUresult result = CUDA_ERROR_UNKNOWN;
    REQUIRE(import_allocation(out, another(key), flags, &result));
    return result;
}
bool is_closed(CUdeviceptr address) {
    CUresult result = CUDA_ERROR_UNKNOWN;
    return close_import(address, &result) && result == CUDA_SUCCESS;
}

// It is mapped once, from the first opening to the last closing.
void opening() {
    size_t files = open_files();
    CUdeviceptr first = 0, again = 0, second = 0;
    CUresult result;
    CUipcMemHandle drivers{};
    REQUIRE(!import_allocation(&first, drivers, 0, &result) && !is_closed(1));
    REQUIRE(opened(1, &first) == CUDA_SUCCESS && opened(1, &again) == CUDA_SUCCESS && first == again);
    REQUIRE(opened(2, &second) == CUDA_SUCCESS && second != first && questions == 2 && ranges.size() == 2);
    REQUIRE(first % kWhole == kOffset && handles.empty() && open_files() == files);
    REQUIRE(let_in[first - kOffset] == std::set<CUdevice>({0, 1, 3}));
    MovableRange range{};
    for (CUdeviceptr inside : {first, first + kBytes - 1})
        REQUIRE(imported_range(inside, &range) && range.base == first && range.bytes == kBytes);
    REQUIRE(!imported_range(first - 1, &range) && !imported_range(first + kBytes, &range));
    REQUIRE(is_closed(first) && ranges.size() == 2 && imported_range(first, &range) && waited.empty());
    REQUIRE(is_closed(first) && ranges.size() == 1 && !imported_range(first, &range) && waited[kFirst] == 1);
    REQUIRE(!is_closed(first) && !is_closed(second + 1));
    // It is another mapping then.
    REQUIRE(opened(1, &again) == CUDA_SUCCESS && questions == 3 && is_closed(again) && is_closed(second));
    // Another thread is faster: both have its mapping.
    meanwhile = [&] { REQUIRE(opened(1, &second) == CUDA_SUCCESS); };
    REQUIRE(opened(1, &first) == CUDA_SUCCESS && first == second && ranges.size() == 1 && questions == 5);
    REQUIRE(is_closed(first) && ranges.size() == 1 && is_closed(first) && !is_closed(first));
    REQUIRE(ranges.empty() && open_files() == files);
}

// No thread may wait during a capture: what is closed goes later, or is there again.
void in_captures() {
    CUdeviceptr first = 0, second = 0, again = 0;
    REQUIRE(opened(1, &first) == CUDA_SUCCESS && opened(2, &second) == CUDA_SUCCESS);
    captures.add(16, kFirst, CU_STREAM_CAPTURE_MODE_RELAXED);
    REQUIRE(is_closed(first) && is_closed(second) && !is_closed(first) && ranges.size() == 2 && waited.empty());
    REQUIRE(opened(1, &again) == CUDA_SUCCESS && again == first && questions == 2);
    captures.abandon();
    REQUIRE(opened(3, &again) == CUDA_SUCCESS && ranges.size() == 2 && !is_closed(second));
    REQUIRE(is_closed(first) && is_closed(again) && ranges.empty());
}

// What a context has opened goes with it, and nothing else.
void contexts() {
    CUdeviceptr first = 0, second = 0, third = 0;
    REQUIRE(opened(1, &first) == CUDA_SUCCESS && opened(3, &third) == CUDA_SUCCESS);
    current = kSecond;
    REQUIRE(opened(2, &second) == CUDA_SUCCESS);
    context_ended(kFirst);
    REQUIRE(ranges.size() == 1 && ranges.count(second - kOffset) && !is_closed(first) && !is_closed(third));
    REQUIRE(waited.empty());
    REQUIRE(is_closed(second) && ranges.empty() && waited[kSecond] == 1);
    // What was opened in a green context stays when that ends.
    current = kGreen;
    REQUIRE(opened(1, &first) == CUDA_SUCCESS);
    current = kFirst;
    context_ended(kGreen);
    REQUIRE(is_closed(first) && waited[kFirst] == 1 && !waited.count(kGreen));
    REQUIRE(opened(2, &second) == CUDA_SUCCESS);
    // A child has none of it, and unmaps nothing.
    tell<AtFork>([](const AtFork& one) { one.in_child(); });
    REQUIRE(!is_closed(second) && ranges.size() == 1);
}

// As the driver answers; and nothing is left of what failed.
void failing() {
    size_t files = open_files();
    CUdeviceptr out = 0;
    REQUIRE(opened(1, &out, 2) == CUDA_ERROR_INVALID_VALUE && opened(1, nullptr) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(questions == 0);
    for (auto [said, expected] : {std::pair{Asked::no_exporter, CUDA_ERROR_INVALID_HANDLE},
                                  {Asked::no_export, CUDA_ERROR_INVALID_VALUE},
                                  {Asked::silent, CUDA_ERROR_MAP_FAILED}}) {
        answer = said;
        REQUIRE(opened(1, &out) == expected);
    }
    answer = Asked::got;
    for (ExportedRange range : {ExportedRange{kWhole, kWhole + 1, 0}, {kWhole, kOffset, kWhole - kOffset + 1}}) {
        told = range;
        REQUIRE(opened(1, &out) == CUDA_ERROR_MAP_FAILED && last_handle == 0);
    }
    told = {kWhole, kOffset, kBytes};
    for (CUresult* call : {&mapping, &access_given}) {
        *call = CUDA_ERROR_UNKNOWN;
        REQUIRE(opened(1, &out) == CUDA_ERROR_MAP_FAILED && ranges.empty() && handles.empty());
        *call = CUDA_SUCCESS;
    }
    REQUIRE(open_files() == files && opened(1, &out) == CUDA_SUCCESS);
}

IpcHandle exported(Chunk& chunk, CUdeviceptr base, uint64_t bytes) {
    CUipcMemHandle given;
    IpcHandle handle;
    REQUIRE(export_chunk(chunk) && export_allocation(chunk, base, bytes, &given) && read_ipc_handle(given, &handle));
    return handle;
}

// An export is lent from its first handle to the end of its memory, and no other's end is its own.
void exporting() {
    Chunk one, two, plain;
    one.address = kWhole;
    two.address = 2 * kWhole;
    one.bytes = two.bytes = kWhole;
    REQUIRE(!export_chunk(plain) && !is_own_export({}));
    for (Chunk* chunk : {&one, &two}) chunk->properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    IpcHandle first = exported(one, one.address, 100), beside = exported(one, one.address + 512, 200);
    IpcHandle second = exported(two, two.address, 300);
    REQUIRE(exported(one, one.address, 100).same_export(first) && !first.same_export(beside));
    REQUIRE(!first.same_export(second) && is_own_export(first));
    IpcHandle stranger = first;
    stranger.exporter[3] ^= 1;
    REQUIRE(!is_own_export(stranger) && !stranger.same_export(first));
    size_t files = open_files();
    REQUIRE(is_lent(beside.key) && lent_range.whole_bytes == kWhole && lent_range.offset == 512);
    REQUIRE(lent_range.bytes == 200 && is_lent(first.key) && is_lent(second.key) && !is_lent(first.key + 1));
    end_export(one.address);
    REQUIRE(!is_lent(first.key) && is_lent(beside.key));
    // Another allocation has its address: it is another export.
    REQUIRE(!exported(one, one.address, 50).same_export(first) && !is_lent(first.key));
    end_exports_of(one);
    REQUIRE(!is_lent(beside.key) && is_lent(second.key));
    end_exports_of(two);
    REQUIRE(!is_lent(second.key));
    // The exporter closes what it has lent before it takes the next question, which the last one did not find.
    REQUIRE(!is_lent(second.key) && open_files() <= files - 2 + 1);
}

}  // namespace

int main(int argc, char** argv) {
    driver.cuCtxGetCurrent = get_current;
    driver.cuCtxSetCurrent = set_current;
    driver.cuCtxGetDevice = get_device;
    driver.cuCtxSynchronize = synchronize;
    driver.cuDeviceGetCount = device_count;
    driver.cuDeviceCanAccessPeer = can_access;
    driver.cuMemImportFromShareableHandle = import_file;
    driver.cuMemExportToShareableHandle = export_file;
    driver.cuMemRelease = release;
    driver.cuMemAddressReserve = reserve;
    driver.cuMemMap = map;
    driver.cuMemUnmap = unmap;
    driver.cuMemAddressFree = give_up;
    driver.cuMemSetAccess = set_access;
    const std::map<std::string, void (*)()> cases = {{"opening", opening},
                                                     {"in_captures", in_captures},
                                                     {"contexts", contexts},
                                                     {"failing", failing},
                                                     {"exporting", exporting}};
    auto found = cases.find(argc > 1 ? argv[1] : "");
    if (found == cases.end()) return 2;
    found->second();
    _exit(0);  // the exporter's thread waits for the next question
}
