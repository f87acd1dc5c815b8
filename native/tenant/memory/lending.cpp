#include "tenant/memory/lending.h"

#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <atomic>

#include "tenant/fork.h"
#include "tenant/locked.h"
#include "tenant/memory/loan_socket.h"
#include "tenant/memory/table.h"
#include "tenant/own_thread.h"

namespace tenant {

namespace {

struct Loan {
    uint64_t key;
    LoanTerms terms;
    int file;  // its chunk's
};

// Held for a moment only: neither the driver nor a peer is waited for with it.
Lock lock{Rank::ipc_export};
MemoryTable<Loan> loans;  // by the address that the program knows
std::atomic<uint64_t> loan_count{0};
uint8_t lender[16];
int listening = -1;

// It lends nothing of what it has inherited, nor keeps it alive. There is only this thread, so that nothing else is
// closed where loans share a file.
void forget_in_child() {
    if (listening >= 0) close(listening);
    listening = -1;
    loans.remove_if([](uint64_t, const Loan& loan) {
        close(loan.file);
        return true;
    });
    loan_count.store(0);
    lock.renew();
}
void before_fork() { lock.lock(); }
void after_fork() { lock.unlock(); }
LISTEN(AtFork, ForkStep::ipc_export, forget_in_child, before_fork, after_fork)

// A descriptor that the caller closes, or -1.
int file_for(uint64_t key, LoanTerms* terms) {
    Locked locked(lock);
    int file = -1;
    loans.each([&](uint64_t, const Loan& loan) {
        if (loan.key != key || file >= 0) return;
        *terms = loan.terms;
        file = fcntl(loan.file, F_DUPFD_CLOEXEC, 0);
    });
    return file;
}

void* lender_main(void*) {
    pthread_setname_np(pthread_self(), "cotenant-lender");
    for (;;) {
        uint64_t key = 0;
        int borrower = next_borrower(listening, &key);
        if (borrower < 0) continue;
        LoanTerms terms{};
        int file = file_for(key, &terms);
        answer_borrower(borrower, terms, file);
        if (file >= 0) close(file);
        close(borrower);
    }
}

bool by_chance(void* out, size_t bytes) { return getrandom(out, bytes, GRND_NONBLOCK) == static_cast<ssize_t>(bytes); }

// With the lock.
bool is_lending() {
    if (listening >= 0) return true;
    if (!mind_forks() || !by_chance(lender, sizeof lender)) return false;
    listening = listen_for_borrowers(lender);
    if (listening < 0) return false;
    if (start_own_thread(lender_main, nullptr)) return true;
    close(listening);
    listening = -1;
    return false;
}

const Loan* loan_of(const Chunk& chunk, CUdeviceptr base, uint64_t bytes) {
    if (Loan* there = loans.find(base)) return there;
    Loan loan{0, {chunk.bytes, base - chunk.address, bytes}, chunk.lent_file};
    if (!by_chance(&loan.key, sizeof loan.key)) return nullptr;
    const Loan* entered = loans.enter(base, loan);
    if (entered) loan_count.store(loans.count());
    return entered;
}

}  // namespace

bool export_chunk(Chunk& chunk) {
    if (chunk.lent_file >= 0) return true;
    if (!(chunk.properties.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) return false;
    int file = -1;
    if (driver.cuMemExportToShareableHandle(&file, chunk.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) !=
        CUDA_SUCCESS)
        return false;
    fcntl(file, F_SETFD, FD_CLOEXEC);
    chunk.lent_file = file;
    return true;
}

bool lend(const Chunk& chunk, CUdeviceptr base, uint64_t bytes, CUipcMemHandle* out) {
    Locked locked(lock);
    const Loan* loan = is_lending() ? loan_of(chunk, base, bytes) : nullptr;
    if (!loan) return false;
    LoanHandle handle{};
    memcpy(handle.mark, LoanHandle::kMark, sizeof handle.mark);
    memcpy(handle.lender, lender, sizeof handle.lender);
    handle.key = loan->key;
    handle.pid = static_cast<uint32_t>(getpid());
    memcpy(out, &handle, sizeof *out);
    return true;
}

void end_loan(CUdeviceptr base) {
    if (!loan_count.load()) return;
    Locked locked(lock);
    Loan gone;
    if (loans.take(base, &gone)) loan_count.store(loans.count());
}

void end_loans_of(Chunk& chunk) {
    if (chunk.lent_file < 0) return;
    Locked locked(lock);
    loans.remove_if([&](uint64_t base, const Loan&) { return chunk.contains(base); });
    loan_count.store(loans.count());
    close(chunk.lent_file);
    chunk.lent_file = -1;
}

bool is_own_loan(const LoanHandle& handle) {
    Locked locked(lock);
    return listening >= 0 && memcmp(handle.lender, lender, sizeof lender) == 0;
}

}  // namespace tenant
