// Exercises an administrator's segment (a folder) without CUDA; each case ends with status 0 or says what was wrong.
// One process has one slot here, so that every tenant is a child.
//   shared_slots FOLDER waits       one waits for another's work, until that is done, killed or stopped
//   shared_slots FOLDER turns       equals take turns, each looking after its own gate
//   shared_slots FOLDER crowd       all slots taken at once, one too many, and free again
//   shared_slots FOLDER churn N     N processes, one after another, take a slot and are killed in it
//   shared_slots FOLDER faults      a process is killed between any two steps of its life in the segment
//   shared_slots FOLDER held up     one that is held up amid its coming is there all the same when it goes on
//   shared_slots FOLDER forked      a child can look, whatever its parent's threads were doing
//   shared_slots FOLDER limits      what is said most particularly holds
//   shared_slots FOLDER junk        names that are no slots hide none
//   shared_slots FOLDER files       a program that has no file left does not take the others for gone
//   shared_slots FOLDER bell        whoever can only read the header wakes those who wait there
//   shared_slots FOLDER default     prints the segment that is found without being named
// As root, for tenants of two users:
//   shared_slots FOLDER users       another user's work is waited for; nothing of another's can be written
//   shared_slots FOLDER grants      nobody's class is better than the administrator allows, whatever the slot says
//   shared_slots FOLDER cut         a slot that is cut short, replaced or nonsense harms nobody
//   shared_slots FOLDER linked      a slot whose file has a second name is not steered
//   shared_slots FOLDER unreadable  a slot that cannot be read counts as it was, but not for ever
// For other tests:
//   shared_slots FOLDER hold UID CLASS   a busy tenant; prints a line, and ends with its input
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

// Killed, or stopped, at the n-th place where that may matter.
static std::atomic<int> fault_countdown{-1};  // every thread passes the points
static int fault_signal = SIGKILL;
#define FAULT_POINT()                                    \
    do {                                                 \
        if (fault_countdown-- == 0) raise(fault_signal); \
    } while (0)
#include "../require.h"
#include "wire/attached.cpp"
#include "wire/border.cpp"
#include "wire/clock.cpp"
#include "wire/gates.cpp"
#include "wire/header.cpp"
#include "wire/identity.cpp"
#include "wire/owner.cpp"
#include "wire/segment.cpp"
#include "wire/shared_segment.cpp"

namespace {

constexpr uid_t kAlice = 65533, kBob = 65534;
const char* folder;

wire::Segment& opened() {
    std::string why;
    wire::Segment* segment = wire::open_segment(folder, &why);
    if (!segment) {
        fprintf(stderr, "%s\n", why.c_str());
        _exit(1);
    }
    return *segment;
}

// A process that is told what to do, one function after another, and says when it has done it.
class Process {
 public:
    using Act = std::function<void()>;

    explicit Process(uid_t uid, std::vector<Act> acts) {
        int orders[2], answers[2];
        REQUIRE(pipe(orders) == 0 && pipe(answers) == 0);
        pid = fork();
        if (pid == 0) {
            close(orders[1]);
            close(answers[0]);
            if (uid) REQUIRE(setgid(uid) == 0 && setuid(uid) == 0);
            for (Act& act : acts) {
                char order;
                if (read(orders[0], &order, 1) != 1) _exit(0);
                act();
                REQUIRE(write(answers[1], "x", 1) == 1);
            }
            char end;
            _exit(read(orders[0], &end, 1) != 0);
        }
        close(orders[0]);
        close(answers[1]);
        orders_ = orders[1];
        answers_ = answers[0];
    }
    ~Process() {
        close(orders_);
        close(answers_);
        kill(pid, SIGKILL);
        waitpid(pid, nullptr, 0);
    }
    void go() {
        char done;
        REQUIRE(write(orders_, "x", 1) == 1 && read(answers_, &done, 1) == 1);
    }
    void end(int signal) {
        kill(pid, signal);
        waitpid(pid, nullptr, 0);
    }

