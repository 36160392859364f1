#include "targets.h"

#include "supervisors.h"
#include "sys.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#define SEEN_MS 500 /* for what an attempt that said to have succeeded sets in motion */

#ifndef PR_SET_PTRACER
#define PR_SET_PTRACER 0x59616d61
#endif

static bool wants(const struct plan *plan, uint8_t first, uint8_t last) {
    for (uint32_t index = 0; index < plan->probe_count; index++)
        if (plan->probes[index].kind >= first && plan->probes[index].kind <= last)
            return true;
    return false;
}

static bool wants_process(const struct plan *plan) {
    return wants(plan, PROBE_SIGNAL, PROBE_READ_ENVIRONMENT) || wants(plan, PROBE_SEE_PROCESS, PROBE_SEE_PROCESS);
}

static int make_mark(char mark[MARK_SIZE]) {
    uint8_t random[MARK_SIZE / 2];
    if (RETRY(syscall(SYS_getrandom, random, sizeof random, 0u)) != (long)sizeof random)
        return errno;
    for (unsigned index = 0; index < MARK_SIZE; index++)
        mark[index] = "0123456789abcdef"[random[index / 2] >> (index % 2 * 4) & 15];
    return 0;
}

/* ---- the process ---- */

struct introduction {
    uint64_t memory;
    uint64_t most_files;
};
struct answer {
    uint8_t signalled;
    uint8_t limited;
};

_Noreturn void target_main(void) {
    static char mark[MARK_SIZE];
    const char *given = getenv("EXECWORLD_PROBE");
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGUSR1);
    sigprocmask(SIG_BLOCK, &wanted, NULL);
    prctl(PR_SET_PTRACER, -1, 0, 0, 0); /* for Yama */
    prctl(PR_SET_NAME, "warden-target");
    if (given && strlen(given) == MARK_SIZE)
        memcpy(mark, given, MARK_SIZE);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = TARGET_FILES;
    setrlimit(RLIMIT_NOFILE, &files);
    struct introduction introduction = {(uint64_t)(uintptr_t)mark, files.rlim_max};
    uint8_t question;
    if (RETRY(write(0, &introduction, sizeof introduction)) != (ssize_t)sizeof introduction)
        _exit(1);
    while (RETRY(read(0, &question, 1)) == 1) {
        struct answer answer = {0};
        struct timespec none = {0};
        while (sigtimedwait(&wanted, NULL, &none) == SIGUSR1)
            answer.signalled = 1;
        struct rlimit now;
        answer.limited = getrlimit(RLIMIT_NOFILE, &now) == 0 && now.rlim_cur != TARGET_FILES;
        setrlimit(RLIMIT_NOFILE, &files);
        if (RETRY(write(0, &answer, sizeof answer)) != (ssize_t)sizeof answer)
            break;
    }
    _exit(0);
}

static void execute_target(void *argument, const int *fds) {
    char *variable = argument;
    int executable = fds[0], end = fds[1];
    char name[] = "warden", what[] = "target", *const arguments[] = {name, what, NULL};
    char *const environment[] = {variable, NULL};
    sigset_t none;
    sigemptyset(&none);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (dup2(end, 0) == 0) {
        sigprocmask(SIG_SETMASK, &none, NULL);
        syscall(SYS_execveat, executable, "", arguments, environment, 0x1000 /* AT_EMPTY_PATH */);
    }
    _exit(127);
}

static bool receive(int fd, void *into, size_t size, int64_t deadline_ms) {
    int64_t left = deadline_ms - monotonic_ms();
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    if (left < 0 || RETRY(poll(&poll_fd, 1, (int)left)) <= 0)
        return false;
    return RETRY(recv(fd, into, size, MSG_DONTWAIT)) == (ssize_t)size; /* small: comes whole */
}

static int start_process(struct target_set *set, int executable, int64_t deadline_ms) {
    char variable[sizeof TARGET_VARIABLE + MARK_SIZE] = TARGET_VARIABLE;
    memcpy(variable + sizeof TARGET_VARIABLE - 1, set->where.mark, MARK_SIZE);
    variable[sizeof variable - 1] = 0;
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return errno;
    set->control = ends[0];
    const int fds[] = {executable, ends[1]};
    pid_t child = helper_fork(fds, 2, execute_target, variable);
    int error = child < 0 ? errno : 0;
    close(ends[1]);
    if (error != 0)
        return error;
    struct introduction introduction;
    if (!receive(set->control, &introduction, sizeof introduction, deadline_ms))
        return ECHILD;
    set->where.process = child;
    set->where.memory = introduction.memory;
    set->where.most_files = introduction.most_files;
    set->where.start_time = probes_start_time(child);
    return 0;
}

static void ask_process(struct target_set *set) {
    struct answer answer = {0};
    if (set->control >= 0 && RETRY(send(set->control, "?", 1, MSG_NOSIGNAL | MSG_DONTWAIT)) == 1)
        (void)receive(set->control, &answer, sizeof answer, monotonic_ms() + SEEN_MS);
    set->signalled = answer.signalled;
    set->limited = answer.limited;
}

