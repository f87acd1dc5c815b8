// How many streams of lanes may stand at a gate at once. Streams share the channels that the driver has for a context
// (CUDA_DEVICE_MAX_CONNECTIONS, 8 by default), and one that waits keeps its channel: when all of them wait, no other
// stream of the context goes on, whatever its priority. So lanes get half of the channels. A stream without a place
// gets no gates; its launches wait on the CPU while the gate is closed.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "tenant/streams.h"

namespace tenant {

class StandingPlaces {
 public:
    // From the environment, when a lane joins.
    void count() {
        const char* text = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
        int channels = text ? atoi(text) : kDefaultChannels;
        most_.store(std::clamp(channels, 1, kMostChannels) / 2);
    }
    bool any() const { return most_.load(std::memory_order_relaxed) > 0; }

    // By a thread that has entered the stream with an operation. False: there is no place.
    bool take(const void* tenant, StreamState& stream) {
        int most = most_.load(std::memory_order_relaxed);
        for (int i = 0; i < most; ++i)
            if (places_[i].stream.load() == &stream) return true;
        for (int i = 0; i < most; ++i) {
            const void* nobody = nullptr;
            if (places_[i].tenant.load(std::memory_order_relaxed) ||
                !places_[i].tenant.compare_exchange_strong(nobody, tenant))
                continue;
            places_[i].stream.store(&stream);
            return true;
        }
        return false;
    }

    // By the tenant's watcher, under the lock: of the streams that are empty, or gone.
    void free_unused(const void* tenant) {
        for (Place& place : places_) {
            StreamState* stream = place.tenant.load() == tenant ? place.stream.load() : nullptr;
            if (!stream || is_used(*stream)) continue;
            place.stream.store(nullptr);
            // Sequentially consistent: either a launch in this moment sees that it has no place, or we see the launch.
            if (is_used(*stream))
                place.stream.store(stream);
            else
                place.tenant.store(nullptr);
        }
    }

    // In a forked child.
    void forget_all() {
        for (Place& place : places_) {
            place.stream.store(nullptr);
            place.tenant.store(nullptr);
        }
    }

 private:
    static constexpr int kDefaultChannels = 8, kMostChannels = 32;
    struct Place {
        std::atomic<const void*> tenant{nullptr};
        std::atomic<StreamState*> stream{nullptr};
    };
    static bool is_used(const StreamState& stream) {
        bool is_there = stream.key.load() != kNoStream;
        return is_there && (stream.is_being_called() || stream.issued.load() != stream.finished);
    }

    std::atomic<int> most_{0};
    Place places_[kMostChannels / 2];
};

}  // namespace tenant
