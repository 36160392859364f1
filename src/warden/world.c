/* The life of the world: the loop, the lease, the end. */
#include "world.h"

#include "cell.h"
#include "cgroup.h"
#include "covers.h"
#include "dispatch.h"
#include "domain.h"
#include "facts.h"
#include "forker.h"
#include "link.h"
#include "lockdown.h"
#include "loop.h"
#include "process.h"
#include "protocol.h"
#include "reply.h"
#include "supervisors.h"
#include "sys.h"
#include "workers.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define END_MOST_MS 10000
#define CELLS_MOST_MS 3000 /* for cells to end by themselves, and to put away what they have begun */
#define WORKERS_MOST_MS 1500 /* for batches that are being cancelled; those that hang are left behind */

static struct {
    bool begun;
    int64_t lease_ms;
    int64_t silent_ms; /* how long nothing was heard, as far as we were scheduled */
    int64_t looked_ms;

    bool ending;
    int exit_status;
    uint64_t close_id;
    unsigned kills_pending;
    unsigned graces; /* cells that are left to end */
    int64_t end_ms;
} world;

static struct source signal_source, worker_source;
static int signal_fd;

bool world_begun(void) { return world.begun; }
bool world_ending(void) { return world.ending; }

void world_begin(uint32_t lease_ms) {
    world.begun = true;
    world.lease_ms = lease_ms;
    world.silent_ms = 0;
    world.looked_ms = monotonic_ms();
}

static void on_killed(void *nothing) {
    (void)nothing;
    world.kills_pending--;
}

/* A cell ends with its stream, and is killed like a command when it does not. */
static bool may_end_by_itself(const struct process *process) {
    return process->cell && monotonic_ms() - world.end_ms < CELLS_MOST_MS;
}

static void kill_everything(void) {
    world.graces = 0;
    for (struct process *process = process_first; process; process = process->next)
        if (!process->gone && !process->on_killed && may_end_by_itself(process)) {
            world.graces++;
        } else if (!process->gone && !process->on_killed) {
            world.kills_pending++;
            process_kill(process, on_killed, NULL);
        }
}

void world_end(unsigned reason, const char *text, uint64_t close_id) {
    if (world.ending)
        return;
    world.ending = true;
    world.close_id = close_id;
    world.exit_status = reason ? 1 : 0;
    world.end_ms = monotonic_ms();
    if (reason) {
        struct buffer body = {.limit = 256};
        put_u16(&body, (uint16_t)reason);
        put_text(&body, text);
        link_send(MESSAGE_ENDING, 0, &body);
        buffer_free(&body);
    }
    dispatch_cancel_all();
    cells_end();
    kill_everything();
}

static void reap(void) {
    for (;;) {
        int raw;
        pid_t pid = waitpid(-1, &raw, WNOHANG | WUNTRACED | __WALL);
        if (pid < 0 && errno == EINTR)
            continue;
        if (pid <= 0)
            return;
        if (!WIFSTOPPED(raw)) {
            domain_ended(pid);
            process_reaped(pid, raw);
        } else if (!domain_stopped(pid)) {
            supervisor_resume(pid);
        }
    }
}

static void on_signal(struct source *source, uint32_t events) {
    (void)source, (void)events;
    struct signalfd_siginfo info;
    while (RETRY(read(signal_fd, &info, sizeof info)) == (ssize_t)sizeof info)
        if (info.ssi_signo != SIGCHLD)
            world_end(ENDING_SIGNAL, "the warden was told to end", 0);
    reap();
}

static void on_workers(struct source *source, uint32_t events) {
    (void)source, (void)events;
    workers_collect();
}

/* Milliseconds until the lease has to be looked at again, or -1. */
static int check_lease(void) {
    if (!world.lease_ms || world.ending)
        return -1;
    int64_t now = monotonic_ms(), step = now - world.looked_ms, tick = world.lease_ms / 10;
    world.looked_ms = now;
    if (link_heard())
        world.silent_ms = 0;
    else
        world.silent_ms += step < tick ? step : tick; /* longer: nobody was running, host included */
    if (world.silent_ms >= world.lease_ms) {
        world_end(ENDING_LEASE, "nothing was heard from the host for the time of the lease", 0);
        return -1;
    }
    return (int)tick;
}

static bool trees_gone(uint32_t *survivors) {
    bool gone = true;
    *survivors = 0;
    for (struct process *process = process_first; process; process = process->next)
        if (!process->gone) {
            gone = false;
            *survivors += process->survivor_count;
        }
    return gone;
}

