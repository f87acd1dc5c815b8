#include "softgpu/engine.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <new>

#include "softgpu/engine_connection.h"
#include "softgpu/machine.h"
#include "softgpu/mps_client.h"
#include "softgpu/protocol.h"

namespace softgpu {

namespace {

using protocol::Kind;
using protocol::Message;

constexpr int out_of_memory = 2, not_initialized = 3, unknown_error = 999;  // CUresults
constexpr int priorities = 6;                                               // that a stream may have
constexpr size_t queue_depth = 1024;  // operations in flight; a submission beyond it sleeps
constexpr size_t queue_room = 768;    // until so few are left

Message message_of(Kind kind, int device, uint32_t context, uint32_t queue, uint64_t argument) {
    return {sizeof(Message), kind, static_cast<uint16_t>(device), context, queue, argument, now_us()};
}

// Runs code that is not ours; whatever it throws becomes an error of the engine.
template <typename Code>
int contained(Code&& code) {
    try {
        return code();
    } catch (const std::bad_alloc&) {
        return out_of_memory;
    } catch (...) {
        return unknown_error;
    }
}

model::Work hold() {
    model::Work work;
    work.kind = model::WorkKind::hold;
    return work;
}

}  // namespace

// One engine, held by its handle and by the connection's threads while they work for it.
//
// Operations of a queue end in order, and an operation's low bits name its queue: so an operation is done when its
// queue has completed that number, and nothing is kept of finished ones. A queue's slot is used again only when it is
// drained; numbers grow over all queues, so that also holds for its earlier lives.
class EngineState : public Subscriber, public std::enable_shared_from_this<EngineState> {
 public:
    EngineState(std::shared_ptr<Connection> connection, int device)
        : connection_(std::move(connection)), device_(device) {}

    void attach() { context_ = connection_->attach(shared_from_this()); }

    QueueId open_queue(int priority) {
        QueueId id = 0;
        {
            std::lock_guard<std::mutex> lock(mutex_);
            auto free = std::find_if(queues_.begin(), queues_.end(), [](const Queue& queue) { return !queue.open; });
            id = static_cast<QueueId>(free - queues_.begin());
            if (id > protocol::queue_mask) {
                if (error_ == 0) error_ = out_of_memory;
                return 0;
            }
            if (free == queues_.end()) queues_.emplace_back();
            queues_[id].open = true;
            queues_[id].closing = false;
            queues_[id].last = 0;
            if (error_) return id;
            const MpsClient& mps = mps_client();
            if (mps.server && !opened_)
                connection_->append(message_of(Kind::open_mps_context, device_, context_, mps.percentage, mps.server));
            opened_ = true;
            // All streams of a client of low priority come after those of the others.
            if (mps.priority) priority += priorities;
            uint64_t argument = static_cast<uint64_t>(static_cast<int64_t>(priority));
            connection_->append(message_of(Kind::open_queue, device_, context_, id, argument));
        }
        connection_->flush();
        return id;
    }

    void close_queue(QueueId id) {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            if (!usable(id)) return;
            queues_[id].closing = true;
            if (queues_[id].operations.empty()) queues_[id].open = false;
            if (error_) return;
            connection_->append(message_of(Kind::close_queue, device_, context_, id, 0));
        }
        connection_->flush();
    }

    struct Operation {
        Effect effect;
        std::function<bool()> until;
        std::function<void()> call;
        OpId id = 0;
        bool watched = false;
    };

    OpId submit(QueueId id, const model::Work& work, Operation operation, const std::vector<OpId>& after) {
        OpId op = 0;
        {
            std::unique_lock<std::mutex> lock(mutex_);
            if (!usable(id)) return 0;
            if (queues_[id].operations.size() >= queue_depth) {
                queues_[id].room_wanted++;
                changed_.wait(lock, [&] { return error_ || queues_[id].operations.size() <= queue_room; });
                queues_[id].room_wanted--;
            }
            if (error_ || !usable(id)) return 0;
            Queue& queue = queues_[id];
            op = ++count_ << protocol::queue_bits | id;

            unfinished_.clear();
            for (OpId before : after) {
                if (!finished(before)) unfinished_.push_back(before);
            }
            protocol::Submit submit{};
            submit.message = message_of(Kind::submit, device_, context_, id, op);
            size_t after_bytes = unfinished_.size() * sizeof(OpId);
            submit.message.bytes = static_cast<uint32_t>(sizeof submit + after_bytes);
            submit.time_us = work.time_us;
            submit.gbps = work.gbps;
            submit.work_bytes = work.bytes;
            submit.sms = work.sms;
            submit.work_kind = static_cast<uint8_t>(work.kind);
            // Holds are for others to end, and a marker's effect (a value written, an event) for others to see.
            operation.watched = work.kind == model::WorkKind::hold ||
                                (work.kind == model::WorkKind::marker && operation.effect != nullptr);
            submit.watched = operation.watched;

            operation.id = op;
            queue.operations.push_back(std::move(operation));
            queue.last = op;
            connection_->append(submit, unfinished_.data(), after_bytes);
        }
        connection_->flush();
        return op;
    }

