#include "tenant/memory/host_memory.h"

#include <fcntl.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tenant {

namespace {

enum class Read { done, not_there, failed };

template <size_t size>
Read read_text(const char* path, char (&text)[size]) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return errno == ENOENT || errno == ENOTDIR || errno == EACCES ? Read::not_there : Read::failed;
    ssize_t count = read(file, text, size - 1);
    close(file);
    if (count < 0) return Read::failed;
    text[count] = '\0';
    return Read::done;
}

class Groups {
 public:
    Groups(const char* root, HostMemory& memory) : root_(root), memory_(memory) {}

    // "0::/a/b": the second version of control groups has one tree, "5:cpu,memory:/a/b": the first a tree for memory.
    void look(char* line) {
        char* controllers = strchr(line, ':');
        char* path = controllers ? strchr(++controllers, ':') : nullptr;
        if (!path) return;
        *path++ = '\0';
        if (!*controllers) return look_up("", path, "memory.max");
        char* rest = controllers;
        while (char* one = strsep(&rest, ","))
            if (!strcmp(one, "memory")) look_up("/memory", path, "memory.limit_in_bytes");
    }

 private:
    // The group itself and all around it. Of a container's path the end may not be there.
    void look_up(const char* tree, char* path, const char* name) {
        if (strstr(path, "/..") || !strcmp(path, "/")) *path = '\0';
        for (;;) {
            apply(tree, path, name);
            char* last = strrchr(path, '/');
            if (!last) return;
            *last = '\0';
        }
    }

    void apply(const char* tree, const char* path, const char* name) {
        char full[PATH_MAX], text[64];
        int length = snprintf(full, sizeof full, "%s%s%s/%s", root_, tree, path, name);
        Read found = length < PATH_MAX ? read_text(full, text) : Read::not_there;
        if (found == Read::failed) memory_.is_known = false;
        if (found != Read::done || text[0] < '0' || text[0] > '9') return;  // "max"
        memory_.bytes = std::min<uint64_t>(memory_.bytes, strtoull(text, nullptr, 10));
    }

    const char* root_;
    HostMemory& memory_;
};

}  // namespace

HostMemory host_memory(const char* membership, const char* groups) {
    HostMemory memory;
    struct sysinfo about;
    if (sysinfo(&about) == 0) memory.bytes = uint64_t{about.totalram} * about.mem_unit;
    char text[4096];
    Read found = read_text(membership, text);
    memory.is_known = found != Read::failed;
    Groups around(groups, memory);
    char* rest = found == Read::done ? text : nullptr;
    while (char* line = rest ? strsep(&rest, "\n") : nullptr) around.look(line);
    return memory;
}

}  // namespace tenant
