#include "softgpu/mps_client.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace softgpu {

namespace {

constexpr int connection_failed = 805, server_not_ready = 807;  // CUresults
constexpr long patience_s = 10;

MpsClient& client() {
    static MpsClient* one = new MpsClient;
    return *one;
}

// -1: nobody listens; -2: there is no such socket.
int connect_in(int folder, const char* name) {
    if (faccessat(folder, name, F_OK, 0) != 0) return -2;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s", folder, name);
    timeval patience{patience_s, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return fd;
    close(fd);
    return -1;
}

// Introduces this process; empty: no answer.
std::string answer_of(int fd) {
    std::string line = "client " + std::to_string(getpid()) + "\n";
    if (send(fd, line.data(), line.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(line.size())) return "";
    std::string said;
    char byte = 0;
    while (said.size() < 200) {
        ssize_t got = recv(fd, &byte, 1, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return "";
        if (byte == '\n') return said;
        said += byte;
    }
    return "";
}

int number(const char* name, int otherwise) {
    const char* text = std::getenv(name);
    return text && *text ? std::atoi(text) : otherwise;
}

int join_in(int folder) {
    int control = connect_in(folder, "softgpu");
    if (control == -2) return 0;
    if (control < 0) return connection_failed;
    std::string said = answer_of(control);
    close(control);
    unsigned long server = 0;
    char name[64];
    if (std::sscanf(said.c_str(), "server %lu %63s", &server, name) != 2)
        return said.empty() ? connection_failed : server_not_ready;
    int connection = connect_in(folder, name);
    if (connection < 0) return connection_failed;
    if (answer_of(connection) != "ok") {
        close(connection);
        return connection_failed;
    }
    MpsClient& ours = client();
    ours.connection = connection;
    ours.server = server;
    int percentage = number("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", 100);
    ours.percentage = percentage > 0 && percentage < 100 ? static_cast<unsigned>(percentage) : 100;
    ours.priority = number("CUDA_MPS_CLIENT_PRIORITY", 0) > 0;
    return 0;
}

}  // namespace

const MpsClient& mps_client() { return client(); }

int join_mps() {
    const char* given = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
    int folder = open(given && *given ? given : "/tmp/nvidia-mps", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return 0;
    int result = join_in(folder);
    close(folder);
    return result;
}

}  // namespace softgpu
