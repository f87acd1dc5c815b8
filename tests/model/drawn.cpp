// drawn: a digest of each of some devices in virtual time, with contexts, companies, queues and operations that are
// drawn: what nobody thought of together.
#include <cstdio>
#include <cstring>
#include <vector>

#include "model/device_model.h"
#include "sim/random.h"

namespace {

constexpr uint64_t kDrawn = 300;

class Drawn {
 public:
    explicit Drawn(uint64_t seed) : random_(seed), device_(spec()) {}

    unsigned long long digest() {
        for (int step = 0; step < 120; ++step) {
            act();
            if (chance(0.5)) advance(device_.now() + one_of({0.0, 3.7, 250.0, 2000.0}));
        }
        for (model::OpId op : holds_) device_.release(op);
        for (double next; (next = device_.next_event()) != model::never;) advance(next);
        for (model::OpId op : ops_) add(device_.pending(op));
        return hash_;
    }

 private:
    struct Context {
        model::ContextId id;
        std::vector<model::QueueId> queues;
    };

    bool chance(double part) { return random_.uniform() <= part; }
    uint32_t below(size_t most) { return static_cast<uint32_t>(random_.next() % most); }
    template <class T>
    T one_of(std::initializer_list<T> values) {
        return values.begin()[below(values.size())];
    }

    model::DeviceSpec spec() {
        model::DeviceSpec made;
        made.sms = 8;
        made.memory_gbps = 100;
        made.bus_gbps = 10;
        made.slice_us = one_of({300.0, 1000.0});
        made.switch_us = one_of({0.0, 40.0});
        made.launch_us = one_of({0.0, 2.0});
        made.all_at_once = chance(0.2);
        return made;
    }

    void act() {
        if (contexts_.empty() || (contexts_.size() < 6 && chance(0.06))) return open_context();
        Context& context = contexts_[below(contexts_.size())];
        if (chance(0.02)) return cancel(context);
        if (chance(0.01)) {
            while (!contexts_.empty()) cancel(contexts_.front());
            return;
        }
        if (chance(0.04)) device_.set_slice(context.id, one_of({0.0, 100.0, 700.0}));
        if (context.queues.empty() || chance(0.08))
            context.queues.push_back(device_.open_queue(context.id, one_of({-1, 0, 0, 3})));
        uint32_t place = below(context.queues.size());
        submit(context.queues[place]);
        if (chance(0.05)) {
            device_.close_queue(context.queues[place]);
            context.queues.erase(context.queues.begin() + place);
        }
        if (!holds_.empty() && chance(0.3)) {
            uint32_t hold = below(holds_.size());
            device_.release(holds_[hold]);
            if (chance(0.8)) holds_.erase(holds_.begin() + hold);
        }
        if (chance(0.05)) device_.release(ops_[below(ops_.size())]);
        for (model::OpId nobody : {model::OpId{0}, model::OpId{ops_.size() + 1}, ops_.back() + 1}) {
            add(device_.pending(nobody));
            add(device_.earliest_end(nobody));
            device_.release(nobody);
        }
        add(device_.is_in_kernel(context.id));
        for (int i = 0; i < 3; ++i) add(device_.earliest_end(ops_[below(ops_.size())]));
    }

    void open_context() {
        auto company = one_of({uint64_t{0}, uint64_t{0}, uint64_t{7}, uint64_t{9}});
        double share = one_of({1.0, 1.0, 0.5, 0.2, 0.0, 2.0});
        contexts_.push_back({device_.open_context(company, share), {}});
        add(contexts_.back().id);
    }

    void cancel(Context& context) {
        device_.cancel_context(context.id);
        add(device_.valid_context(context.id));
        context = contexts_.back();
        contexts_.pop_back();
    }

    void submit(model::QueueId queue) {
        model::Work work;
        work.kind = static_cast<model::WorkKind>(below(6));
        if (work.kind == model::WorkKind::hold && chance(0.5)) work.kind = model::WorkKind::kernel;
        work.time_us = one_of({-1.0, 0.0, 12.5, 400.0, 3000.0});
        work.sms = one_of({0, 2, 5, 8, 20});
        work.gbps = one_of({0.0, 0.0, 40.0, 150.0});
        work.bytes = one_of({uint64_t{0}, uint64_t{50'000}, uint64_t{9'000'000}});
        std::vector<model::OpId> after;
        for (uint32_t i = below(3); i > 0 && !ops_.empty(); --i) {
            size_t recent = ops_.size() < 8 ? ops_.size() : 8;
            after.push_back(ops_[ops_.size() - 1 - below(recent)]);
        }
        model::OpId op = device_.submit(queue, work, after.data(), after.size(), ops_.size());
        ops_.push_back(op);
        if (work.kind == model::WorkKind::hold) holds_.push_back(op);
    }

    void advance(double to) {
        std::vector<model::Notice> notices;
        add(device_.next_event());
        device_.advance(to, notices);
        for (const model::Notice& notice : notices) {
            for (double us : {notice.start_us, notice.end_us}) add(us);
            for (uint64_t number : {notice.tag, notice.op, uint64_t{notice.queue}}) add(number);
            add(notice.kind);
        }
        add(device_.now());
    }

    template <class T>
    void add(const T& value) {
        unsigned char bytes[sizeof value];
        std::memcpy(bytes, &value, sizeof value);
        for (unsigned char byte : bytes) hash_ = (hash_ ^ byte) * 0x100000001b3;
    }

    sim::Random random_;
    model::DeviceModel device_;
    std::vector<Context> contexts_;
    std::vector<model::OpId> ops_, holds_;
    uint64_t hash_ = 0xcbf29ce484222325;
};

}  // namespace

int main() {
    for (uint64_t seed = 0; seed < kDrawn; ++seed)
        std::printf("%u %016llx\n", static_cast<unsigned>(seed), Drawn(seed).digest());
    return 0;
}