    pid_t pid;

 private:
    int orders_, answers_;
};

struct Tenant {
    wire::Segment& segment = opened();
    int index = wire::take_slot(segment);
    wire::Slot& slot = segment.slot(index);

    explicit Tenant(wire::Class tenant_class) {
        REQUIRE(index >= 0);
        slot.pid = getpid();
        slot.uid = getuid();
        slot.weight.store(1000);
        wire::join_class(segment, index, tenant_class);
    }
    void work() {
        slot.gpus[0].figures.bursts.fetch_add(1);
        wire::go_busy(segment, index, 0);
    }
    void rest() { wire::go_idle(segment, index, 0); }
    // As the watcher does between two looks.
    bool is_let_through() {
        wire::look_at_rivals(segment, index, wire::Look::now);
        wire::refresh_gate(segment, index, 0);
        return slot.gpus[0].gate.load() == wire::kGateOpen;
    }
};

int live(wire::Segment& segment) {
    wire::look_around(segment);
    int count = 0;
    for (int i = 0; i < wire::kSlots; ++i) count += wire::is_live(segment.slot(i));
    return count;
}

int files() {
    int count = 0;
    DIR* slots = opendir((std::string(folder) + "/slots").c_str());
    while (dirent* entry = readdir(slots)) count += entry->d_name[0] != '.';
    closedir(slots);
    return count;
}

std::string file_of(int index) { return std::string(folder) + "/slots/" + std::to_string(index); }

void waits(uid_t high_user, uid_t low_user) {
    Tenant* tenant = nullptr;
    auto work = [&] { tenant->work(); };
    auto rest = [&] { tenant->rest(); };
    Process high(high_user, {[&] { (tenant = new Tenant(wire::production))->work(); }, rest, work,
                             [&] { tenant->slot.heartbeat_ns.store(1); }, work, rest, work});
    auto held = [&] { REQUIRE(!tenant->is_let_through()); };
    auto let_through = [&] { REQUIRE(tenant->is_let_through()); };
    auto held_at_once = [&] {
        tenant->work();
        REQUIRE(tenant->slot.gpus[0].gate.load() != wire::kGateOpen);
    };
    Process low(low_user, {[&] {
                               tenant = new Tenant(wire::opportunistic);
                               held_at_once();
                           },
                           let_through, held, let_through, held,
                           [&] {
                               let_through();
                               tenant->rest();
                           },
                           held_at_once, let_through,
                           [&] {
                               REQUIRE(wire::look_around(tenant->segment) == (high_user == low_user));
                               REQUIRE(live(tenant->segment) == 1);
                           }});
    for (int i = 0; i < 7; ++i) {
        high.go();
        low.go();
    }
    high.end(SIGKILL);
    low.go();
    low.go();
}

void turns() {
    Tenant* tenant = nullptr;
    uint64_t* used =
        static_cast<uint64_t*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    auto begin = [&] { (tenant = new Tenant(wire::opportunistic))->work(); };
    auto step = [&](int which) {
        return [&tenant, used, which] {
            wire::OnGpu& here = tenant->segment.slot(tenant->index).gpus[0];
            if (!tenant->is_let_through()) {
                if (here.on.load()) wire::leave_gpu(tenant->segment, tenant->index, 0, here.gate.load(), 0);
                return;
            }
            wire::charge(tenant->segment, tenant->index, 0, 1000000, 1000000);
            if (++used[which] % 20 == 0) here.holds_turn.store(0);
        };
    };
    auto meet = [&] { wire::look_around(tenant->segment); };  // as the watcher does every 20 ms
    std::vector<Process::Act> first{begin, meet}, second{begin, meet};
    for (int i = 0; i < 400; ++i) {
        first.push_back(step(0));
        second.push_back(step(1));
    }
    Process one(0, first), other(0, second);
    for (int i = 0; i < 402; ++i) {
        one.go();
        other.go();
    }
    REQUIRE(used[0] > 160 && used[1] > 160 && used[0] + used[1] <= 440);
}

void crowd() {
    std::vector<Process*> all;
    Tenant* tenant = nullptr;
    for (int i = 0; i < wire::kSlots; ++i) {
        all.push_back(new Process(0, {[&] { tenant = new Tenant(wire::standard); }}));
        all.back()->go();
    }
    wire::Segment& segment = opened();
    REQUIRE(live(segment) == wire::kSlots && wire::take_slot(segment) == -1);
    for (Process* one : all) delete one;
    REQUIRE(wire::take_slot(segment) == 0 && files() == 1);
    wire::leave_slot(segment, 0);
    REQUIRE(files() == 0);
}

void churn(int times) {
    for (int i = 0; i < times; ++i) {
        pid_t child = fork();
        if (child == 0) {
            Tenant(wire::production).work();
            raise(SIGKILL);
        }
        int status = 0;
        REQUIRE(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && files() == 1);
    }
    Tenant witness(wire::opportunistic);
    REQUIRE(files() == 1 && live(witness.segment) == 1);
}

void faults() {
    Tenant witness(wire::opportunistic);
    witness.work();
    int places = 0;
    for (bool killed = true; killed; ++places) {
        pid_t corpse = fork();
        if (corpse == 0) {
            Tenant(wire::production).work();
            raise(SIGKILL);
        }
        waitpid(corpse, nullptr, 0);
        pid_t child = fork();
        if (child == 0) {
            fault_countdown = places;
            Tenant tenant(wire::production);
            tenant.work();
            tenant.rest();
            wire::join_class(tenant.segment, tenant.index, wire::standard);
            tenant.work();
            wire::reap_slots(tenant.segment);
            wire::leave_slot(tenant.segment, tenant.index);
            _exit(0);
        }
        int status = 0;
        REQUIRE(waitpid(child, &status, 0) == child);
        killed = WIFSIGNALED(status);
        REQUIRE(live(witness.segment) == 1 && witness.is_let_through());
    }
    REQUIRE(places > 15);
    // What was killed before it had a slot's name has left a file that `cotenant segment clean` removes.
    REQUIRE(files() < 1 + 10);
}

void held_up() {
    Tenant witness(wire::opportunistic);
    auto make_old = [] {
        for (int i = 0; i < wire::kSlots; ++i) {
            uint64_t long_ago = 1;
            int fd = open(file_of(i).c_str(), O_WRONLY);
            if (fd < 0) continue;
            REQUIRE(pwrite(fd, &long_ago, sizeof long_ago, offsetof(wire::Slot, heartbeat_ns)) == sizeof long_ago);
            close(fd);
        }
    };
    int places = 0;
    for (bool stopped = true; stopped; ++places) {
        pid_t child = fork();
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            fault_signal = SIGSTOP;
            fault_countdown = places;
            wire::Segment& segment = opened();
            int index = wire::take_slot(segment);
            fault_countdown = -1;
            raise(SIGSTOP);  // it has come
            _exit(index < 0);
        }
        int status = 0;
        REQUIRE(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
        make_old();
        live(witness.segment);
        kill(child, SIGCONT);
        REQUIRE(waitpid(child, &status, WUNTRACED) == child);
        stopped = WIFSTOPPED(status);  // else it had come already
        if (stopped) {
            REQUIRE(live(witness.segment) == 2);
            kill(child, SIGCONT);
            REQUIRE(waitpid(child, &status, 0) == child);
        }
        REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0 && live(witness.segment) == 1);
    }
    REQUIRE(places > 5);
}

