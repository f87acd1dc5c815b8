#include "model/device_model.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace model {

namespace {

constexpr double bytes_per_us_and_gbps = 1e3;
constexpr double shortest_slice_us = 1;

double at_least_zero(double value) { return value > 0 && std::isfinite(value) ? value : 0; }

}  // namespace

DeviceModel::DeviceModel(const DeviceSpec& spec)
    : sms_(std::max(spec.sms, 1)),
      memory_gbps_(std::max(spec.memory_gbps, 1e-3)),
      bus_gbps_(std::max(spec.bus_gbps, 1e-3)),
      slice_us_(std::max(spec.slice_us, shortest_slice_us)),
      switch_us_(at_least_zero(spec.switch_us)),
      launch_us_(at_least_zero(spec.launch_us)),
      all_at_once_(spec.all_at_once) {
    if (all_at_once_) {
        lanes_.resize(1);
        resident_ = 0;
    }
}

// ---- contexts and queues --------------------------------------------------------------------------------------------

ContextId DeviceModel::open_context(uint64_t company, double share) {
    ContextId id;
    if (free_contexts_.empty()) {
        id = static_cast<ContextId>(contexts_.size());
        contexts_.emplace_back();
    } else {
        id = free_contexts_.back();
        free_contexts_.pop_back();
    }
    Context& context = contexts_[id];
    context.open = true;
    context.lane = enter_lane(company);
    context.share = share > 0 && share < 1 ? share : 1;
    if (context.share < 1) held_++;
    return id;
}

size_t DeviceModel::enter_lane(uint64_t company) {
    if (all_at_once_) return 0;
    size_t lane = lanes_.size();
    if (company) {
        auto same = [company](const Lane& one) { return one.company == company; };
        lane = static_cast<size_t>(std::find_if(lanes_.begin(), lanes_.end(), same) - lanes_.begin());
    }
    if (lane == lanes_.size()) {
        if (free_lanes_.empty()) {
            lanes_.emplace_back();
        } else {
            lane = free_lanes_.back();
            free_lanes_.pop_back();
        }
        lanes_[lane].company = company;
        lanes_[lane].slice_us = slice_us_;
    }
    lanes_[lane].contexts++;
    return lane;
}

void DeviceModel::leave_lane(size_t lane) {
    if (all_at_once_ || --lanes_[lane].contexts > 0) return;
    lanes_[lane].company = 0;
    free_lanes_.push_back(lane);
    // The lane may soon be another context's, which must not inherit the turn.
    if (resident_ == lane) resident_ = rated_ = SIZE_MAX;
}

void DeviceModel::set_slice(ContextId context, double us) {
    size_t lane = contexts_[context].lane;
    if (lanes_[lane].company) return;
    lanes_[lane].slice_us = std::max(us, shortest_slice_us);
    if (lane == resident_) turn_end_us_ = never;
    changed_ = true;
}

bool DeviceModel::is_in_kernel(ContextId context) const {
    for (QueueId id : contexts_[context].queues) {
        Slot head = queues_[id].head;
        if (head != none && ops_[head].kind == WorkKind::kernel && ops_[head].start_us != never) return true;
    }
    return false;
}

void DeviceModel::cancel_context(ContextId context) {
    std::vector<Slot> dropped;
    for (QueueId id : contexts_[context].queues) {
        Queue& queue = queues_[id];
        for (Slot slot = queue.head; slot != none; slot = ops_[slot].next) dropped.push_back(slot);
        queue.head = queue.tail = none;  // so that nothing in here becomes eligible below
    }
    for (Slot slot : dropped) {
        if (ops_[slot].state == State::running) stop(slot);
    }
    for (Slot slot : dropped) release_dependents(slot);
    for (Slot slot : dropped) free_slot(slot);
    for (QueueId id : contexts_[context].queues) {
        queues_[id] = Queue();
        free_queues_.push_back(id);
    }
    contexts_[context].queues.clear();
    contexts_[context].open = false;
    if (contexts_[context].share < 1) held_--;
    free_contexts_.push_back(context);
    leave_lane(contexts_[context].lane);
    changed_ = true;
    drain_eligible();
}

QueueId DeviceModel::open_queue(ContextId context, int priority) {
    QueueId id;
    if (free_queues_.empty()) {
        id = static_cast<QueueId>(queues_.size());
        queues_.emplace_back();
    } else {
        id = free_queues_.back();
        free_queues_.pop_back();
    }
    queues_[id].open = true;
    queues_[id].priority = priority;
    queues_[id].context = context;
    contexts_[context].queues.push_back(id);
    return id;
}

void DeviceModel::close_queue(QueueId queue) {
    queues_[queue].closing = true;
    if (queues_[queue].head == none) free_queue(queue);
}

