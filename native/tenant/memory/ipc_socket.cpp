#include "tenant/memory/ipc_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include "wire/sleep.h"

namespace tenant {

namespace {

constexpr int kBacklog = 128;
constexpr int kQuestionPatienceMs = 500;  // a peer that has connected asks at once
constexpr int kAnswerPatienceMs = 10000;  // there may be others before us
constexpr uint64_t kQuestion = 0xc07e10a200000001u;

struct Question {
    uint64_t magic;
    uint64_t key;
};

struct Answer {
    uint64_t magic;
    ExportedRange range;
};

socklen_t address_of(const uint8_t (&exporter)[16], sockaddr_un* out) {
    *out = {};
    out->sun_family = AF_UNIX;
    // A name that begins with a zero is no file, and goes with the socket.
    char* at = out->sun_path + 1;
    at += snprintf(at, 16, "cotenant-ipc-");
    for (uint8_t byte : exporter) at += snprintf(at, 3, "%02x", byte);
    return static_cast<socklen_t>(at - reinterpret_cast<char*>(out));
}

bool is_of_our_user(int connection) {
    ucred peer{};
    socklen_t length = sizeof peer;
    return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

int64_t now_ms() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1000000;
}

// Signals that the program handles do not end it.
bool wait_for_message(int connection, int patience_ms) {
    int64_t deadline = now_ms() + patience_ms;
    for (int64_t left = patience_ms; left > 0; left = deadline - now_ms()) {
        pollfd one{connection, POLLIN, 0};
        int ready = poll(&one, 1, static_cast<int>(left));
        if (ready > 0) return true;
        if (ready < 0 && errno != EINTR) return false;
    }
    return false;
}

bool send_with(int connection, const void* bytes, size_t count, int file) {
    alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int))] = {};
    iovec part{const_cast<void*>(bytes), count};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (file >= 0) {
        message.msg_control = space;
        message.msg_controllen = sizeof space;
        cmsghdr* header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(header), &file, sizeof file);
    }
    return sendmsg(connection, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(count);
}

// A message of just that size; with a descriptor if the sender gave one, else -1.
bool receive_with(int connection, void* bytes, size_t count, int* file) {
    alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int))] = {};
    iovec part{bytes, count};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = space;
    message.msg_controllen = sizeof space;
    *file = -1;
    ssize_t got = recvmsg(connection, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got < 0) return false;
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header))
        if (header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
            header->cmsg_len == CMSG_LEN(sizeof(int)))
            memcpy(file, CMSG_DATA(header), sizeof *file);
    if (got == static_cast<ssize_t>(count) && !(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) return true;
    if (*file >= 0) close(*file);
    *file = -1;
    return false;
}

int new_socket() { return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0); }

// Where an exporter's queue is full, or its process is stopped with a full one.
bool connect_patiently(int connection, const sockaddr_un& address, socklen_t length) {
    timeval patience{kAnswerPatienceMs / 1000, 0};
    setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    int64_t deadline = now_ms() + kAnswerPatienceMs;
    do {
        if (connect(connection, reinterpret_cast<const sockaddr*>(&address), length) == 0) return true;
    } while (errno == EINTR && now_ms() < deadline);
    return false;
}

}  // namespace

int listen_for_importers(const uint8_t (&exporter)[16]) {
    int listening = new_socket();
    if (listening < 0) return -1;
    sockaddr_un address;
    socklen_t length = address_of(exporter, &address);
    if (bind(listening, reinterpret_cast<sockaddr*>(&address), length) == 0 && listen(listening, kBacklog) == 0)
        return listening;
    close(listening);
    return -1;
}

int next_importer(int listening, uint64_t* key) {
    int connection = accept4(listening, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) {
        // Without a descriptor to spare it would come back at once, again and again.
        if (errno != EINTR && errno != ECONNABORTED) wire::nap(10000000);
        return -1;
    }
    Question question{};
    int file = -1;
    bool asked = is_of_our_user(connection) && wait_for_message(connection, kQuestionPatienceMs) &&
                 receive_with(connection, &question, sizeof question, &file);
    if (file >= 0) close(file);
    if (asked && question.magic == kQuestion) {
        *key = question.key;
        return connection;
    }
    close(connection);
    return -1;
}

void answer_importer(int connection, const ExportedRange& range, int file) {
    Answer answer{kQuestion, range};
    send_with(connection, &answer, sizeof answer, file);
}

Asked ask_exporter(const uint8_t (&exporter)[16], uint64_t key, ExportedRange* range, int* file) {
    *file = -1;
    int connection = new_socket();
    if (connection < 0) return Asked::silent;
    sockaddr_un address;
    socklen_t length = address_of(exporter, &address);
    Asked asked = Asked::silent;
    if (!connect_patiently(connection, address, length)) {
        asked = errno == ECONNREFUSED ? Asked::no_exporter : Asked::silent;
    } else if (!is_of_our_user(connection)) {
        asked = Asked::no_export;
    } else {
        Question question{kQuestion, key};
        Answer answer{};
        if (!send_with(connection, &question, sizeof question, -1))
            asked = Asked::no_exporter;
        else if (wait_for_message(connection, kAnswerPatienceMs))
            asked = receive_with(connection, &answer, sizeof answer, file) && answer.magic == kQuestion && *file >= 0
                        ? Asked::got
                        : Asked::no_export;
        *range = answer.range;
    }
    if (asked != Asked::got && *file >= 0) {
        close(*file);
        *file = -1;
    }
    close(connection);
    return asked;
}

}  // namespace tenant