void junk() {
    Tenant* tenant = nullptr;
    for (int i = 0; i < 2000; ++i) {
        int fd = open((std::string(folder) + "/slots/junk." + std::to_string(i)).c_str(), O_WRONLY | O_CREAT, 0644);
        REQUIRE(fd >= 0 && close(fd) == 0);
    }
    Process high(0, {[&] { (tenant = new Tenant(wire::production))->work(); }});
    high.go();
    Process low(0, {[&] {
                    (tenant = new Tenant(wire::opportunistic))->work();
                    REQUIRE(!tenant->is_let_through());
                }});
    low.go();
}

void no_files() {
    Tenant* tenant = nullptr;
    Process high(0, {[&] { (tenant = new Tenant(wire::production))->work(); }, [&] { tenant->rest(); }});
    Process low(0, {[&] {
                        (tenant = new Tenant(wire::opportunistic))->work();
                        REQUIRE(!tenant->is_let_through());
                        rlimit before, none{0, 0};
                        REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
                        none.rlim_max = before.rlim_max;
                        REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
                        REQUIRE(!tenant->is_let_through());
                        wire::look_around(tenant->segment);
                        REQUIRE(!tenant->is_let_through() && wire::is_live(tenant->segment.slot(1 - tenant->index)));
                        REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
                    },
                    [&] { REQUIRE(tenant->is_let_through()); }});
    high.go();
    low.go();
    high.go();
    low.go();
}

