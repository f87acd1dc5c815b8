// While an object of this class exists, its thread holds the lock.
#pragma once

#include <pthread.h>

namespace tenant {

class Locked {
 public:
    explicit Locked(pthread_mutex_t& lock) : lock_(lock) { pthread_mutex_lock(&lock_); }
    ~Locked() { pthread_mutex_unlock(&lock_); }
    Locked(const Locked&) = delete;
    Locked& operator=(const Locked&) = delete;

 private:
    pthread_mutex_t& lock_;
};

}  // namespace tenant
