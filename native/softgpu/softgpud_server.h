// The machine that all clients share: one device model a device, run against the clock, in one thread that sleeps
// whenever nobody waits for what happens next.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "model/device_model.h"
#include "softgpu/protocol.h"

namespace softgpu {

class Server {
 public:
    // `listener` is a listening, non-blocking socket.
    Server(const std::vector<model::DeviceSpec>& devices, int listener);

    // Serves until its clients have been gone for `linger_us`, or none has come for `patience_us`.
    void serve(double patience_us, double linger_us);
    // Whether a client came after all; called when nobody else can be starting another server.
    bool someone_waits();

 private:
    struct InFlight {
        uint64_t op;  // the client's name for it
        model::OpId id;
    };
    struct Queue {
        model::QueueId id = 0;
        int device = 0;
        std::deque<InFlight> operations;
        std::deque<InFlight> watched;  // oldest first; a part of the above
    };
    struct Context {
        model::ContextId id = 0;
        int device = 0;
        uint64_t mps_server = 0;
        std::deque<Queue> queues;  // by the client's slot; stays in place when it grows
    };
    struct Client {
        int fd = -1;
        int pid = 0;
        bool dead = false;
        bool left = false;  // in order
        std::vector<char> incoming, outgoing;
        size_t outgoing_sent = 0;
        bool waits_to_send = false;
        std::unordered_map<uint32_t, std::unique_ptr<Context>> contexts;
        std::vector<uint64_t> reserved;  // by device
    };
    struct Route {  // whose a queue of the model is
        Client* client = nullptr;
        uint32_t context = 0;
        Queue* queue = nullptr;
    };
    struct Device {
        explicit Device(const model::DeviceSpec& spec) : model(spec), memory_bytes(spec.memory_bytes) {}
        model::DeviceModel model;
        uint64_t memory_bytes;
        uint64_t reserved = 0;
        std::vector<Route> routes;
    };
    struct Arrived {
        double stamp_us;
        Client* client;
        size_t offset;  // in its incoming bytes
    };

    void accept_clients();
    void read_from(Client& client);
    void apply_arrived(double now);
    void apply(Client& client, const char* bytes, double now);
    void apply_submit(Client& client, const char* bytes);
    void apply_call(Client& client, const protocol::Message& message);
    void watch(Queue& queue, const InFlight& operation);
    Context* context_of(Client& client, const protocol::Message& message);
    Queue* queue_of(Client& client, const protocol::Message& message, uint32_t slot);
    const InFlight* find(const Queue& queue, uint64_t op) const;
    Context& open_context(Client& client, const protocol::Message& message, uint64_t mps_server, double share);
    void open_queue(Client& client, const protocol::Message& message);
    void fail_company_of(const Client& client);
    void close_context(Client& client, uint32_t context);
    void drop(Client& client);
    void advance(int device, double to);
    void send_to(Client& client);
    double next_wakeup(double now);
    void set_timer(double at_us);
    void say(Client& client, const void* data, size_t bytes);

    std::vector<Device> devices_;
    const int listener_;
    int epoll_ = -1, timer_ = -1;
    double timer_at_us_ = model::never;
    std::unordered_map<int, std::unique_ptr<Client>> clients_;
    std::vector<char> received_;
    std::vector<Arrived> arrived_;
    std::vector<Queue*> watched_queues_;  // those with watched operations
    std::vector<model::Notice> notices_;
    std::vector<model::OpId> after_;
};

}  // namespace softgpu
