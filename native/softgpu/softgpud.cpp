// softgpud FOLDER NAME SHARING DEVICE-FILE...
//
// The process of one software machine, started by its first client (engine_start.cpp) and ended by the going of its
// last. Inherits the pipe that says when it is ready, and the lock that keeps others from starting another.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "softgpu/softgpud_server.h"

namespace {

constexpr int ready_descriptor = 3, lock_descriptor = 4, first_foreign_descriptor = 5;
constexpr double patience_us = 5e6;  // the client that started it may be slow to come
constexpr double linger_us = 2e5;

[[noreturn]] void refuse(const std::string& what) {
    throw std::runtime_error("softgpud: " + what + ": " + std::strerror(errno));
}

void close_foreign_descriptors() {
#ifdef SYS_close_range
    if (syscall(SYS_close_range, first_foreign_descriptor, ~0u, 0) == 0) return;
#endif
    long limit = sysconf(_SC_OPEN_MAX);
    for (int fd = first_foreign_descriptor; fd < limit; fd++) close(fd);
}

// In a process group of its own, as nobody's child: neither a terminal's signals nor a waiting parent may reach it. Not
// in a session: Linux gives each session a share of the processors (autogroup), and on a machine that is short of them
// one that works for microseconds at a time was left without any for seconds.
bool go_on_alone() {
    pid_t child = fork();
    if (child != 0) return false;
    setpgid(0, 0);
    umask(077);
    close_foreign_descriptors();
    prctl(PR_SET_TIMERSLACK, 1ul, 0, 0, 0);
    rlimit files{};
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    return true;
}

int listen_at(int folder, const char* name) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s", folder, name);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (listener < 0) refuse("cannot make a socket");
    if (bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) refuse("cannot bind its socket");
    if (listen(listener, 1024) != 0) refuse("cannot listen");
    return listener;
}

void tell_starter(const std::string& line) {
    std::string text = line + "\n";
    while (write(ready_descriptor, text.data(), text.size()) < 0 && errno == EINTR) {
    }
    close(ready_descriptor);
}

// While it holds the lock nobody starts another, so what it removes is its own.
bool end_unless_wanted(softgpu::Server& server, int folder, const std::string& name) {
    std::string lock_name = name + ".lock";
    int lock = openat(folder, lock_name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (lock < 0) return true;
    if (flock(lock, LOCK_EX | LOCK_NB) != 0 || server.someone_waits()) {
        close(lock);
        return false;
    }
    unlinkat(folder, name.c_str(), 0);
    unlinkat(folder, lock_name.c_str(), 0);
    return true;
}

void run(char** arguments) {
    const std::string folder_path = arguments[1], name = arguments[2], sharing = arguments[3];
    std::vector<model::DeviceSpec> devices;
    for (char** file = arguments + 4; *file; file++) {
        devices.push_back(model::read_device(*file));
        devices.back().all_at_once = sharing == "all-at-once";
    }
    int folder = open(folder_path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) refuse("cannot open " + folder_path);
    softgpu::Server server(devices, listen_at(folder, name.c_str()));
    if (chdir("/") != 0) refuse("cannot leave its folder");
    tell_starter("ok");
    close(lock_descriptor);
    server.serve(patience_us, linger_us);
    while (!end_unless_wanted(server, folder, name)) server.serve(linger_us, linger_us);
}

}  // namespace

int main(int count, char** arguments) {
    if (count < 5) {
        std::fprintf(stderr, "softgpud is started by the software GPU's driver library, not by hand\n");
        return 2;
    }
    if (!go_on_alone()) return 0;
    try {
        run(arguments);
    } catch (const std::exception& error) {
        tell_starter(error.what());
        return 1;
    }
    return 0;
}
