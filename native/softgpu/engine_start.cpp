// Only one softgpud a configuration, whoever comes first:
//
//   client                                        softgpud
//   connect: refused
//   lock NAME.lock, connect again: refused
//   spawn softgpud (it inherits the lock)  -----> bind, listen, write "ok" to the pipe, close the lock
//   read the pipe, unlock, connect
//                                                 no client for a while: lock, nobody in the backlog: unlink both, end
//
// A client whose connect falls between the last look at the backlog and the end gets no answer to its hello, and begins
// again.
#include "softgpu/engine_start.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <stdexcept>
#include <vector>

#include "softgpu/machine.h"
#include "softgpu/protocol.h"

namespace softgpu {

namespace {

constexpr double patience_s = 20;
constexpr int highest_inherited = 10;  // above every descriptor that the new process is given
constexpr int ready_descriptor = 3, lock_descriptor = 4;

struct Descriptor {
    int fd = -1;
    explicit Descriptor(int number = -1) : fd(number) {}
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    ~Descriptor() { reset(); }
    void reset(int number = -1) {
        if (fd >= 0) close(fd);
        fd = number;
    }
    int take() {
        int number = fd;
        fd = -1;
        return number;
    }
};

[[noreturn]] void refuse(const std::string& what, int error = 0) {
    throw std::runtime_error(error ? what + ": " + std::strerror(error) : what);
}

double seconds() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

void pause_briefly() {
    timespec pause{0, 2'000'000};
    nanosleep(&pause, nullptr);
}

// Whoever can write here can be the GPU of our programs, so it must be ours alone.
void make_private(const std::string& folder) {
    if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) refuse("cannot make " + folder, errno);
    struct stat status{};
    if (lstat(folder.c_str(), &status) != 0) refuse("cannot use " + folder, errno);
    if (!S_ISDIR(status.st_mode) || status.st_uid != getuid() || (status.st_mode & 022)) {
        refuse(folder + " is not a folder that only this user can write to: set COTENANT_SOFTGPU_DIR to one");
    }
}

std::string machine_name(const std::string& text) {
    uint64_t hash = 14695981039346656037ull;  // FNV-1a
    for (unsigned char byte : std::to_string(protocol::version) + "\n" + text) hash = (hash ^ byte) * 1099511628211ull;
    char name[32];
    std::snprintf(name, sizeof name, "gpu-%016llx", static_cast<unsigned long long>(hash));
    return name;
}

int try_connect(const std::string& folder, const std::string& name) {
    // A socket's address holds 107 characters; a folder's descriptor makes any path short.
    Descriptor directory(open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (directory.fd < 0) return -1;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s", directory.fd, name.c_str());
    Descriptor socket_fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (socket_fd.fd < 0) refuse("cannot make a socket", errno);
    while (connect(socket_fd.fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
        if (errno != EINTR) return -1;
    }
    protocol::Message hello{};
    hello.bytes = sizeof hello;
    hello.kind = protocol::Kind::hello;
    if (send(socket_fd.fd, &hello, sizeof hello, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof hello)) return -1;
    timeval patience{static_cast<time_t>(patience_s), 0};
    setsockopt(socket_fd.fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    protocol::Reply reply{};
    ssize_t got;
    while ((got = recv(socket_fd.fd, &reply, sizeof reply, MSG_WAITALL)) < 0 && errno == EINTR) {
    }
    // It is there: a second one beside it would be another GPU.
    if (got < 0 && errno == EAGAIN) refuse("softgpud does not answer in " + folder);
    if (got != static_cast<ssize_t>(sizeof reply) || !reply.ok) return -1;
    timeval forever{0, 0};
    setsockopt(socket_fd.fd, SOL_SOCKET, SO_RCVTIMEO, &forever, sizeof forever);
    return socket_fd.take();
}

// The file may have been removed by a softgpud that ended between our open and our lock: then it locks nothing.
bool lock(const std::string& path, Descriptor* out) {
    out->reset(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (out->fd < 0) refuse("cannot open " + path, errno);
    if (flock(out->fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR) refuse("cannot lock " + path, errno);
        return false;
    }
    struct stat status{};
    return fstat(out->fd, &status) == 0 && status.st_nlink > 0;
}

std::string read_line(int fd) {
    std::string line;
    for (double deadline = seconds() + patience_s; line.empty() || line.back() != '\n';) {
        double left = deadline - seconds();
        pollfd ready{fd, POLLIN, 0};
        int polled = left > 0 ? poll(&ready, 1, static_cast<int>(left * 1000) + 1) : 0;
        if (polled < 0 && errno == EINTR) continue;
        char text[256];
        ssize_t got = polled > 0 ? read(fd, text, sizeof text) : 0;
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        line.append(text, static_cast<size_t>(got));
    }
    return line.substr(0, line.find('\n'));
}

void start(const std::string& folder, const std::string& name, int lock_fd) {
    const MachineConfiguration& machine = machine_configuration();
    std::string program = library_folder() + "/softgpud";
    std::vector<const char*> arguments{program.c_str(), folder.c_str(), name.c_str(), machine.sharing.c_str()};
    for (const std::string& file : machine.files) arguments.push_back(file.c_str());
    arguments.push_back(nullptr);
    // Nothing of the program's own, above all no LD_PRELOAD; the folder, so that one sees whose machine it is.
    std::string setting = "COTENANT_SOFTGPU_DIR=" + folder;
    const char* const environment[] = {setting.c_str(), nullptr};

    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) refuse("cannot make a pipe", errno);
    Descriptor read_end(ends[0]), write_end(ends[1]);
    Descriptor ready(fcntl(write_end.fd, F_DUPFD_CLOEXEC, highest_inherited));
    Descriptor inherited_lock(fcntl(lock_fd, F_DUPFD_CLOEXEC, highest_inherited));
    write_end.reset();
    if (ready.fd < 0 || inherited_lock.fd < 0) refuse("cannot duplicate a descriptor", errno);

    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    for (int fd : {0, 1, 2}) posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDWR, 0);
    posix_spawn_file_actions_adddup2(&actions, ready.fd, ready_descriptor);
    posix_spawn_file_actions_adddup2(&actions, inherited_lock.fd, lock_descriptor);
    sigset_t no_signals, all_signals;
    sigemptyset(&no_signals);
    sigfillset(&all_signals);
    posix_spawnattr_setsigmask(&attributes, &no_signals);
    posix_spawnattr_setsigdefault(&attributes, &all_signals);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    pid_t pid = 0;
    int result = posix_spawn(&pid, program.c_str(), &actions, &attributes, const_cast<char* const*>(arguments.data()),
                             const_cast<char* const*>(environment));
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    if (result != 0) refuse("cannot start " + program, result);
    ready.reset();
    inherited_lock.reset();
    // It forks at once and goes on in the child, so this process keeps no child.
    while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    std::string answer = read_line(read_end.fd);
    if (answer != "ok") refuse(answer.empty() ? program + " ended before it was ready" : answer);
}

int connect_or_start() {
    const MachineConfiguration& machine = machine_configuration();
    if (!machine.error.empty()) refuse(machine.error);
    std::string folder = machine_folder();
    std::string name = machine_name(machine.text);
    make_private(folder);
    Descriptor locked;
    for (double deadline = seconds() + patience_s; seconds() < deadline;) {
        int fd = try_connect(folder, name);
        if (fd >= 0) return fd;
        if (!lock(folder + "/" + name + ".lock", &locked)) {
            locked.reset();
            pause_briefly();
            continue;
        }
        fd = try_connect(folder, name);
        if (fd >= 0) return fd;
        unlink((folder + "/" + name).c_str());  // left by one that was killed
        start(folder, name, locked.fd);
        locked.reset();
    }
    refuse("softgpud does not answer in " + folder);
}

}  // namespace

std::string machine_folder() {
    const char* given = std::getenv("COTENANT_SOFTGPU_DIR");
    if (given && *given) return given;
    const char* runtime = std::getenv("XDG_RUNTIME_DIR");
    if (runtime && *runtime && access(runtime, W_OK) == 0) return std::string(runtime) + "/cotenant-softgpu";
    return "/tmp/cotenant-softgpu-" + std::to_string(getuid());
}

int connect_to_machine(std::string* why) {
    try {
        return connect_or_start();
    } catch (const std::exception& error) {
        if (why) *why = error.what();
        return -1;
    }
}

}  // namespace softgpu
