/* Programs may end this process, as they may their supervisors. What they had reach of then, they have not of the next:
 * that makes a domain of its own. So it is not trusted to tell anything; the kernel writes down what it has forked. */
#include "domain.h"

#include "lock.h"
#include "sys.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define STACK_SIZE (256u * 1024u)
#define LOOK_MS 100 /* between two looks whether it was stopped or ended */
#define MASK_SIZE 8u

static struct {
    void (*main)(void *argument, const int *fds);
    void *argument;
    const int *fds;
    pid_t child;  /* by the kernel */
    int error;    /* that it told, or 0 */
    int wanted;   /* counts what it is to do; -1 */
    int done;     /* what it has done */
    pid_t process; /* 0: there is none; of several threads */
} domain = {.wanted = -1, .done = -1};

static pid_t current(void) { return __atomic_load_n(&domain.process, __ATOMIC_SEQ_CST); }

static bool count(int fd) {
    uint64_t one = 1;
    return RETRY(write(fd, &one, sizeof one)) == (ssize_t)sizeof one;
}

static bool take_count(int fd) {
    uint64_t any;
    return RETRY(read(fd, &any, sizeof any)) == (ssize_t)sizeof any;
}

/* ---- in that process ---- */

/* Also those that the C library keeps for itself and lets nobody block: their end would be that of the process. */
static void block_signals(void) {
    uint64_t all = UINT64_MAX;
    (void)syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, NULL, (size_t)MASK_SIZE);
}

static int serve(void *nothing) {
    (void)nothing;
    block_signals();
    prctl(PR_SET_NAME, "warden-forker");
    /* The thread ends with the warden alone. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || lock_domain() < 0) {
        domain.error = errno;
        _exit(1);
    }
    while (count(domain.done) && take_count(domain.wanted)) {
        const long flags = CLONE_PARENT | CLONE_PARENT_SETTID | SIGCHLD;
        long child = syscall(SYS_clone, flags, 0L, &domain.child, 0L, 0L);
        if (child == 0) {
            domain.main(domain.argument, domain.fds);
            _exit(127);
        }
        if (child < 0)
            domain.error = errno;
    }
    _exit(1);
}

/* ---- in the thread that forks ---- */

/* It is reaped by the loop. */
static bool lives(pid_t process) {
    siginfo_t info = {0};
    return process > 0 && process == current() &&
           RETRY(waitid(P_PID, (id_t)process, &info, WEXITED | WNOHANG | WNOWAIT | __WALL)) == 0 && info.si_pid == 0;
}

/* False when it ended before it was done. */
static bool await_done(void) {
    const pid_t process = current();
    struct pollfd poll_fd = {.fd = domain.done, .events = POLLIN};
    while (RETRY(poll(&poll_fd, 1, LOOK_MS)) == 0) {
        if (!lives(process))
            return false;
        kill(process, SIGCONT); /* the loop, which ends it when it was stopped, may be waiting for us */
    }
    return take_count(domain.done);
}

static int make_counters(void) {
    int *counters[] = {&domain.wanted, &domain.done};
    for (int index = 0; index < 2; index++) {
        if (*counters[index] >= 0)
            close(*counters[index]); /* it may hold what the last one did not get to */
        *counters[index] = eventfd(0, EFD_CLOEXEC);
        if (*counters[index] < 0)
            return -1;
    }
    return 0;
}

int domain_start(void) {
    static _Alignas(16) uint8_t stack[STACK_SIZE];
    if (make_counters() < 0)
        return -1;
    domain.error = 0;
    pid_t process = clone(serve, stack + sizeof stack, CLONE_VM | CLONE_FILES | SIGCHLD, NULL);
    if (process < 0)
        return -1;
    __atomic_store_n(&domain.process, process, __ATOMIC_SEQ_CST);
    if (await_done())
        return 0;
    domain_ended(process); /* the loop may have reaped it before it knew */
    errno = domain.error ? domain.error : EAGAIN;
    return -1;
}

pid_t domain_fork(void (*main)(void *argument, const int *fds), void *argument, const int *fds) {
    if (!lives(current()) && domain_start() < 0)
        return -1;
    domain.main = main;
    domain.argument = argument;
    domain.fds = fds;
    domain.child = 0;
    domain.error = 0;
    if (!count(domain.wanted))
        return -1;
    (void)await_done();
    if (domain.child > 0)
        return domain.child;
    errno = domain.error ? domain.error : EAGAIN;
    return -1;
}

/* ---- in the loop ---- */

bool domain_is(pid_t process) { return process > 0 && process == current(); }

bool domain_stopped(pid_t process) {
    if (!domain_is(process))
        return false;
    kill(process, SIGKILL); /* out of the reach of whoever has stopped it */
    return true;
}

void domain_ended(pid_t process) {
    (void)__atomic_compare_exchange_n(&domain.process, &process, 0, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}
