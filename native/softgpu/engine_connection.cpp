#include "softgpu/engine_connection.h"

#include <poll.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <thread>

#include "softgpu/engine_start.h"
#include "softgpu/mps_client.h"

namespace softgpu {

std::atomic<bool> forked_child{false};

namespace {

constexpr int unknown_error = 999, deinitialized = 4, mps_rpc_failure = 806;  // CUresults
// How often a wait on a value is looked at: soon at first, less often when it takes long.
constexpr long quick_poll_ns = 50'000, slow_poll_ns = 200'000;
constexpr double quick_for_us = 5'000;

// Never destroyed: its threads run until the process has ended.
struct Current {
    std::mutex mutex;
    std::shared_ptr<Connection> connection;
    std::atomic<int> descriptors[3]{{-1}, {-1}, {-1}};
};

Current& current() {
    static Current* instance = new Current;
    return *instance;
}

thread_local bool is_reader = false;

// The child's copies would keep softgpud from seeing the parent's end.
void after_fork_in_child() {
    forked_child = true;
    for (auto& descriptor : current().descriptors) {
        int fd = descriptor.exchange(-1);
        if (fd >= 0) close(fd);
    }
}

bool send_all(int fd, const char* data, size_t bytes) {
    while (bytes > 0) {
        ssize_t sent = send(fd, data, bytes, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) return false;
        data += sent;
        bytes -= static_cast<size_t>(sent);
    }
    return true;
}

bool receive_all(int fd, void* data, size_t bytes) {
    char* into = static_cast<char*>(data);
    while (bytes > 0) {
        ssize_t got = recv(fd, into, bytes, MSG_WAITALL);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        into += got;
        bytes -= static_cast<size_t>(got);
    }
    return true;
}

}  // namespace

double now_us() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

std::shared_ptr<Connection> Connection::get(std::string* why) {
    if (forked_child) {
        if (why) *why = "the software GPU cannot be used in a forked child of a process that has used it";
        return nullptr;
    }
    Current& here = current();
    // Before the lock: a child that is forked while it is held must know not to take it.
    static const bool prepared =
        pthread_atfork(nullptr, nullptr, after_fork_in_child) == 0 && std::atexit(at_exit) == 0;
    if (!prepared) {
        if (why) *why = "there is no memory for the software GPU's handlers";
        return nullptr;
    }
    std::lock_guard<std::mutex> lock(here.mutex);
    if (here.connection && !here.connection->lost_) return here.connection;
    int operations = connect_to_machine(why);
    if (operations < 0) return nullptr;
    int calls = connect_to_machine(why);
    if (calls < 0) {
        close(operations);
        return nullptr;
    }
    std::shared_ptr<Connection> connection(new Connection(operations, calls));
    try {
        connection->start_threads(connection);
    } catch (const std::exception& error) {
        if (why) *why = std::string("cannot start the software GPU's threads: ") + error.what();
        connection->lose();
        return nullptr;
    }
    here.descriptors[0] = operations;
    here.descriptors[1] = calls;
    here.descriptors[2] = mps_client().connection;
    here.connection = connection;
    return connection;
}

// Threads keep the connection alive; signals stay with the program's own threads.
void Connection::start_threads(const std::shared_ptr<Connection>& self) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
        std::thread([self] { self->run_calls(); }).detach();
        std::thread([self] { self->read_events(); }).detach();
    } catch (...) {
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        throw;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// From here on the program takes its data apart: no effect may touch it any more, and nobody may sleep for one.
void Connection::at_exit() {
    if (forked_child) return;
    std::shared_ptr<Connection> connection;
    {
        std::unique_lock<std::mutex> lock(current().mutex, std::try_to_lock);
        if (!lock.owns_lock()) return;
        connection = current().connection;
    }
    if (!connection || connection->lost_) return;
    if (mps_client().server) {
        protocol::Message message{};
        message.bytes = sizeof message;
        message.kind = protocol::Kind::leave;
        message.stamp_us = now_us();
        connection->append(message);
        connection->flush();
    }
    auto engines = connection->engines();
    for (auto& engine : engines) engine->fail_here(deinitialized);
    if (connection->on_reader_thread()) return;
    for (auto& engine : engines) engine->wait_for_effect();
}

std::vector<std::shared_ptr<Subscriber>> Connection::engines() {
    std::lock_guard<std::mutex> lock(engines_mutex_);
    std::vector<std::shared_ptr<Subscriber>> all;
    for (auto& entry : engines_) all.push_back(entry.second);
    return all;
}

uint32_t Connection::attach(const std::shared_ptr<Subscriber>& engine) {
    uint32_t context;
    {
        std::lock_guard<std::mutex> lock(engines_mutex_);
        context = next_context_++;
        engines_[context] = engine;
    }
    if (lost_) engine->fail_here(unknown_error);
    if (mps_server_ended_) engine->fail_here(mps_rpc_failure);
    return context;
}

void Connection::detach(uint32_t context) {
    std::shared_ptr<Subscriber> engine;  // dropped after the lock
    std::lock_guard<std::mutex> lock(engines_mutex_);
    auto found = engines_.find(context);
    if (found == engines_.end()) return;
    engine = std::move(found->second);
    engines_.erase(found);
}

bool Connection::on_reader_thread() const { return is_reader; }

// ---- outgoing -------------------------------------------------------------------------------------------------------

void Connection::append_bytes(const void* message, size_t bytes, const void* rest, size_t rest_bytes) {
    const char* first = static_cast<const char*>(message);
    const char* second = static_cast<const char*>(rest);
    std::lock_guard<std::mutex> lock(outgoing_mutex_);
    outgoing_.insert(outgoing_.end(), first, first + bytes);
    if (rest_bytes) outgoing_.insert(outgoing_.end(), second, second + rest_bytes);
}

void Connection::flush() {
    std::unique_lock<std::mutex> lock(outgoing_mutex_);
    if (flushing_) return;
    flushing_ = true;
    while (!outgoing_.empty()) {
        sending_.swap(outgoing_);
        lock.unlock();
        // A failure needs no word here: the reader sees the end of the connection and fails every engine.
        if (!lost_) send_all(operations_, sending_.data(), sending_.size());
        sending_.clear();
        lock.lock();
    }
    flushing_ = false;
}

bool Connection::call(const protocol::Message& question, protocol::Reply* reply, std::vector<protocol::Use>* uses) {
    std::lock_guard<std::mutex> lock(calls_mutex_);
    if (lost_) return false;
    std::vector<protocol::Use> answered;
    bool is_answered = send_all(calls_, reinterpret_cast<const char*>(&question), sizeof question) &&
                       receive_all(calls_, reply, sizeof *reply);
    if (is_answered) answered.resize(reply->count);
    if (!is_answered || !receive_all(calls_, answered.data(), answered.size() * sizeof(protocol::Use))) {
        // The reader will see it too; who has asked sees at once that the answer is none.
        lose();
        return false;
    }
    if (uses) *uses = std::move(answered);
    return true;
}

// ---- the reader thread ----------------------------------------------------------------------------------------------

void Connection::read_events() {
    is_reader = true;
    pthread_setname_np(pthread_self(), "softgpu-reader");
    prctl(PR_SET_TIMERSLACK, 1000ul, 0, 0, 0);
    std::vector<char> buffer(64 << 10);
    size_t filled = 0;
    for (;;) {
        timespec nap{0, now_us() - waiting_since_us_ < quick_for_us ? quick_poll_ns : slow_poll_ns};
        pollfd readable[2] = {{operations_, POLLIN, 0}, {mps_server_ended_ ? -1 : mps_client().connection, POLLIN, 0}};
        int polled = ppoll(readable, 2, waits_.empty() ? nullptr : &nap, nullptr);
        if (polled > 0 && readable[1].revents) fail_with_mps_server();
        if (polled > 0 && readable[0].revents && !receive(&buffer, &filled)) break;
        poll_waits();
        flush();
    }
    waits_.clear();
    lose();
}

// The server says nothing more, so this is its end.
void Connection::fail_with_mps_server() {
    mps_server_ended_ = true;
    for (auto& engine : engines()) engine->fail(mps_rpc_failure);
}

bool Connection::receive(std::vector<char>* buffer, size_t* filled) {
    ssize_t got = recv(operations_, buffer->data() + *filled, buffer->size() - *filled, 0);
    if (got < 0) return errno == EINTR || errno == EAGAIN;
    if (got == 0) return false;
    *filled += static_cast<size_t>(got);
    size_t count = *filled / sizeof(protocol::Event);
    deliver(buffer->data(), count);
    size_t used = count * sizeof(protocol::Event);
    *filled -= used;
    std::memmove(buffer->data(), buffer->data() + used, *filled);
    return true;
}

void Connection::deliver(const char* events, size_t count) {
    std::shared_ptr<Subscriber> engine;
    uint32_t engine_context = 0;
    for (size_t i = 0; i < count; i++) {
        protocol::Event event;
        std::memcpy(&event, events + i * sizeof event, sizeof event);
        if (event.context != engine_context) {
            std::lock_guard<std::mutex> lock(engines_mutex_);
            auto found = engines_.find(event.context);
            engine = found == engines_.end() ? nullptr : found->second;
            engine_context = event.context;
        }
        if (engine) engine->handle(event);
    }
}

void Connection::begin_wait(std::shared_ptr<Subscriber> engine, uint64_t op, std::function<bool()> until) {
    waits_.push_back({std::move(engine), op, std::move(until)});
    waiting_since_us_ = now_us();
}

void Connection::poll_waits() {
    auto over = [](Wait& wait) { return wait.engine->poll(wait.op, wait.until); };
    waits_.erase(std::remove_if(waits_.begin(), waits_.end(), over), waits_.end());
}

// The descriptors stay open: another thread may be about to use them, and their numbers must not mean another file.
void Connection::lose() {
    lost_ = true;
    shutdown(operations_, SHUT_RDWR);
    shutdown(calls_, SHUT_RDWR);
    for (auto& engine : engines()) engine->fail_here(unknown_error);
    {
        std::lock_guard<std::mutex> lock(host_mutex_);
    }
    host_wakeup_.notify_all();
}

// ---- host functions -------------------------------------------------------------------------------------------------

void Connection::begin_call(std::shared_ptr<Subscriber> engine, uint64_t op, std::function<void()> function) {
    {
        std::lock_guard<std::mutex> lock(host_mutex_);
        host_calls_.push_back({std::move(engine), op, std::move(function)});
    }
    host_wakeup_.notify_all();
}

void Connection::run_calls() {
    pthread_setname_np(pthread_self(), "softgpu-host");
    std::unique_lock<std::mutex> lock(host_mutex_);
    for (;;) {
        host_wakeup_.wait(lock, [this] { return lost_ || !host_calls_.empty(); });
        if (lost_) break;
        Call call = std::move(host_calls_.front());
        host_calls_.pop_front();
        lock.unlock();
        call.engine->call(call.op, call.function);
        call = {};
        lock.lock();
    }
}

}  // namespace softgpu