void bell() {
    REQUIRE(mprotect(&opened().header, wire::place_bytes(), PROT_READ) == 0);
    wire::Segment& segment = opened();
    REQUIRE(mprotect(&segment.header, wire::place_bytes(), PROT_READ) == 0);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        _exit(wire::wait_at_bell(segment, 50ull * 1000000000) ? 0 : 1);
    }
    // Who does not wait yet misses it.
    int status = 1;
    while (waitpid(child, &status, WNOHANG) == 0) {
        wire::ring_bell(segment);
        usleep(1000);
    }
    REQUIRE(status == 0);
}

void forked() {
    wire::Segment& segment = opened();
    pthread_mutex_lock(&wire::attached(segment).lock);
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        wire::look_around(segment);
        _exit(0);
    }
    int status = 1;
    REQUIRE(waitpid(child, &status, 0) == child && status == 0);
}

wire::Grant& grant(wire::Segment& segment, int entry, uint32_t kind, uint32_t id, uint32_t best_class,
                   uint64_t memory = 0) {
    wire::Grant& grant = segment.header.grants[entry];
    grant.subject_id.store(id);
    grant.best_class.store(best_class);
    grant.memory_limit.store(memory);
    grant.subject_kind.store(kind);
    wire::seal(segment.header);
    return grant;
}

void limits() {
    wire::Segment& segment = opened();
    REQUIRE(wire::best_class(segment, 1, 1) == wire::production && wire::imposed_memory_limit(segment, 1, 1) == 0);
    grant(segment, 0, wire::user, 5, 1 + wire::production);
    grant(segment, 1, wire::everybody, 0, 1 + wire::opportunistic, 100);
    grant(segment, 2, wire::group, 7, 1 + wire::standard);
    grant(segment, 3, wire::user, 6, 0, 300);
    REQUIRE(wire::best_class(segment, 1, 1) == wire::opportunistic);
    REQUIRE(wire::best_class(segment, 1, 7) == wire::standard);
    REQUIRE(wire::best_class(segment, 5, 7) == wire::production);
    REQUIRE(wire::best_class(segment, 6, 7) == wire::standard &&
            wire::best_class(segment, 7, 1) == wire::opportunistic);
    // A class that there is none of is the lowest.
    grant(segment, 4, wire::user, 8, 1000);
    REQUIRE(wire::best_class(segment, 8, 1) == wire::opportunistic);
    REQUIRE(wire::imposed_memory_limit(segment, 6, 7) == 300 && wire::imposed_memory_limit(segment, 5, 7) == 100);
}