void DeviceModel::free_queue(QueueId id) {
    auto& siblings = contexts_[queues_[id].context].queues;
    siblings.erase(std::find(siblings.begin(), siblings.end(), id));
    queues_[id] = Queue();
    free_queues_.push_back(id);
}

// ---- operations -----------------------------------------------------------------------------------------------------

DeviceModel::Slot DeviceModel::take_slot() {
    if (free_op_ == none) {
        ops_.emplace_back();
        return static_cast<Slot>(ops_.size() - 1);
    }
    Slot slot = free_op_;
    free_op_ = ops_[slot].next;
    uint32_t generation = ops_[slot].generation;
    ops_[slot] = Op();
    ops_[slot].generation = generation;
    return slot;
}

void DeviceModel::free_slot(Slot slot) {
    Op& op = ops_[slot];
    op.generation++;
    op.state = State::free;
    op.next = free_op_;
    free_op_ = slot;
}

const DeviceModel::Op* DeviceModel::find(OpId id) const {
    uint64_t slot = (id & UINT32_MAX) - 1;
    if (slot >= ops_.size()) return nullptr;
    const Op& op = ops_[slot];
    return op.generation == id >> 32 && op.state != State::free ? &op : nullptr;
}

OpId DeviceModel::submit(QueueId queue_id, const Work& work, const OpId* after, size_t after_count, uint64_t tag) {
    Slot slot = take_slot();
    Op& op = ops_[slot];
    Queue& queue = queues_[queue_id];
    op.state = State::queued;
    op.kind = work.kind;
    op.queue = queue_id;
    op.order = ++order_;
    op.tag = tag;
    switch (work.kind) {
        case WorkKind::marker:
        case WorkKind::hold:
            break;
        case WorkKind::kernel:
            op.left_us = at_least_zero(work.time_us);
            op.sms = std::max(work.sms, 1);
            op.gbps = at_least_zero(work.gbps);
            break;
        case WorkKind::copy_to_device:
        case WorkKind::copy_to_host:
            op.left_us = static_cast<double>(work.bytes) / (bus_gbps_ * bytes_per_us_and_gbps);
            break;
        case WorkKind::copy_on_device:
            op.left_us = static_cast<double>(work.bytes) / (memory_gbps_ * bytes_per_us_and_gbps);
            break;
    }
    op.earliest_us = now_ + launch_us_;
    queue.submitted_us += op.left_us;
    op.work_before_us = queue.submitted_us;

    for (size_t i = 0; i < after_count; i++) {
        if (!find(after[i])) continue;
        Slot entry = free_dependent_;
        if (entry == none) {
            entry = static_cast<Slot>(dependents_.size());
            dependents_.emplace_back();
        } else {
            free_dependent_ = dependents_[entry].next;
        }
        Op& before = ops_[(after[i] & UINT32_MAX) - 1];
        dependents_[entry] = {slot, op.generation, before.dependents};
        before.dependents = entry;
        op.unmet++;
    }
    if (queue.tail == none) {
        queue.head = slot;
    } else {
        ops_[queue.tail].next = slot;
    }
    queue.tail = slot;
    OpId id = id_of(slot);
    make_eligible_if_due(slot);
    drain_eligible();
    return id;
}

void DeviceModel::release(OpId id) {
    if (!find(id)) return;
    Slot slot = static_cast<Slot>((id & UINT32_MAX) - 1);
    Op& op = ops_[slot];
    if (op.kind != WorkKind::hold) return;
    op.released = true;
    if (op.state == State::held) finish(slot);
    drain_eligible();
}

double DeviceModel::earliest_end(OpId id) const {
    const Op* op = find(id);
    if (!op) return now_;
    const Op& head = ops_[queues_[op->queue].head];
    double head_left = head.left_us - (head.state == State::running ? (now_ - head.since_us) * head.rate : 0);
    return now_ + std::max(0.0, op->work_before_us - head.work_before_us + std::max(0.0, head_left));
}

void DeviceModel::make_eligible_if_due(Slot slot) {
    Op& op = ops_[slot];
    if (op.state != State::queued || op.unmet > 0 || queues_[op.queue].head != slot) return;
    op.state = State::eligible;
    eligible_.push_back(slot);
}

void DeviceModel::drain_eligible() {
    while (eligible_read_ < eligible_.size()) {
        Slot slot = eligible_[eligible_read_++];
        Op& op = ops_[slot];
        if (op.kind == WorkKind::marker) {
            op.start_us = now_;
            finish(slot);
        } else if (op.kind == WorkKind::hold) {
            op.state = State::held;
            op.start_us = now_;
            if (op.released) {
                finish(slot);
            } else {
                notices_.push_back({op.tag, id_of(slot), now_, now_, op.queue, NoticeKind::reached});
            }
        } else if (op.earliest_us > now_) {
            op.state = State::starting;
            starting_.push_back({op.earliest_us, id_of(slot)});
            std::push_heap(starting_.begin(), starting_.end(), std::greater<>());
            next_us_ = std::min(next_us_, op.earliest_us);
        } else {
            run(slot);
        }
    }
    eligible_.clear();
    eligible_read_ = 0;
}