    bool done(OpId op) {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            if (error_ || finished(op)) return true;
            if (!watch(op)) return false;
        }
        connection_->flush();
        return false;
    }

    void wait(OpId op) {
        std::unique_lock<std::mutex> lock(mutex_);
        if (error_ || finished(op)) return;
        if (watch(op)) {
            lock.unlock();
            connection_->flush();
            lock.lock();
        }
        changed_.wait(lock, [&] {
            if (error_ || finished(op)) return true;
            Queue& queue = queues_[op & protocol::queue_mask];
            queue.awaited = std::min(queue.awaited, op);
            return false;
        });
    }

    OpId last(QueueId id) {
        std::lock_guard<std::mutex> lock(mutex_);
        return usable(id) ? queues_[id].last : 0;
    }

    int error() {
        std::lock_guard<std::mutex> lock(mutex_);
        return error_;
    }

    // What the failed context had queued must not keep the device from the others.
    void fail(int result) override {
        fail_here(result);
        end_context();
    }

    void fail_here(int result) override {
        std::lock_guard<std::mutex> lock(mutex_);
        if (error_ == 0) error_ = result;
        changed_.notify_all();
    }

    bool reserve(uint64_t bytes) {
        protocol::Reply reply{};
        Message question = message_of(Kind::reserve, device_, context_, 0, bytes);
        if (!connection_->call(question, &reply) || !reply.ok) return false;
        std::lock_guard<std::mutex> lock(mutex_);
        reserved_ += bytes;
        return true;
    }

    void give_back(uint64_t bytes) {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            bytes = std::min(bytes, reserved_);
            reserved_ -= bytes;
        }
        protocol::Reply reply{};
        if (bytes) connection_->call(message_of(Kind::give_back, device_, context_, 0, bytes), &reply);
    }

    MemoryInfo memory() {
        protocol::Reply reply{};
        connection_->call(message_of(Kind::memory, device_, context_, 0, 0), &reply);
        return {reply.free_bytes, reply.total_bytes};
    }

    std::vector<ProcessUse> processes() {
        protocol::Reply reply{};
        std::vector<protocol::Use> uses;
        connection_->call(message_of(Kind::processes, device_, context_, 0, 0), &reply, &uses);
        std::vector<ProcessUse> result;
        for (const protocol::Use& use : uses) result.push_back({use.pid, use.bytes});
        return result;
    }

    void close() {
        std::deque<Queue> dropped;  // destroyed without a lock: effects own objects of the driver
        fail_here(unknown_error);
        end_context();
        connection_->detach(context_);
        {
            std::unique_lock<std::mutex> lock(mutex_);
            if (!connection_->on_reader_thread()) changed_.wait(lock, [this] { return !running_; });
            dropped.swap(queues_);
        }
        give_back(UINT64_MAX);
    }

    // ---- on the connection's threads ----

    void handle(const protocol::Event& event) override {
        if (event.kind == protocol::EventKind::failed) {
            fail(static_cast<int>(event.op));
            return;
        }
        Operation operation;
        {
            std::lock_guard<std::mutex> lock(mutex_);
            QueueId id = static_cast<QueueId>(event.op & protocol::queue_mask);
            if (error_ || id >= queues_.size() || queues_[id].operations.empty()) return;
            Operation& front = queues_[id].operations.front();
            if (front.id != event.op) return;
            operation.effect = std::move(front.effect);
            operation.until = std::move(front.until);
            operation.call = std::move(front.call);
            running_ = event.kind == protocol::EventKind::done;
        }
        if (event.kind == protocol::EventKind::reached) {
            if (operation.until) connection_->begin_wait(shared_from_this(), event.op, std::move(operation.until));
            if (operation.call) connection_->begin_call(shared_from_this(), event.op, std::move(operation.call));
            return;
        }
        int result = 0;
        if (operation.effect) {
            result = contained([&] { return operation.effect(Timing{event.start_us, event.end_us}); });
            operation.effect = nullptr;
        }
        // Before anybody can see that the operation is over.
        if (result) fail_here(result);
        finish(event.op);
        if (result) end_context();
    }

    bool poll(OpId op, const std::function<bool()>& until) override {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            if (error_) return true;
            running_ = true;
        }
        bool over = false;
        int result = contained([&] {
            over = until();
            return 0;
        });
        {
            std::lock_guard<std::mutex> lock(mutex_);
            running_ = false;
            if (error_) {
                changed_.notify_all();
                return true;
            }
            if (over) connection_->append(message_of(Kind::release, device_, context_, 0, op));
        }
        if (result) fail(result);
        return over || result;
    }

    void call(OpId op, const std::function<void()>& function) override {
        if (error()) return;
        int result = contained([&] {
            function();
            return 0;
        });
        if (result) fail(result);
        {
            std::lock_guard<std::mutex> lock(mutex_);
            if (error_) return;
            connection_->append(message_of(Kind::release, device_, context_, 0, op));
        }
        connection_->flush();
    }

    void wait_for_effect() override {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait_for(lock, std::chrono::seconds(1), [this] { return !running_; });
    }

 private:
    struct Queue {
        bool open = false, closing = false;
        OpId last = 0, completed = 0;
        OpId awaited = UINT64_MAX;  // the oldest that a thread sleeps for
        int room_wanted = 0;
        std::deque<Operation> operations;  // in flight
    };

    bool usable(QueueId id) const { return id < queues_.size() && queues_[id].open && !queues_[id].closing; }

    bool finished(OpId op) const {
        QueueId id = static_cast<QueueId>(op & protocol::queue_mask);
        return op == 0 || id >= queues_.size() || op <= queues_[id].completed;
    }

    // True when a message is to be flushed.
    bool watch(OpId op) {
        auto& operations = queues_[op & protocol::queue_mask].operations;
        auto found = std::lower_bound(operations.begin(), operations.end(), op,
                                      [](const Operation& operation, OpId id) { return operation.id < id; });
        if (found == operations.end() || found->id != op || found->watched) return false;
        found->watched = true;
        connection_->append(message_of(Kind::watch, device_, context_, 0, op));
        return true;
    }

    void finish(OpId op) {
        Operation ended;  // destroyed without the lock
        std::lock_guard<std::mutex> lock(mutex_);
        running_ = false;
        if (error_) {
            changed_.notify_all();
            return;
        }
        Queue& queue = queues_[op & protocol::queue_mask];
        ended = std::move(queue.operations.front());
        queue.operations.pop_front();
        queue.completed = op;
        if (queue.closing && queue.operations.empty()) queue.open = false;
        if (op >= queue.awaited || (queue.room_wanted && queue.operations.size() <= queue_room)) {
            queue.awaited = UINT64_MAX;
            changed_.notify_all();
        }
    }

    void end_context() {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            if (!opened_) return;
            opened_ = false;
            connection_->append(message_of(Kind::close_context, device_, context_, 0, 0));
        }
        connection_->flush();
    }

    const std::shared_ptr<Connection> connection_;
    const int device_;
    uint32_t context_ = 0;

    std::mutex mutex_;
    std::condition_variable changed_;
    int error_ = 0;
    bool opened_ = false;   // softgpud knows the context
    bool running_ = false;  // code of the driver runs on the reader thread for this engine
    uint64_t count_ = 0;
    uint64_t reserved_ = 0;
    std::deque<Queue> queues_;
    std::vector<OpId> unfinished_;
};

