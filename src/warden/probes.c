#include "probes.h"

#include "descend.h"
#include "sys.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#define CONNECT_MS 500
#ifndef MSG_FASTOPEN
#define MSG_FASTOPEN 0x20000000
#endif
#define MULTIPATH_PROTOCOL 262
#define KERNEL_EVENTS 15 /* NETLINK_KOBJECT_UEVENT: wherever there is netlink, and for everybody */
#ifndef AF_VSOCK
#define AF_VSOCK 40
#endif
#ifndef O_TMPFILE
#define O_TMPFILE (020000000 | O_DIRECTORY)
#endif

const char *probes_path(const struct targets *targets, const char *name, char into[PATH_MAX + 16]) {
    size_t size = strnlen(targets->directory, PATH_MAX - 1), rest = strnlen(name, 14);
    memcpy(into, targets->directory, size);
    into[size] = '/';
    memcpy(into + size + 1, name, rest);
    into[size + 1 + rest] = 0;
    return into;
}

/* The directory may have a longer name than fits into an address. */
void probes_socket_path(int directory, char into[SOCKET_PATH_SIZE]) {
    static const char before[] = "/proc/self/fd/", after[] = "/socket";
    char digits[16];
    size_t count = 0;
    do
        digits[count++] = (char)('0' + directory % 10);
    while ((directory /= 10) > 0);
    memcpy(into, before, sizeof before - 1);
    into += sizeof before - 1;
    while (count > 0)
        *into++ = digits[--count];
    memcpy(into, after, sizeof after);
}

uint64_t probes_start_time(pid_t pid) {
    char path[64], text[1024];
    proc_path(path, pid, "/stat");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t size = RETRY(read(fd, text, sizeof text - 1));
    close(fd);
    text[size > 0 ? size : 0] = 0;
    char *at = strrchr(text, ')'); /* the name may hold anything */
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    uint64_t value = 0;
    for (at = at ? at + 1 : text; *at >= '0' && *at <= '9'; at++)
        value = value * 10 + (uint64_t)(*at - '0');
    return value;
}

static int done(int fd) {
    if (fd < 0)
        return errno;
    close(fd);
    return 0;
}

/* ---- files ---- */

static int try_write(const char *path) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    int error = RETRY(write(fd, "x", 1)) == 1 ? 0 : errno;
    close(fd);
    return error;
}

static int try_read(const struct targets *targets, uint32_t index, const char *path, struct attempt *attempt) {
    struct stat found;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return errno;
    int error = fstat(fd, &found) < 0 ? errno : 0;
    close(fd);
    if (error != 0)
        return error;
    attempt->device = found.st_dev;
    attempt->inode = found.st_ino;
    bool same = targets->read[index].device == found.st_dev && targets->read[index].inode == found.st_ino;
    return targets->read[index].known && !same ? ENOENT : 0;
}

static int try_write_below(const struct targets *targets, const char *path) {
    int fd = open(path, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL && errno != ENOSYS))
        return done(fd);
    char name[MARK_SIZE + 16] = ".execworld-";
    int directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0)
        directory = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0)
        return errno;
    memcpy(name + 11, targets->mark, MARK_SIZE);
    name[11 + MARK_SIZE] = 0;
    fd = openat(directory, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int error = done(fd);
    if (error == 0 && unlinkat(directory, name, 0) < 0)
        error = errno;
    close(directory);
    return error;
}

/* ---- sockets ---- */

static int wait_connected(int fd) {
    struct pollfd poll_fd = {.fd = fd, .events = POLLOUT};
    int error = 0;
    socklen_t size = sizeof error;
    if (RETRY(poll(&poll_fd, 1, CONNECT_MS)) <= 0)
        return ETIMEDOUT;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0 ? errno : error;
}

static int try_connect(int family, int protocol, const void *address, socklen_t size, bool fast_open) {
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol);
    if (fd < 0)
        return errno;
    long result = fast_open ? sendto(fd, "x", 1, MSG_FASTOPEN | MSG_NOSIGNAL, address, size) : connect(fd, address, size);
    int error = result >= 0 ? 0 : errno == EINPROGRESS ? wait_connected(fd) : errno;
    close(fd);
    return error;
}

static int try_tcp(const struct targets *targets, enum target_port port, int protocol, bool fast_open) {
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = targets->ports[port], .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    return try_connect(AF_INET, protocol, &address, sizeof address, fast_open);
}

static int try_udp(const struct targets *targets) {
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = targets->ports[PORT_UDP], .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return errno;
    /* On loopback it is known at once that nobody is there. */
    int on = 1, refused = 0;
    socklen_t size = sizeof refused;
    (void)setsockopt(fd, IPPROTO_IP, IP_RECVERR, &on, sizeof on);
    ssize_t sent = sendto(fd, "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL, (const void *)&address, sizeof address);
    int error = sent == 1 ? 0 : errno;
    if (error == 0 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &refused, &size) == 0)
        error = refused;
    close(fd);
    return error;
}

static int try_unix(const struct targets *targets, bool abstract) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t size = sizeof address;
    int directory = -1;
    if (abstract) {
        size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + MARK_SIZE);
        memcpy(address.sun_path + 1, targets->abstract, MARK_SIZE);
    } else {
        directory = open(targets->directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (directory < 0)
            return errno;
        probes_socket_path(directory, address.sun_path);
    }
    int error = try_connect(AF_UNIX, 0, &address, size, false);
    if (directory >= 0)
        close(directory);
    return error;
}

