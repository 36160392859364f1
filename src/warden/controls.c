/* Controls: effects on what the prober itself made. Where these fail as well, a denial elsewhere proves nothing. */
#include "probes.h"

#include "sys.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define ARRIVAL_MS 500

static bool readable(int fd) {
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    return RETRY(poll(&poll_fd, 1, ARRIVAL_MS)) == 1;
}

/* A listener, and what connects to it. The address is completed by the kernel. */
static int meet(int type, struct sockaddr *address, socklen_t size, socklen_t room) {
    int listener = socket(address->sa_family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int client = socket(address->sa_family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int error = listener < 0 || client < 0 ? errno : 0;
    if (error == 0 && (bind(listener, address, size) < 0 || getsockname(listener, address, &room) < 0 ||
                       (type == SOCK_STREAM && listen(listener, 1) < 0)))
        error = errno;
    if (error == 0 && connect(client, address, room) < 0 && errno != EINPROGRESS)
        error = errno;
    if (error == 0 && type == SOCK_DGRAM && RETRY(send(client, "x", 1, MSG_NOSIGNAL)) != 1)
        error = errno;
    if (error == 0 && !readable(listener))
        error = ETIMEDOUT;
    if (listener >= 0)
        close(listener);
    if (client >= 0)
        close(client);
    return error;
}

static int meet_on_loopback(int type) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    return meet(type, (struct sockaddr *)&address, sizeof address, sizeof address);
}

/* The kernel chooses an abstract name when there is none. */
static int meet_without_path(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    return meet(SOCK_STREAM, (struct sockaddr *)&address, sizeof address.sun_family, sizeof address);
}

static int talk_in_pair(void) {
    int ends[2];
    char byte;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return errno;
    int error = RETRY(write(ends[0], "x", 1)) == 1 && RETRY(read(ends[1], &byte, 1)) == 1 ? 0 : errno;
    close(ends[0]);
    close(ends[1]);
    return error;
}

/* Nothing is sent: no TCP connects to a group, which is found out when everything was asked that could deny it. */
static int connect_to_group(const char *port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    address.sin_addr.s_addr = htonl(INADDR_ALLHOSTS_GROUP);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return errno;
    int error = connect(fd, (struct sockaddr *)&address, sizeof address) < 0 ? errno : 0;
    close(fd);
    return error == ENETUNREACH || error == EINPROGRESS ? 0 : error;
}

/* ---- a child ---- */

static char memory[MARK_SIZE];

static _Noreturn void be_child(int ready, const char *mark) {
    sigset_t none;
    sigemptyset(&none);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGUSR1, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_DUMPABLE, 1);
    memcpy(memory, mark, sizeof memory);
    (void)RETRY(write(ready, "x", 1));
    for (;;)
        pause();
}

static int read_child(pid_t child, const char *mark) {
    char found[MARK_SIZE];
    int error = probes_read_memory(child, (uint64_t)(uintptr_t)memory, found);
    return error == 0 && memcmp(found, mark, sizeof found) != 0 ? ENOMSG : error;
}

static int with_child(uint8_t kind, const char *mark) {
    int ends[2], status = 0;
    char byte;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return errno;
    pid_t child = sys_fork();
    if (child == 0)
        be_child(ends[1], mark);
    int error = child < 0 ? errno : 0;
    close(ends[1]);
    if (error == 0 && RETRY(read(ends[0], &byte, 1)) != 1)
        error = ECHILD;
    close(ends[0]);
    if (error == 0 && kind == PROBE_OWN_TRACE)
        error = read_child(child, mark);
    else if (error == 0 && kill(child, SIGUSR1) < 0)
        error = errno;
    if (child < 0)
        return error;
    if (error != 0 || kind == PROBE_OWN_TRACE)
        kill(child, SIGKILL);
    if (RETRY(waitpid(child, &status, 0)) != child)
        return errno;
    if (error == 0 && kind == PROBE_OWN_SIGNAL && !(WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR1))
        error = ENOMSG;
    return error;
}

int controls_try(const struct probe *probe, const struct targets *targets) {
    switch (probe->kind) {
    case PROBE_OWN_TCP: return meet_on_loopback(SOCK_STREAM);
    case PROBE_OWN_UDP: return meet_on_loopback(SOCK_DGRAM);
    case PROBE_OWN_UNIX: return meet_without_path();
    case PROBE_OWN_PAIR: return talk_in_pair();
    case PROBE_GRANTED_PORT: return connect_to_group(probe->path);
    default: return with_child(probe->kind, targets->mark);
    }
}
