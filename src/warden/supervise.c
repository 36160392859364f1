/* The supervisor of one command at a time: a small process between the warden and the command. Orphans of the tree become its
 * children, so the tree is empty exactly when it has no child left. It ends its tree when told to, or when the warden is
 * gone. After the fork it allocates nothing and takes no lock. */
#include "cgroup.h"
#include "descend.h"
#include "limits.h"
#include "lock.h"
#include "protocol.h"
#include "spawn.h"
#include "sys.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define GIVE_UP_MS 5000   /* without one process less: report the survivors */
#define LINGER_MS 20000   /* without the warden: nobody is left to report to */
#define STACK_SIZE 16384
#define CELL_GRACE_MS 2000 /* without the warden: a cell ends by itself, and puts away what it has begun */
#define SIGNAL_ROUNDS 16

static struct {
    pid_t warden;
    pid_t leader;
    int control;
    int cgroup;
    bool leader_ended;
    bool empty;
    bool kill_asked;   /* sweep until empty */
    bool report_owed;  /* somebody waits for the outcome */
    bool abandoned;    /* the warden is gone */
    bool swept;        /* something of ours killed something */
    unsigned rounds;
    int64_t progress_ms; /* when a process was last seen to end while killing */
    int64_t abandoned_ms;
    const struct limit_groups *limits; /* of a cell */
    struct note ended;
    sigset_t wait_mask;
} state;

static struct descent descent;

static void on_signal(int number) { (void)number; }

static void send_note(const struct note *note, size_t survivors) {
    size_t size = offsetof(struct note, survivors) + survivors * sizeof note->survivors[0];
    (void)RETRY(send(state.control, note, size, MSG_NOSIGNAL));
}

static uint8_t method(void) {
    if (!state.swept)
        return KILL_NOT_NEEDED;
    return state.cgroup >= 0 ? KILL_CGROUP : KILL_SUBREAPER;
}

static void prepare(const struct command *command) {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGCHLD, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    /* Out of the warden's group: what kills that must leave us to clean up. */
    setsid();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    prctl(PR_SET_NAME, "warden-command");
    if (getppid() != state.warden)
        _exit(1);
    const struct limit_groups *limits = command->limits_of_cell;
    const int wanted[] = {command->control,
                          command->standard[0],
                          command->standard[1],
                          command->standard[2],
                          command->cgroup,
                          command->null,
                          cgroup_parent(),
                          lock_ruleset(),
                          command->executable,
                          limits ? limits->directories[0] : -1,
                          limits ? limits->directories[1] : -1};
    int kept[sizeof wanted / sizeof wanted[0]], count = 0;
    for (size_t index = 0; index < sizeof wanted / sizeof wanted[0]; index++)
        if (wanted[index] > 2)
            kept[count++] = wanted[index];
    close_all_but(kept, count); /* other commands' pipes would stay open with us */
}

/* Before anybody learns that the command runs: a copy of ours would take what is written to an input that nobody reads. */
static void close_standard(const struct command *command) {
    for (int index = 0; index < 3; index++) {
        bool again = command->standard[index] == command->null;
        for (int other = 0; other < index; other++)
            again |= command->standard[index] == command->standard[other];
        if (!again)
            close(command->standard[index]);
    }
}

/* False when it did not start. */
static bool start_leader(const struct command *command) {
    static _Alignas(16) char stack[STACK_SIZE];
    struct failure failure = {.stage = STAGE_SETUP};
    struct note note = {.type = NOTE_STARTED};
    int report[2];
    if (pipe2(report, O_CLOEXEC) < 0) {
        note.error = errno;
        send_note(&note, 0);
        _exit(0);
    }
    struct start start = {.command = command, .supervisor = getpid(), .report = report[1]};
    state.leader = sys_vfork(leader_main, &start, stack, sizeof stack, command->cgroup);
    if (state.leader < 0 && command->cgroup >= 0) {
        /* The group may have been taken away. The sweep does without it. */
        state.cgroup = -1;
        state.leader = sys_vfork(leader_main, &start, stack, sizeof stack, -1);
    }
    int error = errno;
    close(report[1]);
    prctl(PR_SET_DUMPABLE, 0); /* what takes other ids in our memory sets it to what the system says */
    if (state.leader < 0) {
        note.error = error;
    } else if (RETRY(read(report[0], &failure, sizeof failure)) == (ssize_t)sizeof failure) {
        (void)RETRY(waitpid(state.leader, NULL, __WALL));
        note.error = failure.error;
        note.stage = failure.stage;
    } else {
        note.pid = state.leader;
    }
    close(report[0]);
    close_standard(command);
    send_note(&note, 0);
    return note.error == 0;
}

