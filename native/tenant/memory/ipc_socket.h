// How the descriptor of an exported allocation gets from one process to another: over a Unix socket without a file,
// whose name only those know who have the handle. Nobody waits for a peer that is stopped or dead for longer than a
// moment, and no other user is served or believed. Knows nothing of CUDA.
#pragma once

#include <cstdint>

namespace tenant {

// What comes with the descriptor.
struct ExportedRange {
    uint64_t whole_bytes;  // of the physical allocation
    uint64_t offset;       // of what was exported in it
    uint64_t bytes;
};

// The exporter's end: a listening socket, or -1.
int listen_for_importers(const uint8_t (&exporter)[16]);
// The next request, and for which export it is; the caller answers and closes the connection. -1: there is none after
// all.
int next_importer(int listening, uint64_t* key);
// `file` -1: there is no such export (any more).
void answer_importer(int connection, const ExportedRange& range, int file);

// The importer's end.
enum class Asked : uint8_t { got, no_exporter, no_export, silent };
Asked ask_exporter(const uint8_t (&exporter)[16], uint64_t key, ExportedRange* range, int* file);

}  // namespace tenant
