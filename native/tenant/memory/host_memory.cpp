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
#include <memory>
#include <new>

namespace tenant {

namespace {

enum class Read { done, not_there, failed };

// Not on the stack: a thread of the program may have little.
struct Texts {
    char membership[4096], path[PATH_MAX];
};

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
    Groups(const char* root, char (&path)[PATH_MAX], HostMemory& memory) : root_(root), path_(path), memory_(memory) {}

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
        char text[64];
        int length = snprintf(path_, sizeof path_, "%s%s%s/%s", root_, tree, path, name);
        Read found = length < PATH_MAX ? read_text(path_, text) : Read::not_there;
        if (found == Read::failed) memory_.is_known = false;
        if (found != Read::done || text[0] < '0' || text[0] > '9') return;  // "max"
        memory_.bytes = std::min<uint64_t>(memory_.bytes, strtoull(text, nullptr, 10));
    }

    const char* root_;
    char (&path_)[PATH_MAX];
    HostMemory& memory_;
};

}  // namespace

HostMemory host_memory(const char* membership, const char* groups) {
    HostMemory memory;
    struct sysinfo about;
    if (sysinfo(&about) == 0) memory.bytes = uint64_t{about.totalram} * about.mem_unit;
    std::unique_ptr<Texts> texts(new (std::nothrow) Texts);
    Read found = texts ? read_text(membership, texts->membership) : Read::failed;
    memory.is_known = found != Read::failed;
    if (found != Read::done) return memory;
    Groups around(groups, texts->path, memory);
    char* rest = texts->membership;
    while (char* line = strsep(&rest, "\n")) around.look(line);
    return memory;
}

}  // namespace tenant