void users() {
    waits(kAlice, kBob);
    Tenant* tenant = nullptr;
    Process alice(kAlice, {[&] { tenant = new Tenant(wire::production); }});
    alice.go();
    Process bob(kBob, {[&] {
                    Tenant self(wire::opportunistic);
                    int theirs = 1 - self.index;
                    std::string header = std::string(folder) + "/header";
                    REQUIRE(wire::is_live(self.segment.slot(theirs)) && self.segment.slot(theirs).uid == kAlice);
                    REQUIRE(open(file_of(theirs).c_str(), O_RDWR) < 0 && errno == EACCES);
                    REQUIRE(truncate(file_of(theirs).c_str(), 0) < 0 && errno == EACCES);
                    REQUIRE(unlink(file_of(theirs).c_str()) < 0 && errno == EPERM);
                    REQUIRE(rename(file_of(self.index).c_str(), file_of(theirs).c_str()) < 0);
                    REQUIRE(open(header.c_str(), O_RDWR) < 0 && errno == EACCES);
                    REQUIRE(unlink(header.c_str()) < 0);
                    REQUIRE(mprotect(&self.segment.header, wire::place_bytes(), PROT_READ | PROT_WRITE) < 0);
                    // What it writes into its copy of another's slot stays with it.
                    self.segment.slot(theirs).gpus[0].gate.store(0);
                    wire::close_gates_below(self.segment, self.index, 0);
                }});
    bob.go();
    wire::Segment& segment = opened();
    for (int i = 0; i < 2; ++i)
        if (segment.slot(i).uid == kAlice) REQUIRE(segment.slot(i).gpus[0].gate.load() == wire::kGateOpen);
}

void grants() {
    grant(opened(), 0, wire::user, kAlice, 1 + wire::production);
    grant(opened(), 1, wire::everybody, 0, 1 + wire::opportunistic);
    Tenant* tenant = nullptr;
    Process bob(kBob, {[&] {
                           (tenant = new Tenant(wire::production))->work();
                           REQUIRE(tenant->slot.tenant_class.load() == wire::opportunistic);
                       },
                       [&] { tenant->slot.tenant_class.store(wire::production), tenant->slot.uid = kAlice; }});
    Process alice(kAlice, {[&] { (tenant = new Tenant(wire::standard))->work(); },
                           [&] {
                               wire::look_around(tenant->segment);
                               REQUIRE(tenant->is_let_through());
                               wire::Slot& theirs = tenant->segment.slot(1 - tenant->index);
                               REQUIRE(theirs.tenant_class.load() == wire::opportunistic && theirs.uid == kBob);
                           },
                           [&] { wire::join_class(tenant->segment, tenant->index, wire::production); }});
    bob.go();
    alice.go();
    bob.go();  // it cheats
    alice.go();
}

void cut() {
    Tenant* tenant = nullptr;
    Process alice(kAlice, {[&] { (tenant = new Tenant(wire::production))->work(); },
                           [&] { REQUIRE(truncate(file_of(tenant->index).c_str(), 100) == 0); },
                           [&] {
                               std::string own = file_of(tenant->index);
                               REQUIRE(unlink(own.c_str()) == 0 && symlink("/dev/zero", own.c_str()) == 0);
                               REQUIRE(mkfifo(file_of(77).c_str(), 0644) == 0);
                               REQUIRE(mkdir(file_of(78).c_str(), 0755) == 0);
                               int fd = open(file_of(79).c_str(), O_RDWR | O_CREAT, 0644);
                               std::string junk(wire::place_bytes(), '\x3f');
                               REQUIRE(write(fd, junk.data(), junk.size()) == static_cast<ssize_t>(junk.size()));
                           }});
    auto let_through = [&] {
        REQUIRE(tenant->is_let_through());
        wire::look_around(tenant->segment);
        REQUIRE(tenant->is_let_through());
    };
    Process bob(kBob, {[&] {
                           (tenant = new Tenant(wire::opportunistic))->work();
                           REQUIRE(!tenant->is_let_through());
                       },
                       let_through, let_through});
    alice.go();
    bob.go();
    alice.go();
    bob.go();
    alice.go();
    bob.go();
}

