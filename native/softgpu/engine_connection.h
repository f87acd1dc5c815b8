// A process's connections to its machine, shared by all of its engines, with the two threads that serve them: the
// reader runs effects and polls waits, the caller runs host functions.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "softgpu/protocol.h"

namespace softgpu {

double now_us();  // CLOCK_MONOTONIC

// Set in a forked child, where no connection and no lock of the parent may be touched.
extern std::atomic<bool> forked_child;

// What the connection knows of an engine. Called on the connection's threads, without a lock held.
class Subscriber {
 public:
    virtual ~Subscriber() = default;
    virtual void handle(const protocol::Event& event) = 0;
    // Runs `until` unless the engine has ended; true when the wait is over, in one way or the other.
    virtual bool poll(uint64_t op, const std::function<bool()>& until) = 0;
    virtual void call(uint64_t op, const std::function<void()>& function) = 0;
    virtual void fail(int result) = 0;
    virtual void fail_here(int result) = 0;  // an error that softgpud need not hear of
    virtual void wait_for_effect() = 0;      // at the process's end: for about a second at most
};

class Connection {
 public:
    // The process's connection, made when there is none or the last was lost. Null with a line in `why`.
    static std::shared_ptr<Connection> get(std::string* why);

    // Returns the context's id on this connection; at once in error where the connection is lost.
    uint32_t attach(const std::shared_ptr<Subscriber>& engine);
    void detach(uint32_t context);

    // Puts a message into the outgoing order: cheap, no system call, may be called under an engine's lock.
    template <typename Whole>
    void append(const Whole& message, const void* rest = nullptr, size_t rest_bytes = 0) {
        append_bytes(&message, sizeof message, rest, rest_bytes);
    }
    // Sends what was appended, unless another thread is just sending, which then sends it all. Never under a lock.
    void flush();

    // One question, one answer; false when softgpud is lost. May be called from any thread, effects included.
    bool call(const protocol::Message& question, protocol::Reply* reply, std::vector<protocol::Use>* uses = nullptr);

    // From the reader thread: a hold was reached.
    void begin_wait(std::shared_ptr<Subscriber> engine, uint64_t op, std::function<bool()> until);
    void begin_call(std::shared_ptr<Subscriber> engine, uint64_t op, std::function<void()> function);

    bool on_reader_thread() const;

 private:
    struct Wait {
        std::shared_ptr<Subscriber> engine;
        uint64_t op;
        std::function<bool()> until;
    };
    struct Call {
        std::shared_ptr<Subscriber> engine;
        uint64_t op;
        std::function<void()> function;
    };

    Connection(int operations, int calls) : operations_(operations), calls_(calls) {}
    static void at_exit();
    void append_bytes(const void* message, size_t bytes, const void* rest, size_t rest_bytes);
    void start_threads(const std::shared_ptr<Connection>& self);
    void read_events();
    void fail_with_mps_server();
    void run_calls();
    bool receive(std::vector<char>* buffer, size_t* filled);
    void deliver(const char* events, size_t count);
    void poll_waits();
    void lose();
    std::vector<std::shared_ptr<Subscriber>> engines();

    const int operations_, calls_;
    std::atomic<bool> lost_{false};

    std::mutex engines_mutex_;
    uint32_t next_context_ = 1;
    std::unordered_map<uint32_t, std::shared_ptr<Subscriber>> engines_;

    std::mutex outgoing_mutex_;
    std::vector<char> outgoing_, sending_;
    bool flushing_ = false;

    std::mutex calls_mutex_;

    std::atomic<bool> mps_server_ended_{false};
    std::vector<Wait> waits_;  // the reader thread's own
    double waiting_since_us_ = 0;

    std::mutex host_mutex_;
    std::condition_variable host_wakeup_;
    std::deque<Call> host_calls_;
};

}  // namespace softgpu
