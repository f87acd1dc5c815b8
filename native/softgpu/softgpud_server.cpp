#include "softgpu/softgpud_server.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <ctime>
#include <map>
#include <stdexcept>

namespace softgpu {

namespace {

using protocol::Kind;
using protocol::Message;

// Ends that nobody waits for are told at least this often, so that queues that are full empty again.
constexpr double unwatched_us = 500;
constexpr size_t read_bytes = 256 << 10;

double clock_us() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

}  // namespace

Server::Server(const std::vector<model::DeviceSpec>& devices, int listener)
    : listener_(listener), received_(read_bytes) {
    for (const model::DeviceSpec& spec : devices) devices_.emplace_back(spec);
    epoll_ = epoll_create1(EPOLL_CLOEXEC);
    timer_ = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (epoll_ < 0 || timer_ < 0) throw std::runtime_error("softgpud: no descriptor is left for its clock");
    for (int fd : {listener_, timer_}) {
        epoll_event interest{};
        interest.events = EPOLLIN;
        interest.data.fd = fd;
        epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &interest);
    }
}

void Server::serve(double patience_us, double linger_us) {
    double end_us = clock_us() + patience_us;
    for (;;) {
        double now = clock_us();
        if (!clients_.empty()) end_us = now + linger_us;
        if (clients_.empty() && now >= end_us) return;
        set_timer(clients_.empty() ? end_us : next_wakeup(now));

        epoll_event events[64];
        int count = epoll_wait(epoll_, events, 64, -1);
        for (int i = 0; i < count; i++) {
            int fd = events[i].data.fd;
            if (fd == timer_) {
                uint64_t expirations;
                timer_at_us_ = model::never;
                if (read(timer_, &expirations, sizeof expirations) < 0) continue;
            } else if (fd == listener_) {
                accept_clients();
            } else if (auto found = clients_.find(fd); found != clients_.end()) {
                if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) read_from(*found->second);
            }
        }
        now = clock_us();
        apply_arrived(now);
        for (size_t i = 0; i < devices_.size(); i++) advance(static_cast<int>(i), now);
        for (auto entry = clients_.begin(); entry != clients_.end();) {
            if (entry->second->dead) {
                drop(*entry->second);
                entry = clients_.erase(entry);
            } else {
                ++entry;
            }
        }
        for (auto& entry : clients_) send_to(*entry.second);
    }
}

bool Server::someone_waits() {
    accept_clients();
    return !clients_.empty();
}

// ---- clients --------------------------------------------------------------------------------------------------------

void Server::accept_clients() {
    for (;;) {
        int fd = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && errno == EINTR) continue;
        if (fd < 0) return;
        auto client = std::make_unique<Client>();
        client->fd = fd;
        client->reserved.resize(devices_.size());
        ucred peer{};
        socklen_t bytes = sizeof peer;
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0) client->pid = peer.pid;
        epoll_event interest{};
        interest.events = EPOLLIN;
        interest.data.fd = fd;
        epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &interest);
        clients_[fd] = std::move(client);
    }
}

// A client of an MPS server that is killed in the middle of a kernel leaves the server in an undefined state: here all
// its other clients fail, as at worst they do.
void Server::fail_company_of(const Client& client) {
    constexpr uint64_t mps_rpc_failure = 806;  // a CUresult
    for (auto& [name, context] : client.contexts) {
        uint64_t server = context->mps_server;
        if (!server || !devices_[static_cast<size_t>(context->device)].model.is_in_kernel(context->id)) continue;
        for (auto& entry : clients_) {
            Client& other = *entry.second;
            if (&other == &client) continue;
            std::vector<uint32_t> failed;
            for (auto& [its_name, its] : other.contexts)
                if (its->mps_server == server) failed.push_back(its_name);
            for (uint32_t its_name : failed) {
                protocol::Event event{mps_rpc_failure, 0, 0, its_name, protocol::EventKind::failed};
                say(other, &event, sizeof event);
                close_context(other, its_name);
            }
        }
    }
}

void Server::drop(Client& client) {
    if (!client.left) fail_company_of(client);
    while (!client.contexts.empty()) close_context(client, client.contexts.begin()->first);
    for (size_t i = 0; i < devices_.size(); i++) devices_[i].reserved -= client.reserved[i];
    close(client.fd);  // leaves the epoll set by itself
}