static void note_leader(int raw, const struct rusage *usage) {
    state.leader_ended = true;
    state.ended.type = NOTE_EXITED;
    state.ended.raw = raw;
    state.ended.user_us = (uint64_t)usage->ru_utime.tv_sec * 1000000 + (uint64_t)usage->ru_utime.tv_usec;
    state.ended.system_us = (uint64_t)usage->ru_stime.tv_sec * 1000000 + (uint64_t)usage->ru_stime.tv_usec;
    state.ended.peak_bytes = (uint64_t)usage->ru_maxrss * 1024;
}

static void reap(void) {
    bool leader_was_running = !state.leader_ended;
    for (;;) {
        int raw;
        struct rusage usage;
        pid_t pid = wait4(-1, &raw, WNOHANG | __WALL, &usage);
        if (pid < 0 && errno == EINTR)
            continue;
        if (pid <= 0) {
            state.empty = pid < 0;
            break;
        }
        state.progress_ms = 0;
        if (pid == state.leader && !state.leader_ended)
            note_leader(raw, &usage);
    }
    if (leader_was_running && state.leader_ended) {
        state.ended.gone = state.empty;
        state.ended.method = method();
        send_note(&state.ended, 0);
    }
}

/* STOP first, so that what is found forks no more while the rest is being found. */
static void stop_all(pid_t self) {
    int before = -1;
    for (int pass = 0; pass < 24; pass++) {
        descend(self, true, &descent);
        for (int index = 0; index < descent.count; index++)
            (void)signal_descendant(&descent.entries[index], self, SIGSTOP);
        if (descent.count == before)
            break;
        before = descent.count;
    }
}

static void sweep(void) {
    pid_t self = getpid();
    state.swept = true;
    if (state.cgroup >= 0)
        cgroup_kill(state.cgroup);
    /* Known without /proc, which a world need not have. */
    if (!state.leader_ended) {
        kill(-state.leader, SIGKILL);
        kill(state.leader, SIGKILL);
    }
    /* Usually a tree is gone after as many rounds as it is deep: orphans become our children. */
    bool storm = state.rounds++ >= 3;
    if (storm && state.rounds % 2 == 0)
        stop_all(self);
    descend(self, storm, &descent);
    for (int index = 0; index < descent.count; index++)
        (void)signal_descendant(&descent.entries[index], self, SIGKILL);
}

static void report_survivors(void) {
    struct note note = {.type = NOTE_REPORT, .method = method()};
    descend(getpid(), true, &descent);
    note.survivor_count = (uint32_t)(descent.count < MOST_SURVIVORS ? descent.count : MOST_SURVIVORS);
    for (uint32_t index = 0; index < note.survivor_count; index++)
        note.survivors[index] = descent.entries[index].pid;
    send_note(&note, note.survivor_count);
    state.report_owed = false;
}

/* Whoever was being forked while the others were found gets it in the next round. One that has a signal pending forks no
 * more, so there are few rounds unless the signal is ignored. */
static int signal_all(int number) {
    static pid_t told[MOST_DESCENDANTS];
    int told_count = 0, signalled = 0;
    pid_t self = getpid();
    for (int round = 0; round < SIGNAL_ROUNDS; round++) {
        int before = told_count;
        descend(self, true, &descent);
        for (int index = 0; index < descent.count && told_count < MOST_DESCENDANTS; index++) {
            struct process_line line;
            const struct descendant *found = &descent.entries[index];
            int known = 0;
            while (known < before && told[known] != found->pid)
                known++;
            if (known < before || !read_process_line(found->pid, &line) || line.state == 'Z' || line.state == 'X')
                continue;
            told[told_count++] = found->pid;
            signalled += signal_descendant(found, self, number);
        }
        if (told_count == before)
            break;
    }
    return signalled;
}

static void signal_tree(const struct order *order) {
    struct note note = {.type = NOTE_SIGNALLED, .token = order->token};
    if (order->target == TARGET_LEADER) {
        if (!state.leader_ended) {
            /* Not reaped, so the number is still its own. */
            note.count = kill(state.leader, order->number) == 0 ? 1 : -errno;
            if (note.count == -ESRCH)
                note.count = 0;
        }
    } else {
        note.count = signal_all(order->number);
    }
    send_note(&note, 0);
}