/* ---- files ---- */

static int make_file(int directory, const char *name, const char *content) {
    int fd = openat(directory, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0)
        return errno;
    size_t size = strlen(content);
    int error = fchmod(fd, 0666) < 0 ? errno : 0;
    if (error == 0 && RETRY(write(fd, content, size)) != (ssize_t)size)
        error = ENOSPC;
    close(fd);
    return error;
}

static const char *const files[] = {"write", "truncate", "remove", "mode"};

static int make_directory(struct target_set *set, const char *scratch) {
    size_t size = strlen(scratch);
    static const char name[] = "/.execworld-probe-";
    if (size + sizeof name + MARK_SIZE >= sizeof set->where.directory)
        return ENAMETOOLONG;
    memcpy(set->where.directory, scratch, size);
    memcpy(set->where.directory + size, name, sizeof name - 1);
    memcpy(set->where.directory + size + sizeof name - 1, set->where.mark, MARK_SIZE);
    set->where.directory[size + sizeof name - 1 + MARK_SIZE] = 0;
    if (mkdir(set->where.directory, 0700) < 0)
        return errno;
    set->directory = open(set->where.directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int error = set->directory < 0 ? errno : 0;
    if (error != 0)
        (void)rmdir(set->where.directory);
    for (unsigned index = 0; index < sizeof files / sizeof files[0] && error == 0; index++)
        error = make_file(set->directory, files[index], index == 0 ? "" : "x");
    return error;
}

/* ---- sockets ---- */

static int listen_on_loopback(int type, uint16_t *port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    if (bind(fd, (void *)&address, size) < 0 || getsockname(fd, (void *)&address, &size) < 0 ||
        (type == SOCK_STREAM && listen(fd, 64) < 0)) {
        close(fd);
        return -1;
    }
    *port = address.sin_port;
    return fd;
}

static int listen_on_name(const char *name, size_t name_size) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (name_size > sizeof address.sun_path)
        return -1;
    memcpy(address.sun_path, name, name_size);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && (bind(fd, (void *)&address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + name_size)) < 0 ||
                    listen(fd, 64) < 0)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* A world without sockets of a kind has no target of it: then the attempt without confinement fails, and says so. */
static void make_listeners(struct target_set *set) {
    static const uint8_t kinds[PORT_COUNT] = {PROBE_CONNECT_TCP, PROBE_FAST_OPEN, PROBE_MULTIPATH_TCP, PROBE_SEND_UDP};
    for (int index = 0; index < PORT_COUNT; index++)
        if (wants(set->plan, kinds[index], kinds[index]))
            set->listeners[index] =
                listen_on_loopback(index == PORT_UDP ? SOCK_DGRAM : SOCK_STREAM, &set->where.ports[index]);
    if (wants(set->plan, PROBE_CONNECT_UNIX, PROBE_CONNECT_UNIX)) {
        char path[SOCKET_PATH_SIZE];
        probes_socket_path(set->directory, path);
        set->named = listen_on_name(path, strlen(path) + 1);
    }
    if (wants(set->plan, PROBE_CONNECT_ABSTRACT, PROBE_CONNECT_ABSTRACT)) {
        char name[1 + MARK_SIZE] = {0};
        memcpy(name + 1, set->where.mark, MARK_SIZE);
        memcpy(set->where.abstract, set->where.mark, MARK_SIZE);
        set->abstract = listen_on_name(name, sizeof name);
    }
}

int targets_make(struct target_set *set, const struct plan *plan, int executable, int64_t deadline_ms) {
    memset(set, 0, sizeof *set);
    set->plan = plan;
    set->directory = set->named = set->abstract = set->control = -1;
    for (int index = 0; index < PORT_COUNT; index++)
        set->listeners[index] = -1;
    if (plan->probe_count == 0)
        return 0;
    int error = make_mark(set->where.mark);
    if (error == 0)
        error = make_directory(set, plan->scratch);
    if (error == 0)
        make_listeners(set);
    if (error == 0 && wants_process(plan))
        error = start_process(set, executable, deadline_ms);
    return error;
}

/* ---- what was seen ---- */

/* Takes all that came. */
static bool arrived(int fd, bool datagrams, bool expected) {
    bool any = false;
    if (fd < 0)
        return false;
    for (;;) {
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        if (RETRY(poll(&poll_fd, 1, expected && !any ? SEEN_MS : 0)) <= 0)
            return any;
        char byte;
        int taken = datagrams ? (int)recv(fd, &byte, 1, MSG_DONTWAIT) : accept4(fd, NULL, NULL, SOCK_CLOEXEC);
        if (taken < 0)
            return any;
        if (!datagrams)
            close(taken);
        any = true;
    }
}

