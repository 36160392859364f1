#include "supervisors.h"

#include "cgroup.h"
#include "forker.h"
#include "limits.h"
#include "sys.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MOST_WAITING 16

struct waiting {
    pid_t pid;
    int control;
    struct cgroup *cgroup;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pid_t *known; /* not reaped yet */
static unsigned known_count;
static unsigned known_capacity;
static struct waiting waiting[MOST_WAITING];
static unsigned waiting_count;

void supervisors_lock(void) { pthread_mutex_lock(&mutex); }
void supervisors_unlock(void) { pthread_mutex_unlock(&mutex); }

bool supervisor_known(pid_t pid) {
    for (unsigned index = 0; index < known_count; index++)
        if (known[index] == pid)
            return true;
    return false;
}

bool supervisor_forget(pid_t pid) {
    for (unsigned index = 0; index < known_count; index++)
        if (known[index] == pid) {
            known[index] = known[--known_count];
            return true;
        }
    return false;
}

unsigned supervisors_count(void) {
    supervisors_lock();
    unsigned count = known_count;
    supervisors_unlock();
    return count;
}

static void let_go(const struct waiting *one) {
    close(one->control);
    cgroup_release(one->cgroup, false);
}

void supervisor_keep(pid_t pid, int control, struct cgroup *cgroup) {
    struct waiting one = {pid, control, cgroup};
    supervisors_lock();
    bool room = waiting_count < MOST_WAITING && supervisor_known(pid);
    if (room)
        waiting[waiting_count++] = one;
    supervisors_unlock();
    if (!room)
        let_go(&one);
}

void supervisors_dismiss(void) {
    struct waiting one;
    for (;;) {
        supervisors_lock();
        bool any = waiting_count > 0;
        if (any)
            one = waiting[--waiting_count];
        supervisors_unlock();
        if (!any)
            return;
        let_go(&one);
    }
}

/* One packet: the command, and its descriptors. */
static bool hand_over(int control, const struct command *command) {
    uint8_t packet[COMMAND_MOST];
    int fds[3], count = 0;
    size_t size = command_pack(command, packet, sizeof packet, fds, &count);
    if (size == 0)
        return false;
    union {
        struct cmsghdr header;
        uint8_t space[CMSG_SPACE(sizeof fds)];
    } passed;
    struct iovec part = {packet, size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (count > 0) {
        memset(&passed, 0, sizeof passed);
        message.msg_control = &passed;
        message.msg_controllen = (__typeof__(message.msg_controllen))CMSG_SPACE((size_t)count * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = (__typeof__(header->cmsg_len))CMSG_LEN((size_t)count * sizeof(int));
        memcpy(CMSG_DATA(header), fds, (size_t)count * sizeof(int));
    }
    return RETRY(sendmsg(control, &message, MSG_NOSIGNAL | MSG_DONTWAIT)) == (ssize_t)size;
}

static bool take_waiting(struct waiting *one) {
    for (;;) {
        supervisors_lock();
        bool any = waiting_count > 0;
        if (any)
            *one = waiting[--waiting_count];
        supervisors_unlock();
        if (!any)
            return false;
        /* It says nothing while it waits, so anything to read is its end. */
        struct pollfd poll_fd = {.fd = one->control, .events = POLLIN};
        if (poll(&poll_fd, 1, 0) == 0)
            return true;
        let_go(one);
    }
}

/* With the lock held. */
static void make_room(void) {
    if (known_count < known_capacity)
        return;
    known_capacity = known_capacity ? known_capacity * 2 : 64;
    known = realloc(known, known_capacity * sizeof *known);
    if (!known)
        abort();
}

pid_t helper_fork(const int *fds, int count, void (*main)(void *argument, const int *fds), void *argument) {
    supervisors_lock();
    make_room();
    pid_t child = forker_fork(false, fds, count, main, argument);
    int error = errno;
    if (child > 0)
        known[known_count++] = child;
    supervisors_unlock();
    errno = error;
    return child;
}

void helper_kill(pid_t pid) {
    supervisors_lock();
    if (supervisor_known(pid))
        kill(pid, SIGKILL);
    supervisors_unlock();
}

void supervisor_resume(pid_t pid) {
    supervisors_lock();
    if (supervisor_known(pid))
        kill(pid, SIGCONT);
    supervisors_unlock();
}

int supervisors_restrict(struct restriction restriction) {
    uint8_t *copy = malloc(restriction.filter.size + 1u);
    if (!copy)
        abort();
    if (restriction.filter.size)
        memcpy(copy, restriction.filter.data, restriction.filter.size);
    restriction.filter.data = copy;
    supervisors_lock();
    int error = EBUSY;
    if (forker_untouched()) {
        lock_restrict(restriction);
        error = forker_restrict() < 0 ? errno : 0;
        copy = NULL;
    }
    supervisors_unlock();
    free(copy);
    return error;
}

enum { GIVEN_CONTROL, GIVEN_CGROUP, GIVEN_EXECUTABLE, GIVEN_STANDARD, GIVEN_LIMITS = GIVEN_STANDARD + 3 };
enum { GIVEN_COUNT = GIVEN_LIMITS + LIMIT_COUNT };

struct birth {
    struct command *command;
    pid_t warden;
};

/* In the child, whose memory is a copy. */
static void be_supervisor(void *argument, const int *fds) {
    static struct limit_groups limits;
    struct birth *birth = argument;
    struct command *command = birth->command;
    command->control = fds[GIVEN_CONTROL];
    command->cgroup = fds[GIVEN_CGROUP];
    if (command->executable > 0)
        command->executable = fds[GIVEN_EXECUTABLE];
    for (int index = 0; index < 3; index++)
        if (command->standard[index] != command->null)
            command->standard[index] = fds[GIVEN_STANDARD + index];
    if (command->limits_of_cell) {
        limits = *command->limits_of_cell;
        for (int kind = 0; kind < LIMIT_COUNT; kind++)
            limits.directories[kind] = fds[GIVEN_LIMITS + kind];
        command->limits_of_cell = &limits;
    }
    supervise(command, birth->warden);
}

int supervisor_fork(struct command *command, struct spawned *spawned) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return errno;
    spawned->control = ends[0];
    int fds[GIVEN_COUNT];
    fds[GIVEN_CONTROL] = ends[1];
    fds[GIVEN_CGROUP] = spawned->cgroup ? spawned->cgroup->directory : -1;
    fds[GIVEN_EXECUTABLE] = command->executable > 0 ? command->executable : -1;
    for (int index = 0; index < 3; index++)
        fds[GIVEN_STANDARD + index] = command->standard[index] == command->null ? -1 : command->standard[index];
    for (int kind = 0; kind < LIMIT_COUNT; kind++)
        fds[GIVEN_LIMITS + kind] = command->limits_of_cell ? command->limits_of_cell->directories[kind] : -1;
    struct birth birth = {command, getpid()};
    supervisors_lock();
    make_room();
    spawned->supervisor = forker_fork(command->limits_of_cell != NULL, fds, GIVEN_COUNT, be_supervisor, &birth);
    int status = spawned->supervisor < 0 ? errno : 0;
    if (status == 0)
        known[known_count++] = spawned->supervisor;
    supervisors_unlock();
    close(ends[1]);
    return status;
}

int supervisor_start(struct command *command, struct spawned *spawned) {
    struct waiting one;
    if (take_waiting(&one)) {
        if (hand_over(one.control, command)) {
            spawned->supervisor = one.pid;
            spawned->control = one.control;
            spawned->cgroup = one.cgroup;
            return 0;
        }
        /* Too large for a packet, or it is gone. It can serve another command in the first case. */
        supervisor_keep(one.pid, one.control, one.cgroup);
    }
    spawned->cgroup = cgroup_acquire();
    return supervisor_fork(command, spawned);
}
