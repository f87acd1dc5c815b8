// A lock between threads of this process, which has its place in the order of lock_order.h; and Locked: while an object
// of that class exists, its thread holds the lock.
#pragma once

#include <pthread.h>

#include "tenant/lock_order.h"
#include "tenant/raw_child.h"

namespace tenant {

class Lock {
 public:
    enum class Kind : uint8_t { plain, recursive };

    explicit constexpr Lock(Rank rank, Kind kind = Kind::plain) : mutex_(fresh(kind)), rank_(rank), kind_(kind) {}
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

    void lock() {
        look_for_raw_child();
        HeldLocks::waits_for(this, rank_, kind_ == Kind::recursive);
        pthread_mutex_lock(&mutex_);
        HeldLocks::has(this, rank_);
    }
    bool try_lock() {
        if (pthread_mutex_trylock(&mutex_) != 0) return false;
        HeldLocks::has(this, rank_);
        return true;
    }
    void unlock() {
        HeldLocks::gives(this);
        pthread_mutex_unlock(&mutex_);
    }
    // Not held meanwhile.
    void wait(pthread_cond_t& changed) { pthread_cond_wait(&changed, &mutex_); }
    // In a forked child: a thread of the parent may have held it, which does not exist here.
    void renew() {
        HeldLocks::forgets(this);
        mutex_ = fresh(kind_);
    }

 private:
    static constexpr pthread_mutex_t fresh(Kind kind) {
        if (kind == Kind::recursive) return PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
        return PTHREAD_MUTEX_INITIALIZER;
    }

    pthread_mutex_t mutex_;
    Rank rank_;
    Kind kind_;
};

// While one exists, its thread is not cancelled (pthread_cancel) in a call of the system or of the driver: the locks
// that it holds would stay locked for good.
class NotCancelled {
 public:
    NotCancelled() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
    ~NotCancelled() { pthread_setcancelstate(before_, nullptr); }
    NotCancelled(const NotCancelled&) = delete;
    NotCancelled& operator=(const NotCancelled&) = delete;

 private:
    int before_ = PTHREAD_CANCEL_ENABLE;
};

class Locked {
 public:
    explicit Locked(Lock& lock) : lock_(lock) { lock_.lock(); }
    ~Locked() { lock_.unlock(); }
    Locked(const Locked&) = delete;
    Locked& operator=(const Locked&) = delete;

 private:
    NotCancelled meanwhile_;
    Lock& lock_;
};

}  // namespace tenant
