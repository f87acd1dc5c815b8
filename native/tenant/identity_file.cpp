#include "tenant/identity_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <new>

#include "tenant/lazy.h"

#ifndef COTENANT_IDENTITY_FILE
#define COTENANT_IDENTITY_FILE "/etc/cotenant/identity"
#endif

namespace tenant {

namespace {

struct Identity {
    bool is_there = false;
    size_t length = 0;
    char lines[4096];  // each ends with a zero

    void read();
    const char* value_of(const char* name) const;
};

void Identity::read() {
    int saved = errno;
    int fd = open(COTENANT_IDENTITY_FILE, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat about;
    if (fd >= 0 && fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && !(about.st_mode & (S_IWGRP | S_IWOTH))) {
        ssize_t got = pread(fd, lines, sizeof lines - 1, 0);
        is_there = got >= 0;
        length = got > 0 ? static_cast<size_t>(got) : 0;
    }
    if (fd >= 0) close(fd);
    lines[length] = 0;
    for (size_t i = 0; i < length; ++i)
        if (lines[i] == '\n') lines[i] = 0;
    errno = saved;
}

const char* Identity::value_of(const char* name) const {
    size_t letters = strlen(name);
    for (const char* line = lines; line < lines + length; line += strlen(line) + 1)
        if (strncmp(line, name, letters) == 0 && line[letters] == '=') return line + letters + 1;
    return nullptr;
}

// As the process was given it. A program that empties its environment (`clearenv`) leaves these strings where they are.
char** const given = environ;

const char* from_environment(const char* name) {
    const char* value = getenv(name);
    if (value || (environ && *environ)) return value;
    size_t letters = strlen(name);
    for (char** entry = given; entry && *entry; ++entry)
        if (strncmp(*entry, name, letters) == 0 && (*entry)[letters] == '=') return *entry + letters + 1;
    return nullptr;
}

// Null: no memory is left for it, and the program has other worries.
const Identity* identity() {
    static Lazy<const Identity*> found;
    return found.get([]() -> const Identity* {
        auto* fresh = new (std::nothrow) Identity;
        if (fresh) fresh->read();
        return fresh;
    });
}

}  // namespace

bool has_identity_file() {
    const Identity* said = identity();
    return said && said->is_there;
}

const char* setting(const char* name) {
    const Identity* said = identity();
    return said && said->is_there ? said->value_of(name) : from_environment(name);
}

}  // namespace tenant