// A file with a second name may be one that somebody wants the administrator to write to.
void linked() {
    Tenant* tenant = nullptr;
    Process alice(kAlice, {[&] { (tenant = new Tenant(wire::standard))->work(); }});
    alice.go();
    wire::Segment& segment = opened();
    REQUIRE(live(segment) == 1 && wire::steer_shared_slot(segment, 0, 0));
    REQUIRE(link(file_of(0).c_str(), file_of(300).c_str()) == 0);
    REQUIRE(!wire::steer_shared_slot(segment, 0, 0) && unlink(file_of(300).c_str()) == 0);
    REQUIRE(wire::steer_shared_slot(segment, 0, 0) && chown(file_of(0).c_str(), kBob, kBob) == 0);
    REQUIRE(!wire::steer_shared_slot(segment, 0, 0));  // nor one that is another user's by now
    // Who leaves does not take with it what has its slot's name by now.
    Tenant gone(wire::standard);
    REQUIRE(rename(file_of(gone.index).c_str(), file_of(301).c_str()) == 0 &&
            close(creat(file_of(gone.index).c_str(), 0644)) == 0);
    wire::leave_slot(gone.segment, gone.index);
    REQUIRE(access(file_of(gone.index).c_str(), F_OK) == 0);
}

void unreadable() {
    Tenant* tenant = nullptr;
    Process alice(kAlice, {[&] { (tenant = new Tenant(wire::production))->work(); },
                           [&] { REQUIRE(chmod(file_of(tenant->index).c_str(), 0) == 0); }});
    Process bob(kBob, {[&] {
                           (tenant = new Tenant(wire::opportunistic))->work();
                           REQUIRE(!tenant->is_let_through());
                       },
                       [&] {
                           int theirs = 1 - tenant->index;
                           wire::Count& heartbeat = tenant->segment.slot(theirs).heartbeat_ns;
                           uint64_t read = heartbeat.load();
                           REQUIRE(!tenant->is_let_through() && heartbeat.load() > read);
                           uint64_t kept = heartbeat.load();
                           wire::attached(tenant->segment).read_ns[theirs] -= 2ull * 1000000000;
                           tenant->is_let_through();
                           REQUIRE(heartbeat.load() == kept);
                           // One that had been stopped already is not fresh.
                           wire::attached(tenant->segment).read_ns[theirs] = wire::now_ns();
                           heartbeat.store(1);
                           REQUIRE(tenant->is_let_through() && heartbeat.load() == 1);
                       }});
    alice.go();
    bob.go();
    alice.go();
    bob.go();
}

void hold(uid_t uid, wire::Class tenant_class) {
    REQUIRE(!uid || (setgid(uid) == 0 && setuid(uid) == 0));
    Tenant tenant(tenant_class);
    tenant.work();
    printf("holding\n");
    fflush(stdout);
    char line[8];
    while (fgets(line, sizeof line, stdin)) {
    }
    wire::leave_slot(tenant.segment, tenant.index);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) return 2;
    folder = argv[1];
    std::string what = argv[2];
    // A test may be held up for longer than a heartbeat lasts.
    if (what != "default" && what != "hold") opened().header.knobs.stale_ms.store(60000);
    if (what == "waits") waits(0, 0);
    if (what == "turns") turns();
    if (what == "crowd") crowd();
    if (what == "churn") churn(atoi(argv[3]));
    if (what == "faults") faults();
    if (what == "held") held_up();
    if (what == "forked") forked();
    if (what == "limits") limits();
    if (what == "users") users();
    if (what == "grants") grants();
    if (what == "cut") cut();
    if (what == "junk") junk();
    if (what == "files") no_files();
    if (what == "bell") bell();
    if (what == "linked") linked();
    if (what == "unreadable") unreadable();
    if (what == "hold") hold(static_cast<uid_t>(atoi(argv[3])), static_cast<wire::Class>(atoi(argv[4])));
    if (what == "default") {
        const char* found = wire::default_shared_segment();
        printf("%s\n", found ? found : "none");
    }
    return 0;
}