Engine::Engine(std::shared_ptr<EngineState> state) : state_(std::move(state)) {}

Engine::~Engine() {
    if (forked_child) {
        // Locked or half-changed as it may be, it must not even be destroyed.
        new std::shared_ptr<EngineState>(std::move(state_));
        return;
    }
    state_->close();
}

QueueId Engine::open_queue(int priority) { return forked_child ? 0 : state_->open_queue(priority); }
void Engine::close_queue(QueueId queue) {
    if (!forked_child) state_->close_queue(queue);
}

OpId Engine::submit(QueueId queue, const model::Work& work, Effect effect, const std::vector<OpId>& after) {
    return forked_child ? 0 : state_->submit(queue, work, {std::move(effect), {}, {}}, after);
}
OpId Engine::submit_wait(QueueId queue, std::function<bool()> until, const std::vector<OpId>& after) {
    return forked_child ? 0 : state_->submit(queue, hold(), {{}, std::move(until), {}}, after);
}
OpId Engine::submit_host(QueueId queue, std::function<void()> call, const std::vector<OpId>& after) {
    return forked_child ? 0 : state_->submit(queue, hold(), {{}, {}, std::move(call)}, after);
}

bool Engine::done(OpId op) { return forked_child || state_->done(op); }
void Engine::wait(OpId op) {
    if (!forked_child) state_->wait(op);
}
OpId Engine::last(QueueId queue) { return forked_child ? 0 : state_->last(queue); }
int Engine::error() { return forked_child ? not_initialized : state_->error(); }
void Engine::fail(int result) {
    if (!forked_child) state_->fail(result);
}

bool Engine::reserve(uint64_t bytes) { return !forked_child && state_->reserve(bytes); }
void Engine::release(uint64_t bytes) {
    if (!forked_child) state_->give_back(bytes);
}
MemoryInfo Engine::memory() { return forked_child ? MemoryInfo{0, 0} : state_->memory(); }
std::vector<ProcessUse> Engine::processes() { return forked_child ? std::vector<ProcessUse>() : state_->processes(); }

std::unique_ptr<Engine> Engine::connect(int device_index, std::string* why) {
    try {
        const bool known = device_index >= 0 && static_cast<size_t>(device_index) < machine().size();
        if (machine_configuration().error.empty() && !known) {
            if (why) *why = "the machine has no device " + std::to_string(device_index);
            return nullptr;
        }
        std::shared_ptr<Connection> connection = Connection::get(why);
        if (!connection) return nullptr;
        auto state = std::make_shared<EngineState>(connection, device_index);
        state->attach();
        return std::make_unique<Engine>(state);
    } catch (const std::exception& error) {
        if (why) *why = error.what();
        return nullptr;
    }
}

}  // namespace softgpu