std::vector<DeviceModel::Slot>& DeviceModel::runners(const Op& op) {
    switch (op.kind) {
        case WorkKind::copy_to_device:
            return to_device_;
        case WorkKind::copy_to_host:
            return to_host_;
        case WorkKind::copy_on_device:
            return device_copies_;
        default:
            return lanes_[lane_of(op)].kernels;
    }
}

void DeviceModel::run(Slot slot) {
    Op& op = ops_[slot];
    op.state = State::running;
    op.since_us = now_;
    auto& list = runners(op);
    if (op.kind == WorkKind::kernel && list.empty()) wanting_++;
    auto less_urgent = [this, &op](Slot other) {
        return op.kind == WorkKind::kernel && queues_[ops_[other].queue].priority > queues_[op.queue].priority;
    };
    list.insert(std::find_if(list.begin(), list.end(), less_urgent), slot);
    changed_ = true;
}

// Whoever calls it has the rest shared out again.
void DeviceModel::stop(Slot slot) {
    const Op& op = ops_[slot];
    auto& list = runners(op);
    list.erase(std::find(list.begin(), list.end(), slot));
    if (op.kind == WorkKind::kernel && list.empty()) wanting_--;
}

void DeviceModel::finish(Slot slot) {
    Op& op = ops_[slot];
    if (op.state == State::running) stop(slot);
    notices_.push_back({op.tag, id_of(slot), op.start_us, now_, op.queue, NoticeKind::done});
    QueueId queue_id = op.queue;
    Queue& queue = queues_[queue_id];
    queue.head = op.next;
    if (queue.head == none) queue.tail = none;
    release_dependents(slot);
    free_slot(slot);
    if (queue.head != none) {
        make_eligible_if_due(queue.head);
    } else if (queue.closing) {
        free_queue(queue_id);
    }
}

void DeviceModel::release_dependents(Slot slot) {
    // The list is newest first; what was submitted first is to become eligible first.
    Slot reversed = none;
    for (Slot entry = ops_[slot].dependents; entry != none;) {
        Slot next = dependents_[entry].next;
        dependents_[entry].next = reversed;
        reversed = entry;
        entry = next;
    }
    ops_[slot].dependents = none;
    while (reversed != none) {
        Dependent entry = dependents_[reversed];
        dependents_[reversed].next = free_dependent_;
        free_dependent_ = reversed;
        reversed = entry.next;
        Op& op = ops_[entry.op];
        if (op.generation != entry.generation) continue;
        op.unmet--;
        make_eligible_if_due(entry.op);
    }
}

// ---- time -----------------------------------------------------------------------------------------------------------

double DeviceModel::next_event() {
    settle();
    return notices_.empty() ? next_us_ : now_;
}

void DeviceModel::advance(double to, std::vector<Notice>& notices) {
    settle();
    while (next_us_ <= to) {
        now_ = std::max(now_, next_us_);
        while (!starting_.empty() && starting_.front().at_us <= now_) {
            OpId id = starting_.front().op;
            std::pop_heap(starting_.begin(), starting_.end(), std::greater<>());
            starting_.pop_back();
            if (find(id)) run(static_cast<Slot>((id & UINT32_MAX) - 1));
        }
        due_.clear();
        auto collect = [this](const std::vector<Slot>& running) {
            for (Slot slot : running) {
                if (ops_[slot].end_us <= now_) due_.push_back(slot);
            }
        };
        if (rated_ != SIZE_MAX) collect(lanes_[rated_].kernels);
        collect(device_copies_);
        collect(to_device_);
        collect(to_host_);
        std::sort(due_.begin(), due_.end(), [this](Slot a, Slot b) { return ops_[a].order < ops_[b].order; });
        for (Slot slot : due_) finish(slot);
        changed_ = true;
        settle();
    }
    now_ = std::max(now_, to);
    notices.insert(notices.end(), notices_.begin(), notices_.end());
    notices_.clear();
}

// Lazy: many submissions at one instant cost one sharing-out.
void DeviceModel::settle() {
    drain_eligible();
    if (!changed_) return;
    changed_ = false;
    take_turns();
    share();
    find_next_event();
}

size_t DeviceModel::next_wanting(size_t after) const {
    size_t start = after < lanes_.size() ? after + 1 : 0;
    for (size_t i = 0; i < lanes_.size(); i++) {
        size_t lane = (start + i) % lanes_.size();
        if (wants(lane)) return lane;
    }
    return SIZE_MAX;
}

