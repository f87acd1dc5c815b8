// Writes a trace's bytes. docs/traces.md draws the layout; src/cotenant/traces/reader.py reads it.
//
// A file is a header and then blocks. Each block has a checksum and is written by one call: however the process ends,
// the file is good up to its last whole block.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "tenant/growing_array.h"

namespace tenant {

enum class TraceKind : uint8_t { kernel, graph, copy, fill, wait, allocate, free };
enum class Direction : uint8_t { unknown, to_device, to_host, on_device, on_host, between_devices };

// Bytes that grow. Where memory ends, `failed` is set and nothing more is added.
class Bytes {
 public:
    Bytes() = default;
    ~Bytes() { bytes_.discard(); }
    Bytes(const Bytes&) = delete;
    Bytes& operator=(const Bytes&) = delete;

    void clear() { bytes_.clear(); }
    const uint8_t* data() const { return bytes_.data(); }
    size_t size() const { return bytes_.count(); }
    bool failed() const { return failed_; }

    void add(const void* bytes, size_t count) {
        failed_ = failed_ || !bytes_.add(static_cast<const uint8_t*>(bytes), count);
    }
    void byte(uint8_t value) { add(&value, 1); }
    void fixed(uint64_t value, int bytes) { add(&value, bytes); }  // little-endian, as all machines this runs on
    void varint(uint64_t value);

 private:
    GrowingArray<uint8_t> bytes_;
    bool failed_ = false;
};

// One operation, with the numbers that its shape and stream have in the file.
struct TraceOperation {
    uint64_t time_ns;  // CLOCK_MONOTONIC, when the call had been made
    uint64_t wait_ns;  // how long the call kept its thread; 0: not worth a note
    uint64_t bytes;
    uint32_t shape;  // 1 + its number; 0: none
    uint16_t stream;
    uint16_t thread;
    TraceKind kind;
    Direction direction;
    bool overlaps = false;  // other threads made calls while it waited; set by the coder

    bool is_like(const TraceOperation& other) const {
        return bytes == other.bytes && shape == other.shape && stream == other.stream && thread == other.thread &&
               kind == other.kind && direction == other.direction && overlaps == other.overlaps &&
               !wait_ns == !other.wait_ns;
    }
};

// The time between two calls takes a byte: five digits and a power of two, where it is short; longer ones and waits
// stand in full, so that a long one's error does not displace the short ones behind it.
struct GapCode {
    static constexpr uint8_t kLong = 255;
    static constexpr uint64_t kLongFromNs = 63488;
    static constexpr uint64_t kUnitNs = 16;  // of what stands in full

    static uint8_t of(uint64_t ns);
    static uint64_t meaning(uint8_t code);
};

// The operations of one block. A loop's second round costs a byte an operation: its time.
class OperationCoder {
 public:
    static constexpr uint32_t kMost = 32768;

    bool is_full() const { return count_ == kMost; }
    uint32_t count() const { return count_; }
    uint64_t first_ns() const { return operations_[0].time_ns; }
    void add(const TraceOperation& operation) { operations_[count_++] = operation; }
    // Adds an operations record's body and starts anew.
    void write(Bytes& out, uint64_t epoch_ns);

 private:
    uint16_t word_of(const TraceOperation& operation);
    void write_words(Bytes& out);
    void write_order(Bytes& out);
    uint64_t find_gaps(uint64_t epoch_ns);

    static constexpr uint32_t kPlaces = 2 * kMost;
    TraceOperation operations_[kMost];
    uint32_t count_ = 0;
    uint64_t gaps_ns_[kMost];
    uint16_t words_[kMost];          // the operation's number among those that are alike
    uint32_t first_of_word_[kMost];  // an operation that is so
    uint32_t word_count_ = 0;
    uint32_t word_places_[kPlaces];  // by hash: 1 + word
    uint32_t last_seen_[kPlaces];    // by hash of four words: 1 + where they were last
};

class TraceFile {
 public:
    // Makes a new file: `path`, or `path.PID` where that exists. False: it cannot; errno says why.
    bool create(const char* path);
    // False: it cannot, and the file is as before; errno says why.
    bool append_block(const Bytes& payload);

    const char* path() const { return path_; }
    uint64_t size() const { return size_; }
    uint64_t epoch_ns() const { return epoch_ns_; }

 private:
    bool append(const Bytes& bytes);

    char path_[4096] = {};
    uint64_t size_ = 0;
    uint64_t epoch_ns_ = 0;
    dev_t device_ = 0;
    ino_t inode_ = 0;
    Bytes framed_;
};

}  // namespace tenant