void Server::read_from(Client& client) {
    ssize_t got = recv(client.fd, received_.data(), received_.size(), 0);
    if (got > 0) client.incoming.insert(client.incoming.end(), received_.begin(), received_.begin() + got);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) client.dead = true;
    for (size_t at = 0; client.incoming.size() - at >= sizeof(Message);) {
        Message message;
        std::memcpy(&message, client.incoming.data() + at, sizeof message);
        if (message.bytes < sizeof message || message.bytes > protocol::largest_message) {
            client.dead = true;
            return;
        }
        if (client.incoming.size() - at < message.bytes) break;
        arrived_.push_back({message.stamp_us, &client, at});
        at += message.bytes;
    }
}

// In the order in which clients sent them, so that whoever is read first has no advantage.
void Server::apply_arrived(double now) {
    std::stable_sort(arrived_.begin(), arrived_.end(),
                     [](const Arrived& a, const Arrived& b) { return a.stamp_us < b.stamp_us; });
    for (const Arrived& arrived : arrived_) {
        apply(*arrived.client, arrived.client->incoming.data() + arrived.offset, std::min(arrived.stamp_us, now));
    }
    std::map<Client*, size_t> used;
    for (const Arrived& arrived : arrived_) {
        uint32_t bytes;
        std::memcpy(&bytes, arrived.client->incoming.data() + arrived.offset, sizeof bytes);
        size_t& end = used[arrived.client];
        end = std::max(end, arrived.offset + bytes);
    }
    for (auto& [client, bytes] : used) {
        client->incoming.erase(client->incoming.begin(), client->incoming.begin() + static_cast<ptrdiff_t>(bytes));
    }
    arrived_.clear();
}

void Server::say(Client& client, const void* data, size_t bytes) {
    const char* first = static_cast<const char*>(data);
    client.outgoing.insert(client.outgoing.end(), first, first + bytes);
}

void Server::send_to(Client& client) {
    while (client.outgoing_sent < client.outgoing.size() && !client.dead) {
        ssize_t sent = send(client.fd, client.outgoing.data() + client.outgoing_sent,
                            client.outgoing.size() - client.outgoing_sent, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && errno == EAGAIN) break;
        if (sent < 0) client.dead = true;
        client.outgoing_sent += static_cast<size_t>(std::max<ssize_t>(sent, 0));
    }
    bool unsent = client.outgoing_sent < client.outgoing.size() && !client.dead;
    if (!unsent) {
        client.outgoing.clear();
        client.outgoing_sent = 0;
    }
    if (unsent != client.waits_to_send) {
        client.waits_to_send = unsent;
        epoll_event interest{};
        interest.events = EPOLLIN;
        if (unsent) interest.events |= EPOLLOUT;
        interest.data.fd = client.fd;
        epoll_ctl(epoll_, EPOLL_CTL_MOD, client.fd, &interest);
    }
}

// ---- messages -------------------------------------------------------------------------------------------------------

Server::Context* Server::context_of(Client& client, const Message& message) {
    auto found = client.contexts.find(message.context);
    return found == client.contexts.end() ? nullptr : found->second.get();
}

Server::Queue* Server::queue_of(Client& client, const Message& message, uint32_t slot) {
    Context* context = context_of(client, message);
    return context && slot < context->queues.size() ? &context->queues[slot] : nullptr;
}

const Server::InFlight* Server::find(const Queue& queue, uint64_t op) const {
    auto found = std::lower_bound(queue.operations.begin(), queue.operations.end(), op,
                                  [](const InFlight& flying, uint64_t wanted) { return flying.op < wanted; });
    return found != queue.operations.end() && found->op == op ? &*found : nullptr;
}

