#include "tenant/memory/ipc_export.h"

#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <atomic>

#include "tenant/fork.h"
#include "tenant/locked.h"
#include "tenant/memory/ipc_socket.h"
#include "tenant/memory/table.h"
#include "tenant/own_file.h"
#include "tenant/own_thread.h"

namespace tenant {

namespace {

struct Export {
    uint64_t key;
    ExportedRange range;
    OwnFile file;  // its chunk's
};

// Held for a moment only: neither the driver nor a peer is waited for with it.
Lock lock{Rank::ipc_export};
MemoryTable<Export> exports;  // by the address that the program knows
std::atomic<uint64_t> export_count{0};
uint8_t exporter[16];
OwnFile listening;

// A child exports nothing of what it has inherited, nor keeps it alive. There is only this thread, so that nothing else
// is closed where exports share a file.
void forget_in_child() {
    listening.close();
    exports.remove_if([](uint64_t, Export& exported) {
        exported.file.close();
        return true;
    });
    export_count.store(0);
    lock.renew();
}
void before_fork() { lock.lock(); }
void after_fork() { lock.unlock(); }
LISTEN(AtFork, ForkStep::ipc_export, forget_in_child, before_fork, after_fork)

// A descriptor that the caller closes, or -1.
int file_for(uint64_t key, ExportedRange* range) {
    Locked locked(lock);
    int file = -1;
    exports.each([&](uint64_t, const Export& exported) {
        if (exported.key != key || file >= 0) return;
        *range = exported.range;
        file = fcntl(exported.file.descriptor(), F_DUPFD_CLOEXEC, 0);
    });
    return file;
}

void* exporter_main(void*) {
    pthread_setname_np(pthread_self(), "cotenant-export");
    for (;;) {
        uint64_t key = 0;
        int importer = next_importer(listening.descriptor(), &key);
        if (importer < 0) continue;
        ExportedRange range{};
        int file = file_for(key, &range);
        answer_importer(importer, range, file);
        if (file >= 0) close(file);
        close(importer);
    }
}

bool by_chance(void* out, size_t bytes) { return getrandom(out, bytes, GRND_NONBLOCK) == static_cast<ssize_t>(bytes); }

// With the lock.
bool is_exporting() {
    if (listening.exists()) return true;
    if (!mind_forks() || !by_chance(exporter, sizeof exporter)) return false;
    listening = OwnFile(listen_for_importers(exporter));
    if (!listening.exists()) return false;
    if (start_own_thread(exporter_main, nullptr)) return true;
    listening.close();
    return false;
}

const Export* export_of(const Chunk& chunk, CUdeviceptr base, uint64_t bytes) {
    if (Export* there = exports.find(base)) return there;
    Export exported{0, {chunk.bytes, base - chunk.address, bytes}, chunk.export_file};
    if (!by_chance(&exported.key, sizeof exported.key)) return nullptr;
    const Export* entered = exports.enter(base, exported);
    if (entered) export_count.store(exports.count());
    return entered;
}

}  // namespace

bool export_chunk(Chunk& chunk) {
    if (chunk.export_file.exists()) return true;
    if (!(chunk.properties.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) return false;
    int file = -1;
    if (driver.cuMemExportToShareableHandle(&file, chunk.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) !=
        CUDA_SUCCESS)
        return false;
    fcntl(file, F_SETFD, FD_CLOEXEC);
    chunk.export_file = OwnFile(file);
    return true;
}

bool export_allocation(const Chunk& chunk, CUdeviceptr base, uint64_t bytes, CUipcMemHandle* out) {
    Locked locked(lock);
    const Export* exported = is_exporting() ? export_of(chunk, base, bytes) : nullptr;
    if (!exported) return false;
    IpcHandle handle{};
    memcpy(handle.mark, IpcHandle::kMark, sizeof handle.mark);
    memcpy(handle.exporter, exporter, sizeof handle.exporter);
    handle.key = exported->key;
    handle.pid = static_cast<uint32_t>(getpid());
    memcpy(out, &handle, sizeof *out);
    return true;
}

void end_export(CUdeviceptr base) {
    if (!export_count.load()) return;
    Locked locked(lock);
    Export gone;
    if (exports.take(base, &gone)) export_count.store(exports.count());
}

void end_exports_of(Chunk& chunk) {
    if (!chunk.export_file.exists()) return;
    Locked locked(lock);
    exports.remove_if([&](uint64_t base, const Export&) { return chunk.contains(base); });
    export_count.store(exports.count());
    chunk.export_file.close();
}

bool is_own_export(const IpcHandle& handle) {
    Locked locked(lock);
    return listening.exists() && memcmp(handle.exporter, exporter, sizeof exporter) == 0;
}

}  // namespace tenant
