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
    char membership[4096], path[PATH_MAX], figures[8192];
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

// Of a line "NAME   NUMBER"; false: there is none.
bool find_figure(const char* text, const char* name, uint64_t* out) {
    size_t length = strlen(name);
    for (const char* line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, length) || (line[length] != ' ' && line[length] != '\t')) continue;
        *out = strtoull(line + length, nullptr, 10);
        return true;
    }
    return false;
}

// What a group has, and the names of what it could be without.
struct Usage {
    const char *now, *figures;
    const char* reclaimable[3];
};
constexpr Usage kUsage = {"memory.current", "memory.stat", {"active_file", "inactive_file", "slab_reclaimable"}};
constexpr Usage kFirstUsage = {
    "memory.usage_in_bytes", "memory.stat", {"total_active_file", "total_inactive_file", ""}};

class Groups {
 public:
    Groups(const char* root, Texts& texts, HostMemory& memory)
        : root_(root), path_(texts.path), figures_(texts.figures), memory_(memory) {}

    // "0::/a/b": the second version of control groups has one tree, "5:cpu,memory:/a/b": the first a tree for memory.
    void look(char* line) {
        char* controllers = strchr(line, ':');
        char* path = controllers ? strchr(++controllers, ':') : nullptr;
        if (!path) return;
        *path++ = '\0';
        if (!*controllers) return look_up("", path, "memory.max", kUsage);
        char* rest = controllers;
        while (char* one = strsep(&rest, ","))
            if (!strcmp(one, "memory")) look_up("/memory", path, "memory.limit_in_bytes", kFirstUsage);
    }

 private:
    // The group itself and all around it. Of a container's path the end may not be there.
    void look_up(const char* tree, char* path, const char* name, const Usage& usage) {
        if (strstr(path, "/..") || !strcmp(path, "/")) *path = '\0';
        for (;;) {
            apply(tree, path, name, usage);
            char* last = strrchr(path, '/');
            if (!last) return;
            *last = '\0';
        }
    }

    void apply(const char* tree, const char* path, const char* name, const Usage& usage) {
        char text[64];
        Read found = read_of(tree, path, name, text);
        if (found == Read::failed) memory_.is_known = false;
        if (found != Read::done || text[0] < '0' || text[0] > '9') return;  // "max"
        uint64_t limit = strtoull(text, nullptr, 10), some = 0;
        memory_.bytes = std::min(memory_.bytes, limit);
        if (read_of(tree, path, usage.now, text) != Read::done) return;
        uint64_t now = strtoull(text, nullptr, 10);
        if (read_of(tree, path, usage.figures, figures_) != Read::done) figures_[0] = '\0';
        for (const char* one : usage.reclaimable)
            if (find_figure(figures_, one, &some)) now -= std::min(now, some);
        memory_.left = std::min(memory_.left, limit - std::min(limit, now));
    }

    template <size_t size>
    Read read_of(const char* tree, const char* path, const char* name, char (&text)[size]) {
        int length = snprintf(path_, sizeof path_, "%s%s%s/%s", root_, tree, path, name);
        return length < PATH_MAX ? read_text(path_, text) : Read::not_there;
    }

    const char* root_;
    char (&path_)[PATH_MAX];
    char (&figures_)[8192];
    HostMemory& memory_;
};

}  // namespace

HostMemory host_memory(const char* membership, const char* groups, const char* machine) {
    HostMemory memory;
    struct sysinfo about;
    if (sysinfo(&about) == 0) memory.bytes = uint64_t{about.totalram} * about.mem_unit;
    std::unique_ptr<Texts> texts(new (std::nothrow) Texts);
    uint64_t kibibytes = 0;
    if (texts && read_text(machine, texts->figures) == Read::done &&
        find_figure(texts->figures, "MemAvailable:", &kibibytes))
        memory.left = kibibytes * 1024;
    Read found = texts ? read_text(membership, texts->membership) : Read::failed;
    memory.is_known = found != Read::failed;
    if (found != Read::done) return memory;
    Groups around(groups, *texts, memory);
    char* rest = texts->membership;
    while (char* line = strsep(&rest, "\n")) around.look(line);
    return memory;
}

}  // namespace tenant
