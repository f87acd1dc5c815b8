// A descriptor of ours that stays open. The program may close all that it does not know (closefrom) and have files of
// its own under the same number: then it is the program's, and is neither used nor closed.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace tenant {

class OwnFile {
 public:
    OwnFile() = default;
    // -1: none.
    explicit OwnFile(int descriptor) : descriptor_(descriptor) {
        struct stat about;
        if (descriptor >= 0 && fstat(descriptor, &about) == 0) device_ = about.st_dev, number_ = about.st_ino;
    }

    bool exists() const { return descriptor_ >= 0; }
    // -1: it is not ours any more.
    int descriptor() const { return is_ours() ? descriptor_ : -1; }
    void close() {
        int saved = errno;
        if (is_ours()) ::close(descriptor_);
        descriptor_ = -1;
        errno = saved;
    }

 private:
    bool is_ours() const {
        struct stat about;
        return descriptor_ >= 0 && fstat(descriptor_, &about) == 0 && about.st_dev == device_ &&
               about.st_ino == number_;
    }

    int descriptor_ = -1;
    dev_t device_ = 0;
    ino_t number_ = 0;
};

}  // namespace tenant