// What names something that is gone is ignored: clients and the end of their contexts cross on the way.
void Server::apply(Client& client, const char* bytes, double now) {
    Message message;
    std::memcpy(&message, bytes, sizeof message);
    if (message.device >= devices_.size() && message.kind != Kind::hello) {
        client.dead = true;
        return;
    }
    // Also gives out every notice so far, so that none can meet a queue's next owner.
    if (message.kind != Kind::hello) advance(message.device, now);
    model::DeviceModel& device = devices_[message.kind == Kind::hello ? 0 : message.device].model;
    uint32_t slot = static_cast<uint32_t>(message.argument & protocol::queue_mask);
    switch (message.kind) {
        case Kind::open_mps_context:
            if (!context_of(client, message))
                open_context(client, message, message.argument, static_cast<double>(message.queue) / 100);
            break;
        case Kind::leave:
            client.left = true;
            break;
        case Kind::open_queue:
            open_queue(client, message);
            break;
        case Kind::close_queue:
            if (Queue* queue = queue_of(client, message, message.queue)) device.close_queue(queue->id);
            break;
        case Kind::close_context:
            close_context(client, message.context);
            break;
        case Kind::submit:
            apply_submit(client, bytes);
            break;
        case Kind::release:
            if (Queue* queue = queue_of(client, message, slot)) {
                if (const InFlight* flying = find(*queue, message.argument)) device.release(flying->id);
            }
            break;
        case Kind::watch:
            if (Queue* queue = queue_of(client, message, slot)) {
                if (const InFlight* flying = find(*queue, message.argument)) watch(*queue, *flying);
            }
            break;
        default:
            apply_call(client, message);
    }
}

Server::Context& Server::open_context(Client& client, const Message& message, uint64_t mps_server, double share) {
    auto context = std::make_unique<Context>();
    context->device = message.device;
    context->mps_server = mps_server;
    context->id = devices_[message.device].model.open_context(mps_server, share);
    return *(client.contexts[message.context] = std::move(context));
}

void Server::open_queue(Client& client, const Message& message) {
    Device& device = devices_[message.device];
    Context* context = context_of(client, message);
    if (!context) context = &open_context(client, message, 0, 1);
    if (message.queue > protocol::queue_mask || context->device != message.device) {
        client.dead = true;
        return;
    }
    while (context->queues.size() <= message.queue) context->queues.emplace_back();
    Queue& queue = context->queues[message.queue];
    queue.device = message.device;
    queue.id = device.model.open_queue(context->id, static_cast<int>(static_cast<int64_t>(message.argument)));
    if (device.routes.size() <= queue.id) device.routes.resize(queue.id + 1);
    device.routes[queue.id] = {&client, message.context, &queue};
}

void Server::close_context(Client& client, uint32_t name) {
    auto found = client.contexts.find(name);
    if (found == client.contexts.end()) return;
    Context& context = *found->second;
    Device& device = devices_[static_cast<size_t>(context.device)];
    device.model.cancel_context(context.id);
    auto ours = [&](Queue* watched) {
        for (Queue& queue : context.queues) {
            if (&queue == watched) return true;
        }
        return false;
    };
    watched_queues_.erase(std::remove_if(watched_queues_.begin(), watched_queues_.end(), ours), watched_queues_.end());
    for (Queue& queue : context.queues) {
        if (device.routes[queue.id].queue == &queue) device.routes[queue.id] = Route();
    }
    client.contexts.erase(found);
}

void Server::apply_submit(Client& client, const char* bytes) {
    protocol::Submit submit;
    std::memcpy(&submit.message, bytes, sizeof submit.message);
    size_t after_bytes = submit.message.bytes - sizeof submit;
    if (submit.message.bytes < sizeof submit || after_bytes % sizeof(uint64_t)) {
        client.dead = true;
        return;
    }
    std::memcpy(&submit, bytes, sizeof submit);
    Queue* queue = queue_of(client, submit.message, submit.message.queue);
    if (!queue || submit.work_kind > static_cast<uint8_t>(model::WorkKind::hold)) return;
    after_.clear();
    for (size_t at = sizeof submit; at < submit.message.bytes; at += sizeof(uint64_t)) {
        uint64_t before;
        std::memcpy(&before, bytes + at, sizeof before);
        Queue* other = queue_of(client, submit.message, static_cast<uint32_t>(before & protocol::queue_mask));
        const InFlight* flying = other ? find(*other, before) : nullptr;
        if (flying) after_.push_back(flying->id);
    }
    model::Work work{static_cast<model::WorkKind>(submit.work_kind), submit.time_us, submit.sms, submit.gbps,
                     submit.work_bytes};
    uint64_t op = submit.message.argument;
    model::DeviceModel& device = devices_[static_cast<size_t>(queue->device)].model;
    InFlight flying{op, device.submit(queue->id, work, after_.data(), after_.size(), op)};
    queue->operations.push_back(flying);
    if (submit.watched) watch(*queue, flying);
}