/* ---- processes ---- */

int probes_read_memory(pid_t pid, uint64_t address, char into[MARK_SIZE]) {
    char path[64];
    struct iovec ours = {into, MARK_SIZE}, theirs = {(void *)(uintptr_t)address, MARK_SIZE};
    ssize_t size = syscall(SYS_process_vm_readv, pid, &ours, 1ul, &theirs, 1ul, 0ul);
    if (size == (ssize_t)MARK_SIZE)
        return 0;
    int error = size < 0 ? errno : ENOMSG;
    proc_path(path, pid, "/mem");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return error;
    size = RETRY(pread(fd, into, MARK_SIZE, (off_t)address));
    close(fd);
    return size == (ssize_t)MARK_SIZE ? 0 : error;
}

static int try_set_limit(const struct targets *targets) {
    uint64_t values[2] = {TARGET_FILES + 1, targets->most_files};
    return syscall(SYS_prlimit64, targets->process, RLIMIT_NOFILE, values, NULL) < 0 ? errno : 0;
}

static int try_trace(const struct targets *targets) {
    char found[MARK_SIZE];
    int error = probes_read_memory(targets->process, targets->memory, found);
    return error == 0 && memcmp(found, targets->mark, sizeof found) != 0 ? ENOMSG : error;
}

static int try_environment(const struct targets *targets) {
    char path[64], text[sizeof TARGET_VARIABLE - 1 + MARK_SIZE];
    proc_path(path, targets->process, "/environ");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    ssize_t size = RETRY(read(fd, text, sizeof text));
    int error = errno;
    close(fd);
    if (size < 0)
        return error;
    bool same = size == sizeof text && memcmp(text + sizeof TARGET_VARIABLE - 1, targets->mark, MARK_SIZE) == 0;
    return same ? 0 : ENOMSG;
}

static int try_see(const struct targets *targets) {
    char path[64];
    proc_path(path, targets->process, "/stat");
    int error = done(open(path, O_RDONLY | O_CLOEXEC));
    if (error != 0)
        return error;
    return targets->start_time && probes_start_time(targets->process) == targets->start_time ? 0 : ENOMSG;
}

static int try_process(const struct targets *targets, uint8_t kind) {
    /* 0 and below would mean somebody else. */
    if (targets->process <= 0)
        return ESRCH;
    switch (kind) {
    case PROBE_SIGNAL: return kill(targets->process, SIGUSR1) < 0 ? errno : 0;
    case PROBE_SET_LIMIT: return try_set_limit(targets);
    case PROBE_TRACE: return try_trace(targets);
    case PROBE_READ_ENVIRONMENT: return try_environment(targets);
    default: return try_see(targets);
    }
}

static int try_one(const struct plan *plan, const struct targets *targets, uint32_t index, struct attempt *attempt) {
    const struct probe *probe = &plan->probes[index];
    char path[PATH_MAX + 16];
    switch (probe->kind) {
    case PROBE_WRITE: return try_write(probes_path(targets, "write", path));
    case PROBE_TRUNCATE: return truncate(probes_path(targets, "truncate", path), 0) < 0 ? errno : 0;
    case PROBE_CREATE:
        return done(open(probes_path(targets, "create", path), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    case PROBE_REMOVE: return unlink(probes_path(targets, "remove", path)) < 0 ? errno : 0;
    case PROBE_CHANGE_MODE: return chmod(probes_path(targets, "mode", path), 0600) < 0 ? errno : 0;
    case PROBE_READ: return try_read(targets, index, probe->path, attempt);
    case PROBE_WRITE_BELOW: return try_write_below(targets, probe->path);
    case PROBE_CONNECT_TCP: return try_tcp(targets, PORT_TCP, 0, false);
    case PROBE_FAST_OPEN: return try_tcp(targets, PORT_FAST_OPEN, 0, true);
    case PROBE_MULTIPATH_TCP: return try_tcp(targets, PORT_MULTIPATH, MULTIPATH_PROTOCOL, false);
    case PROBE_SEND_UDP: return try_udp(targets);
    case PROBE_VSOCK: return done(socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0));
    case PROBE_CONNECT_UNIX: return try_unix(targets, false);
    case PROBE_CONNECT_ABSTRACT: return try_unix(targets, true);
    case PROBE_NETLINK: return done(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, KERNEL_EVENTS));
    case PROBE_OWN_TCP:
    case PROBE_OWN_UDP:
    case PROBE_OWN_SIGNAL:
    case PROBE_OWN_TRACE:
    case PROBE_OWN_UNIX:
    case PROBE_OWN_PAIR:
    case PROBE_GRANTED_PORT: return controls_try(probe, targets);
    default: return try_process(targets, probe->kind);
    }
}

void probes_try(const struct plan *plan, const struct targets *targets, uint32_t first, int pipe) {
    /* In a pid namespace of its own the number of the target may be that of the prober. */
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGUSR1, &ignore, NULL);
    for (uint32_t index = first; index < plan->probe_count; index++) {
        struct attempt attempt = {0};
        attempt.error = try_one(plan, targets, index, &attempt);
        if (RETRY(write(pipe, &attempt, sizeof attempt)) != (ssize_t)sizeof attempt)
            return;
    }
}
