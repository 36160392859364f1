/* Is a thread blocked reading a terminal? From /proc/PID/task/TID/syscall, which names the call and its arguments.
 * Whatever cannot be read or is not understood is no proof. */
#include "descend.h"
#include "sys.h"
#include "terminal.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

#define MOST_POLLED 1024u

/* The controlling terminal by its other name. */
static bool is_terminal(const struct stat *stat, dev_t device) {
    return S_ISCHR(stat->st_mode) && (stat->st_rdev == device || stat->st_rdev == makedev(5, 0));
}

static bool reads_terminal(pid_t pid, unsigned long long fd, dev_t device) {
    char path[64];
    struct stat stat_buffer;
    if (fd > INT32_MAX)
        return false;
    snprintf(path, sizeof path, "/proc/%d/fd/%llu", (int)pid, fd);
    return stat(path, &stat_buffer) == 0 && is_terminal(&stat_buffer, device);
}

static bool peek(pid_t pid, unsigned long long address, void *into, size_t size) {
    struct iovec local = {into, size}, remote = {(void *)(uintptr_t)address, size};
    return process_vm_readv(pid, &local, 1, &remote, 1, 0) == (ssize_t)size;
}

static bool polls_terminal(pid_t pid, unsigned long long address, unsigned long long count, dev_t device) {
    if (count == 0 || count > MOST_POLLED)
        return false;
    struct pollfd polled[MOST_POLLED];
    if (!peek(pid, address, polled, count * sizeof polled[0]))
        return false;
    for (unsigned long long index = 0; index < count; index++)
        if (polled[index].fd >= 0 && (polled[index].events & (POLLIN | POLLRDNORM)) &&
            reads_terminal(pid, (unsigned long long)polled[index].fd, device))
            return true;
    return false;
}

static bool selects_terminal(pid_t pid, unsigned long long count, unsigned long long address, dev_t device) {
    unsigned long long set[MOST_POLLED / 64];
    if (address == 0 || count == 0)
        return false;
    if (count > MOST_POLLED)
        count = MOST_POLLED;
    memset(set, 0, sizeof set);
    if (!peek(pid, address, set, (size_t)((count + 63) / 64) * 8))
        return false;
    for (unsigned long long fd = 0; fd < count; fd++)
        if ((set[fd / 64] >> (fd % 64) & 1) && reads_terminal(pid, fd, device))
            return true;
    return false;
}

static bool epolls_terminal(pid_t pid, unsigned long long epoll_fd, dev_t device) {
    char path[64], line[256];
    bool found = false;
    snprintf(path, sizeof path, "/proc/%d/fdinfo/%llu", (int)pid, epoll_fd);
    FILE *file = fopen(path, "re");
    while (file && !found && fgets(line, sizeof line, file)) {
        unsigned long long fd;
        unsigned events;
        if (sscanf(line, "tfd: %llu events: %x", &fd, &events) == 2 && (events & POLLIN))
            found = reads_terminal(pid, fd, device);
    }
    if (file)
        fclose(file);
    return found;
}

static bool thread_waits(pid_t pid, const char *thread, dev_t device) {
    char path[320], text[256];
    snprintf(path, sizeof path, "/proc/%d/task/%s/syscall", (int)pid, thread);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t size = RETRY(read(fd, text, sizeof text - 1));
    close(fd);
    text[size > 0 ? size : 0] = 0;
    long number;
    unsigned long long arguments[4];
    if (sscanf(text, "%ld %llx %llx %llx %llx", &number, &arguments[0], &arguments[1], &arguments[2], &arguments[3]) != 5)
        return false; /* "running" */
    switch (number) {
    case SYS_read:
    case SYS_readv: return reads_terminal(pid, arguments[0], device);
#ifdef SYS_poll
    case SYS_poll:
#endif
    case SYS_ppoll: return polls_terminal(pid, arguments[0], arguments[1], device);
#ifdef SYS_select
    case SYS_select:
#endif
    case SYS_pselect6: return selects_terminal(pid, arguments[0], arguments[1], device);
#ifdef SYS_epoll_wait
    case SYS_epoll_wait:
#endif
    case 441: /* epoll_pwait2 */
    case SYS_epoll_pwait: return epolls_terminal(pid, arguments[0], device);
    default: return false;
    }
}

static bool process_waits(pid_t pid, dev_t device) {
    char path[64];
    bool found = false;
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *threads = opendir(path);
    for (struct dirent *entry; threads && !found && (entry = readdir(threads));)
        if (entry->d_name[0] != '.')
            found = thread_waits(pid, entry->d_name, device);
    if (threads)
        closedir(threads);
    return found;
}

bool waits_for_input(pid_t group, pid_t supervisor, dev_t device) {
    if (device == 0 || group <= 0)
        return false;
    struct descent *descent = malloc(sizeof *descent);
    if (!descent)
        return false;
    bool found = false;
    descend(supervisor, true, descent);
    for (int index = 0; index < descent->count && !found; index++) {
        struct process_line line;
        pid_t pid = descent->entries[index].pid;
        if (read_process_line(pid, &line) && line.group == group && line.state == 'S')
            found = process_waits(pid, device);
    }
    free(descent);
    return found;
}