void DeviceModel::begin_turn(size_t lane) {
    turn_start_us_ = now_;
    if (resident_ != SIZE_MAX && resident_ != lane) {
        switch_end_us_ = now_ + switch_us_;
        turn_start_us_ = switch_end_us_;
    }
    resident_ = lane;
    turn_end_us_ = never;
}

void DeviceModel::take_turns() {
    if (all_at_once_ || wanting_ == 0) {
        turn_end_us_ = never;
        return;
    }
    if (!wants(resident_)) begin_turn(next_wanting(resident_));
    if (wanting_ == 1) {
        turn_end_us_ = never;
        return;
    }
    // While no other context wanted to run, slice followed slice: a newcomer waits for the end of the present one.
    auto set_end = [this] {
        double slice = lanes_[resident_].slice_us;
        double slices = std::floor(std::max(0.0, now_ - turn_start_us_) / slice);
        turn_end_us_ = turn_start_us_ + slice * (slices + 1);
    };
    if (turn_end_us_ == never) set_end();
    if (now_ >= turn_end_us_) {
        begin_turn(next_wanting(resident_));
        set_end();
    }
}

void DeviceModel::set_rate(Slot slot, double rate) {
    Op& op = ops_[slot];
    if (rate == op.rate) return;  // its end stays exactly what it was
    op.left_us = std::max(0.0, op.left_us - (now_ - op.since_us) * op.rate);
    op.since_us = now_;
    op.rate = rate;
    op.end_us = rate > 0 ? now_ + op.left_us / rate : never;
    if (rate > 0 && op.start_us == never) op.start_us = now_;
}

void DeviceModel::share() {
    size_t lane = switch_end_us_ > now_ ? SIZE_MAX : resident_;
    if (rated_ != lane) {
        if (rated_ != SIZE_MAX) {
            for (Slot slot : lanes_[rated_].kernels) set_rate(slot, 0);
        }
        rated_ = lane;
    }
    static const std::vector<Slot> nothing;
    const std::vector<Slot>& kernels = lane == SIZE_MAX ? nothing : lanes_[lane].kernels;

    if (held_) {
        asked_by_.assign(contexts_.size(), 0);
        for (Slot slot : kernels) asked_by_[queues_[ops_[slot].queue].context] += ops_[slot].sms;
    }
    auto priority = [&](size_t i) { return queues_[ops_[kernels[i]].queue].priority; };
    auto each_level = [&](auto&& visit) {
        double free_sms = sms_;
        for (size_t first = 0, last; first < kernels.size(); first = last) {
            double asked = 0;
            for (last = first; last < kernels.size() && priority(last) == priority(first); last++) {
                asked += ops_[kernels[last]].sms * held_to_share(kernels[last]);
            }
            double speed = asked <= free_sms ? 1 : free_sms / asked;
            for (size_t i = first; i < last; i++) visit(kernels[i], speed * held_to_share(kernels[i]));
            free_sms = std::max(0.0, free_sms - asked);
        }
    };
    double drawn_gbps = memory_gbps_ * static_cast<double>(device_copies_.size());
    each_level([&](Slot slot, double speed) { drawn_gbps += ops_[slot].gbps * speed; });
    double bandwidth = drawn_gbps > memory_gbps_ ? memory_gbps_ / drawn_gbps : 1;
    each_level([&](Slot slot, double speed) { set_rate(slot, ops_[slot].gbps > 0 ? speed * bandwidth : speed); });
    for (Slot slot : device_copies_) set_rate(slot, bandwidth);
    share_link(to_device_);
    share_link(to_host_);
}

// What a kernel gets of the SMs that it asks for, where its context is held to a share of them all.
double DeviceModel::held_to_share(Slot slot) const {
    if (!held_) return 1;
    ContextId context = queues_[ops_[slot].queue].context;
    return std::min(1.0, contexts_[context].share * sms_ / asked_by_[context]);
}

void DeviceModel::share_link(const std::vector<Slot>& copies) {
    for (Slot slot : copies) set_rate(slot, 1.0 / static_cast<double>(copies.size()));
}

void DeviceModel::find_next_event() {
    while (!starting_.empty() && !find(starting_.front().op)) {
        std::pop_heap(starting_.begin(), starting_.end(), std::greater<>());
        starting_.pop_back();
    }
    next_us_ = starting_.empty() ? never : starting_.front().at_us;
    auto soonest = [this](const std::vector<Slot>& running) {
        for (Slot slot : running) next_us_ = std::min(next_us_, ops_[slot].end_us);
    };
    if (rated_ != SIZE_MAX) soonest(lanes_[rated_].kernels);
    soonest(device_copies_);
    soonest(to_device_);
    soonest(to_host_);
    next_us_ = std::min(next_us_, turn_end_us_);
    if (switch_end_us_ > now_) next_us_ = std::min(next_us_, switch_end_us_);
}

}  // namespace model
