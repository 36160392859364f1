#include "forker.h"

#include "cgroup.h"
#include "domain.h"
#include "facts.h"
#include "lock.h"
#include "sys.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define STACK_SIZE (256u * 1024u)

/* The descriptors travel as SCM_RIGHTS; the rest is memory of the one process that both sides are. */
struct request {
    void (*main)(void *argument, const int *fds);
    void *argument;
    const int *fds;
    int count;
};

struct outcome {
    pid_t pid;
    int error;
};

struct forker {
    int caller_end;
    int end;
};

static struct forker first = {-1, -1}, second = {-1, -1};
static bool used, restricted;

union passed {
    struct cmsghdr header;
    uint8_t space[CMSG_SPACE(FORKER_MOST_FDS * sizeof(int))];
};

static void fork_for(int end, struct request *request, const int *received, int received_count) {
    struct outcome outcome = {.pid = -1, .error = EMFILE};
    int fds[FORKER_MOST_FDS], wanted = 0;
    for (int index = 0; index < request->count; index++) {
        bool given = request->fds[index] >= 0;
        fds[index] = given && wanted < received_count ? received[wanted] : -1;
        wanted += given;
    }
    if (wanted == received_count) {
        outcome.pid = lock_has_domain() ? domain_fork(request->main, request->argument, fds) : sys_fork();
        if (outcome.pid == 0) {
            request->main(request->argument, fds);
            _exit(127);
        }
        outcome.error = errno;
    }
    for (int index = 0; index < received_count; index++)
        close(received[index]);
    (void)RETRY(send(end, &outcome, sizeof outcome, MSG_NOSIGNAL));
}

static void *forker(void *argument) {
    const int end = ((const struct forker *)argument)->end;
    struct outcome ready = {.error = sys_unshare_descriptors() < 0 ? errno : 0};
    /* The link among them: it would not end with the loop's. */
    int kept[] = {end, facts_null(), cgroup_parent(), lock_ruleset()};
    if (ready.error == 0 && lock_inherited() < 0)
        ready.error = errno;
    if (ready.error == 0)
        close_all_but(kept, sizeof kept / sizeof kept[0]);
    if (ready.error == 0 && lock_has_domain() && domain_start() < 0)
        ready.error = errno;
    if (RETRY(send(end, &ready, sizeof ready, MSG_NOSIGNAL)) < 0 || ready.error != 0)
        return NULL;
    for (;;) {
        struct request *request;
        union passed passed;
        struct iovec part = {&request, sizeof request};
        struct msghdr message = {
            .msg_iov = &part, .msg_iovlen = 1, .msg_control = &passed, .msg_controllen = sizeof passed};
        ssize_t size = RETRY(recvmsg(end, &message, MSG_CMSG_CLOEXEC));
        if (size != (ssize_t)sizeof request)
            return NULL;
        int fds[FORKER_MOST_FDS], count = 0;
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        if (header && header->cmsg_type == SCM_RIGHTS) {
            count = (int)((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
            memcpy(fds, CMSG_DATA(header), (size_t)count * sizeof(int));
        }
        fork_for(end, request, fds, count);
    }
}

/* Until it has a table of its own, the two share this one: what is closed or opened here would be in its way. */
static int await_ready(const struct forker *one) {
    struct outcome ready;
    ssize_t size = RETRY(recv(one->caller_end, &ready, sizeof ready, 0));
    return size == (ssize_t)sizeof ready ? ready.error : EPIPE;
}

static int start(struct forker *one) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return -1;
    one->caller_end = ends[0];
    one->end = ends[1];
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_SIZE);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_t thread;
    int error = pthread_create(&thread, &attributes, forker, one);
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0)
        error = await_ready(one);
    close(one->end); /* else nobody would ever see the end of one that failed */
    errno = error;
    return error == 0 ? 0 : -1;
}

int forker_start(void) { return start(&first); }

bool forker_untouched(void) { return !used && !restricted; }

int forker_restrict(void) {
    restricted = true; /* whatever comes of it */
    return start(&second);
}

pid_t forker_fork(bool cell, const int *fds, int count, void (*main)(void *argument, const int *fds), void *argument) {
    const int caller_end = restricted && !cell ? second.caller_end : first.caller_end;
    used = true;
    struct request request = {main, argument, fds, count};
    const struct request *address = &request;
    int given[FORKER_MOST_FDS], given_count = 0;
    for (int index = 0; index < count; index++)
        if (fds[index] >= 0)
            given[given_count++] = fds[index];
    union passed passed;
    struct iovec part = {&address, sizeof address};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (given_count > 0) {
        size_t size = (size_t)given_count * sizeof(int);
        memset(&passed, 0, sizeof passed);
        message.msg_control = &passed;
        message.msg_controllen = (__typeof__(message.msg_controllen))CMSG_SPACE(size);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = (__typeof__(header->cmsg_len))CMSG_LEN(size);
        memcpy(CMSG_DATA(header), given, size);
    }
    struct outcome outcome;
    if (RETRY(sendmsg(caller_end, &message, MSG_NOSIGNAL)) < 0)
        return -1;
    if (RETRY(recv(caller_end, &outcome, sizeof outcome, 0)) != (ssize_t)sizeof outcome) {
        errno = EAGAIN;
        return -1;
    }
    errno = outcome.error;
    return outcome.pid;
}