static bool file_changed(struct target_set *set, uint8_t kind) {
    struct stat found;
    switch (kind) {
    case PROBE_WRITE: return fstatat(set->directory, "write", &found, AT_SYMLINK_NOFOLLOW) == 0 && found.st_size > 0;
    case PROBE_TRUNCATE:
        return fstatat(set->directory, "truncate", &found, AT_SYMLINK_NOFOLLOW) == 0 && found.st_size == 0;
    case PROBE_CREATE: return fstatat(set->directory, "create", &found, AT_SYMLINK_NOFOLLOW) == 0;
    case PROBE_REMOVE: return fstatat(set->directory, "remove", &found, AT_SYMLINK_NOFOLLOW) < 0;
    default: return fstatat(set->directory, "mode", &found, AT_SYMLINK_NOFOLLOW) == 0 && (found.st_mode & 07777) != 0666;
    }
}

static void renew_file(struct target_set *set, uint8_t kind) {
    switch (kind) {
    case PROBE_WRITE: (void)make_file(set->directory, "write", ""); break;
    case PROBE_TRUNCATE: (void)make_file(set->directory, "truncate", "x"); break;
    case PROBE_CREATE: (void)unlinkat(set->directory, "create", 0); break;
    case PROBE_REMOVE: (void)make_file(set->directory, "remove", "x"); break;
    default: (void)make_file(set->directory, "mode", "x"); break;
    }
}

/* `expected`: an attempt said to have succeeded. */
static bool effect_seen(struct target_set *set, uint8_t kind, bool expected) {
    switch (kind) {
    case PROBE_CONNECT_TCP: return arrived(set->listeners[PORT_TCP], false, expected);
    case PROBE_FAST_OPEN: return arrived(set->listeners[PORT_FAST_OPEN], false, expected);
    case PROBE_MULTIPATH_TCP: return arrived(set->listeners[PORT_MULTIPATH], false, expected);
    case PROBE_SEND_UDP: return arrived(set->listeners[PORT_UDP], true, expected);
    case PROBE_CONNECT_UNIX: return arrived(set->named, false, expected);
    case PROBE_CONNECT_ABSTRACT: return arrived(set->abstract, false, expected);
    case PROBE_SIGNAL: return set->signalled;
    case PROBE_SET_LIMIT: return set->limited;
    /* Reading leaves no trace: the prober compared what it read with what is there. */
    case PROBE_READ:
    case PROBE_WRITE_BELOW:
    case PROBE_VSOCK:
    case PROBE_TRACE:
    case PROBE_READ_ENVIRONMENT:
    case PROBE_SEE_PROCESS:
    case PROBE_NETLINK:
    /* Controls look themselves. */
    case PROBE_OWN_TCP:
    case PROBE_OWN_UDP:
    case PROBE_OWN_SIGNAL:
    case PROBE_OWN_TRACE:
    case PROBE_OWN_UNIX:
    case PROBE_OWN_PAIR:
    case PROBE_GRANTED_PORT: return expected;
    default: return file_changed(set, kind);
    }
}

void targets_judge(struct target_set *set, const struct attempt *attempts, uint16_t *results) {
    bool seen[PROBE_END] = {false}, expected[PROBE_END] = {false}, present[PROBE_END] = {false};
    const struct plan *plan = set->plan;
    ask_process(set);
    for (uint32_t index = 0; index < plan->probe_count; index++) {
        present[plan->probes[index].kind] = true;
        expected[plan->probes[index].kind] |= attempts[index].error == 0;
    }
    for (uint8_t kind = 1; kind < PROBE_END; kind++) {
        seen[kind] = present[kind] && effect_seen(set, kind, expected[kind]);
        if (present[kind] && kind <= PROBE_CHANGE_MODE)
            renew_file(set, kind);
    }
    for (uint32_t index = 0; index < plan->probe_count; index++) {
        uint8_t kind = plan->probes[index].kind;
        /* Each of these has a target of its own. */
        bool by_itself = kind == PROBE_READ || kind == PROBE_WRITE_BELOW || kind == PROBE_GRANTED_PORT;
        int error = attempts[index].error;
        /* What was seen counts, whatever the attempt said. */
        if (!by_itself)
            error = seen[kind] ? 0 : error == 0 ? ENOMSG : error;
        results[index] = (uint16_t)error;
    }
}

void targets_remove(struct target_set *set) {
    for (int index = 0; index < PORT_COUNT; index++)
        if (set->listeners[index] >= 0)
            close(set->listeners[index]);
    if (set->named >= 0)
        close(set->named);
    if (set->abstract >= 0)
        close(set->abstract);
    if (set->control >= 0)
        close(set->control); /* it ends */
    if (set->directory < 0)
        return;
    for (unsigned index = 0; index < sizeof files / sizeof files[0]; index++)
        (void)unlinkat(set->directory, files[index], 0);
    (void)unlinkat(set->directory, "create", 0);
    (void)unlinkat(set->directory, "socket", 0);
    close(set->directory);
    (void)rmdir(set->where.directory);
}
