// How the descriptor of a lent allocation gets from one process to another: over a Unix socket without a file, whose
// name only those know who have the handle. Nobody waits for a peer that is stopped or dead for longer than a moment,
// and no other user is served or believed. Knows nothing of CUDA.
#pragma once

#include <cstdint>

namespace tenant {

// What comes with the descriptor.
struct LoanTerms {
    uint64_t whole_bytes;  // of the physical allocation
    uint64_t offset;       // of what was lent in it
    uint64_t bytes;
};

// The lender's end: a listening socket, or -1.
int listen_for_borrowers(const uint8_t (&lender)[16]);
// Who asks next, and which loan for; the caller answers and closes the connection. -1: nobody after all.
int next_borrower(int listening, uint64_t* key);
// `file` -1: there is no such loan (any more).
void answer_borrower(int connection, const LoanTerms& terms, int file);

// The borrower's end.
enum class Asked : uint8_t { got, no_lender, no_loan, silent };
Asked ask_lender(const uint8_t (&lender)[16], uint64_t key, LoanTerms* terms, int* file);

}  // namespace tenant
