// One alarm for each tenant, soonest first: a heap that knows where each tenant stands in it.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace sim {

class Timers {
 public:
    static constexpr uint32_t nobody = UINT32_MAX;

    void add_tenant() { place_.push_back(nobody); }

    double soonest_us() const { return heap_.empty() ? 1.0 / 0.0 : heap_[0].us; }
    uint32_t soonest() const { return heap_[0].tenant; }

    void set(uint32_t tenant, double us) {
        uint32_t place = place_[tenant];
        if (us == 1.0 / 0.0) {
            if (place != nobody) remove(place);
            return;
        }
        if (place == nobody) {
            place = static_cast<uint32_t>(heap_.size());
            heap_.push_back({us, tenant});
            place_[tenant] = place;
        } else {
            heap_[place].us = us;
        }
        sift(place);
    }

 private:
    struct Alarm {
        double us;
        uint32_t tenant;
        bool before(const Alarm& other) const { return us != other.us ? us < other.us : tenant < other.tenant; }
    };

    void remove(uint32_t place) {
        place_[heap_[place].tenant] = nobody;
        Alarm last = heap_.back();
        heap_.pop_back();
        if (place == heap_.size()) return;
        heap_[place] = last;
        place_[last.tenant] = place;
        sift(place);
    }

    void swap(uint32_t a, uint32_t b) {
        std::swap(heap_[a], heap_[b]);
        place_[heap_[a].tenant] = a;
        place_[heap_[b].tenant] = b;
    }

    void sift(uint32_t place) {
        while (place > 0 && heap_[place].before(heap_[(place - 1) / 2])) {
            swap(place, (place - 1) / 2);
            place = (place - 1) / 2;
        }
        for (;;) {
            uint32_t least = place;
            for (uint32_t child = 2 * place + 1; child <= 2 * place + 2 && child < heap_.size(); ++child)
                if (heap_[child].before(heap_[least])) least = child;
            if (least == place) return;
            swap(place, least);
            place = least;
        }
    }

    std::vector<Alarm> heap_;
    std::vector<uint32_t> place_;
};

}  // namespace sim