static void answer_close(void) {
    uint32_t survivors;
    bool gone = trees_gone(&survivors);
    uint8_t method = KILL_NOT_NEEDED;
    struct buffer *body = reply_begin(0);
    for (struct process *process = process_first; process; process = process->next)
        if (process->method > method)
            method = process->method;
    put_u8(body, gone);
    put_u8(body, method);
    put_u32(body, survivors);
    for (struct process *process = process_first; process; process = process->next)
        for (uint32_t index = 0; !process->gone && index < process->survivor_count; index++)
            put_u32(body, (uint32_t)process->survivors[index]);
    reply_end(world.close_id);
}

/* True when nothing is left to wait for. */
static bool end_goes_on(int *timeout) {
    int64_t waited = monotonic_ms() - world.end_ms;
    uint32_t survivors;
    kill_everything(); /* also what was started meanwhile */
    bool gone = trees_gone(&survivors) || world.kills_pending + world.graces == 0;
    bool still = workers_active() == 0 || waited > WORKERS_MOST_MS;
    if ((gone && still) || waited > END_MOST_MS)
        return true;
    *timeout = *timeout < 0 || *timeout > 20 ? 20 : *timeout;
    return false;
}

static _Noreturn void leave(void) {
    uint32_t survivors;
    if (world.close_id)
        answer_close();
    bool gone = trees_gone(&survivors);
    /* Orphans of supervisors that were killed, and as init everything. */
    for (int attempt = 0; attempt < 200 && !sweep_orphans(); attempt++) {
        struct timespec pause_time = {.tv_nsec = 5000000};
        nanosleep(&pause_time, NULL);
        reap();
        gone &= attempt < 199;
    }
    supervisors_dismiss();
    for (int attempt = 0; attempt < 200 && supervisors_count() > 0; attempt++) {
        struct timespec pause_time = {.tv_nsec = attempt < 20 ? 200000 : 5000000};
        reap();
        nanosleep(&pause_time, NULL);
    }
    cgroup_remove_all();
    link_finish(2000);
    _exit(gone ? world.exit_status : 2);
}

static void take_earlier(int *timeout, int other) {
    if (other >= 0 && (*timeout < 0 || other < *timeout))
        *timeout = other;
}

void world_round(int most_ms) {
    bool more = link_receive();
    if (link_violated())
        world_end(ENDING_VIOLATION, "the host broke the protocol", 0);
    if (link_ended())
        world_end(0, NULL, 0);
    bool waiting = streams_serve();
    more |= link_flush();
    int timeout = most_ms;
    take_earlier(&timeout, process_tick());
    take_earlier(&timeout, cells_tick());
    take_earlier(&timeout, covers_tick());
    take_earlier(&timeout, dispatch_tick());
    take_earlier(&timeout, workers_pressure());
    take_earlier(&timeout, check_lease());
    if (world.ending && end_goes_on(&timeout))
        leave();
    if (more || (waiting && link_has_room()) || (link_ended() && !world.ending))
        timeout = 0;
    loop_round(timeout);
}

void world_run(void) {
    for (;;)
        world_round(-1);
}

static void take_signals(void) {
    sigset_t all, wanted;
    struct sigaction ignore = {.sa_handler = SIG_IGN}, standard = {.sa_handler = SIG_DFL};
    /* What was ignored when we were started would be ignored in all that we start. */
    for (int number = 1; number < 65; number++)
        if (number != SIGKILL && number != SIGSTOP && number != 32 && number != 33 && number != 34)
            sigaction(number, &standard, NULL);
    sigaction(SIGPIPE, &ignore, NULL);
    sigfillset(&all);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGFPE);
    sigdelset(&all, SIGILL);
    sigdelset(&all, SIGABRT);
    sigprocmask(SIG_SETMASK, &all, NULL);
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGCHLD);
    /* A cell ends with its stream alone: it is not for what runs in it to say when. */
    if (!cell_inside()) {
        sigaddset(&wanted, SIGTERM);
        sigaddset(&wanted, SIGINT);
        sigaddset(&wanted, SIGHUP);
    }
    signal_fd = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
    signal_source.ready = on_signal;
    loop_add(signal_fd, EPOLLIN, &signal_source);
}

int world_start(void) {
    if (loop_start() < 0)
        return -1;
    take_signals();
    facts_begin();
    spawn_remember_limits();
    cgroup_start();
    facts_start();
    if (forker_start() < 0)
        return -1;
    worker_source.ready = on_workers;
    int workers = workers_start();
    if (workers < 0)
        return -1;
    loop_add(workers, EPOLLIN, &worker_source);
    covers_watch();
    return 0;
}

void world_greet(void) {
    struct buffer body = {.limit = MAX_BODY};
    facts_put(&body);
    if (body.failed) {
        static const char text[] = "warden: the environment is too large for the greeting\n";
        (void)!write(2, text, sizeof text - 1);
        _exit(1);
    }
    link_send(MESSAGE_FACTS_HELLO, 0, &body);
    buffer_free(&body);
}
