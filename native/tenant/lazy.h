// A value that is looked up at its first use, by the first thread that needs it, perhaps by two at once. Of a pointer
// the others also see what it points to. Not a function-local static: a child that is forked while another thread
// initialises one waits for it for ever.
#pragma once

#include <atomic>

namespace tenant {

template <class Value>
class Lazy {
 public:
    // As long as nothing is found, it is looked for again.
    template <class Find>
    Value get(Find&& find) {
        Value value = value_.load(std::memory_order_acquire);
        if (!value) value_.store(value = find(), std::memory_order_release);
        return value;
    }

 private:
    std::atomic<Value> value_{};
};

}  // namespace tenant