void Server::watch(Queue& queue, const InFlight& operation) {
    if (queue.watched.empty()) watched_queues_.push_back(&queue);
    auto place = std::upper_bound(queue.watched.begin(), queue.watched.end(), operation.op,
                                  [](uint64_t op, const InFlight& other) { return op < other.op; });
    queue.watched.insert(place, operation);
}

void Server::apply_call(Client& client, const Message& message) {
    protocol::Reply reply{};
    std::map<int, uint64_t> uses;
    reply.ok = 1;
    if (message.kind != Kind::hello) {
        Device& device = devices_[message.device];
        uint64_t& reserved = client.reserved[message.device];
        uint64_t bytes = message.argument;
        if (message.kind == Kind::reserve) {
            reply.ok = bytes <= device.memory_bytes - device.reserved;
            if (!reply.ok) bytes = 0;
            device.reserved += bytes;
            reserved += bytes;
        } else if (message.kind == Kind::give_back) {
            bytes = std::min(bytes, reserved);
            device.reserved -= bytes;
            reserved -= bytes;
        } else if (message.kind == Kind::processes) {
            for (auto& entry : clients_) {
                const Client& other = *entry.second;
                bool present = other.reserved[message.device] > 0;
                for (auto& context : other.contexts) present |= context.second->device == message.device;
                if (present) uses[other.pid] += other.reserved[message.device];
            }
        } else if (message.kind != Kind::memory) {
            client.dead = true;
            return;
        }
        reply.total_bytes = device.memory_bytes;
        reply.free_bytes = device.memory_bytes - device.reserved;
    }
    reply.count = static_cast<uint32_t>(uses.size());
    say(client, &reply, sizeof reply);
    for (auto& [pid, bytes] : uses) {
        protocol::Use use{bytes, pid, 0};
        say(client, &use, sizeof use);
    }
}

// ---- time -----------------------------------------------------------------------------------------------------------

void Server::advance(int index, double to) {
    Device& device = devices_[static_cast<size_t>(index)];
    notices_.clear();
    device.model.advance(to, notices_);
    for (const model::Notice& notice : notices_) {
        const Route& route = device.routes[notice.queue];
        if (!route.client) continue;
        protocol::Event event{notice.tag, notice.start_us, notice.end_us, route.context, protocol::EventKind::done};
        if (notice.kind == model::NoticeKind::reached) event.kind = protocol::EventKind::reached;
        say(*route.client, &event, sizeof event);
        // A hold that is reached waits for its client, who needs no more telling of it.
        auto& watched = route.queue->watched;
        if (!watched.empty() && watched.front().op == notice.tag) {
            while (!watched.empty() && watched.front().op == notice.tag) watched.pop_front();
            if (watched.empty()) {
                watched_queues_.erase(std::find(watched_queues_.begin(), watched_queues_.end(), route.queue));
            }
        }
        if (notice.kind == model::NoticeKind::done) route.queue->operations.pop_front();
    }
}

// Sleeps past events that nobody waits for: the models catch up exactly, whenever they are asked. Work still to be done
// before a watched operation bounds how soon it can end.
double Server::next_wakeup(double now) {
    double wakeup = model::never;
    for (Device& device : devices_) {
        double event = device.model.next_event();
        if (event == model::never) continue;
        double wanted = now + unwatched_us;
        for (const Queue* queue : watched_queues_) {
            if (&devices_[static_cast<size_t>(queue->device)] != &device) continue;
            wanted = std::min(wanted, device.model.earliest_end(queue->watched.front().id));
        }
        wakeup = std::min(wakeup, std::max(event, wanted));
    }
    return wakeup;
}

void Server::set_timer(double at_us) {
    if (at_us == timer_at_us_) return;
    timer_at_us_ = at_us;
    itimerspec setting{};
    if (at_us != model::never) {
        double whole = std::floor(at_us * 1e-6);
        setting.it_value.tv_sec = static_cast<time_t>(whole);
        // Rounded up: a timer that fires before the event would fire again.
        setting.it_value.tv_nsec = std::min(999'999'999L, static_cast<long>(std::ceil((at_us - whole * 1e6) * 1e3)));
        if (setting.it_value.tv_sec == 0 && setting.it_value.tv_nsec == 0) setting.it_value.tv_nsec = 1;
    }
    timerfd_settime(timer_, TFD_TIMER_ABSTIME, &setting, nullptr);
}

}  // namespace softgpu
