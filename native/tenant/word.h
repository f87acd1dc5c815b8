// A word that one thread may write while another reads it. It orders nothing: a reader sees what was written with it
// through whatever published it (a pointer that was loaded with acquire, a lock).
#pragma once

#include <atomic>

namespace tenant {

template <class Value>
class Word {
 public:
    constexpr Word(Value value = {}) : value_(value) {}
    operator Value() const { return value_.load(std::memory_order_relaxed); }
    void operator=(Value value) { value_.store(value, std::memory_order_relaxed); }

 private:
    std::atomic<Value> value_;
};

// The same, and a reader that sees the value sees all that was written before it.
template <class Value>
class Published {
 public:
    constexpr Published(Value value = {}) : value_(value) {}
    operator Value() const { return value_.load(std::memory_order_acquire); }
    void operator=(Value value) { value_.store(value, std::memory_order_release); }

 private:
    std::atomic<Value> value_;
};

}  // namespace tenant