static void obey(void) {
    for (;;) {
        struct order order;
        ssize_t size = recv(state.control, &order, sizeof order, MSG_DONTWAIT);
        if (size < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (size <= 0) {
            state.abandoned = true;
            return;
        }
        if (size != sizeof order)
            continue;
        reap();
        /* The end of the tree answers every order that crossed with it. Nothing may follow that note: the warden may hand
         * over the next command as soon as it has read it. */
        if (state.empty)
            return;
        if (order.type == ORDER_SIGNAL) {
            signal_tree(&order);
        } else {
            if (state.kill_asked)
                state.rounds = 0;
            state.kill_asked = state.report_owed = true;
            state.progress_ms = 0;
        }
    }
}

static int keep_killing(void) {
    int64_t now = monotonic_ms();
    if (state.progress_ms == 0)
        state.progress_ms = now;
    int64_t stuck = now - state.progress_ms;
    if (stuck > GIVE_UP_MS && state.report_owed)
        report_survivors();
    if (stuck > LINGER_MS && state.abandoned)
        _exit(1);
    sweep();
    if (stuck > GIVE_UP_MS)
        return 250;
    return stuck < 20 ? 1 : 10;
}

static void finish(void) {
    if (!state.ended.gone) {
        struct note note = {.type = NOTE_GONE, .gone = 1, .method = method()};
        send_note(&note, 0);
    }
    /* What was killed may have left marks on the group; see cgroup_release. */
    if (state.limits)
        limits_remove(state.limits);
    if (state.swept || state.abandoned || state.limits) {
        if (state.abandoned)
            cgroup_remove_all();
        _exit(0);
    }
}

/* The next command. Nobody is left who could be meant by anything else. */
static void await_command(struct command *command) {
    static _Alignas(16) uint8_t packet[COMMAND_MOST];
    static char *strings[COMMAND_MOST_STRINGS];
    sigset_t wait_mask = state.wait_mask;
    for (;;) {
        struct pollfd poll_fd = {.fd = state.control, .events = POLLIN};
        if (ppoll(&poll_fd, 1, NULL, &wait_mask) < 0 && getppid() == state.warden)
            continue;
        union {
            struct cmsghdr header;
            uint8_t space[CMSG_SPACE(3 * sizeof(int))];
        } passed;
        struct iovec part = {packet, sizeof packet};
        struct msghdr message = {
            .msg_iov = &part, .msg_iovlen = 1, .msg_control = &passed, .msg_controllen = sizeof passed};
        ssize_t size = recvmsg(state.control, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (size == 0 || getppid() != state.warden) {
            cgroup_remove_all();
            _exit(0);
        }
        if (size <= (ssize_t)sizeof(struct order))
            continue; /* meant the command that ended meanwhile */
        int fds[3], count = 0;
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        if (header && header->cmsg_type == SCM_RIGHTS) {
            count = (int)((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
            memcpy(fds, CMSG_DATA(header), (size_t)count * sizeof(int));
        }
        if (!command_unpack(packet, (size_t)size, fds, count, strings, command))
            _exit(1);
        return;
    }
}

/* How long what is to be killed may still end by itself. */
static int grace_left(void) {
    if (!state.limits || state.kill_asked)
        return 0;
    int64_t now = monotonic_ms();
    if (state.abandoned_ms == 0)
        state.abandoned_ms = now;
    int64_t left = state.abandoned_ms + CELL_GRACE_MS - now;
    return left > 0 ? (int)left : 0;
}

static void run(const struct command *command) {
    state.leader_ended = state.empty = state.kill_asked = state.report_owed = false;
    state.rounds = 0;
    state.progress_ms = 0;
    state.ended = (struct note){.type = NOTE_EXITED};
    if (!start_leader(command))
        return;
    int timeout = 0;
    for (;;) {
        struct pollfd poll_fd = {.fd = state.abandoned ? -1 : state.control, .events = POLLIN};
        struct timespec time = {.tv_sec = timeout / 1000, .tv_nsec = (long)(timeout % 1000) * 1000000};
        if (ppoll(&poll_fd, 1, timeout < 0 ? NULL : &time, &state.wait_mask) > 0)
            obey();
        /* TERM is what the kernel sends when the warden ends; from anybody else it means nothing. */
        if (getppid() != state.warden)
            state.abandoned = true;
        reap();
        if (state.empty) {
            finish();
            return;
        }
        timeout = state.kill_asked || state.abandoned ? grace_left() : -1;
        if (timeout == 0)
            timeout = keep_killing();
    }
}

void supervise(const struct command *first, pid_t warden) {
    state.warden = warden;
    state.control = first->control;
    state.cgroup = first->cgroup;
    state.limits = first->limits_of_cell;
    sigfillset(&state.wait_mask);
    sigdelset(&state.wait_mask, SIGCHLD);
    sigdelset(&state.wait_mask, SIGTERM);
    prepare(first);
    run(first);
    struct command command = {.control = first->control, .cgroup = first->cgroup, .null = first->null};
    for (;;) {
        await_command(&command);
        run(&command);
    }
}
