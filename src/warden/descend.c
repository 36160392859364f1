#include "descend.h"

#include "sys.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static char *put_number(char *at, pid_t number) {
    char digits[16];
    int count = 0;
    do {
        digits[count++] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    while (count > 0)
        *at++ = digits[--count];
    return at;
}

void proc_path(char into[64], pid_t pid, const char *suffix) {
    memcpy(into, "/proc/", 6);
    char *at = put_number(into + 6, pid);
    size_t size = strlen(suffix);
    if (size > 40)
        size = 40;
    memcpy(at, suffix, size);
    at[size] = 0;
}

static pid_t parse_number(const char *text) {
    int64_t number = 0;
    if (*text < '0' || *text > '9')
        return 0;
    for (; *text >= '0' && *text <= '9' && number < INT32_MAX; text++)
        number = number * 10 + (*text - '0');
    return number < INT32_MAX ? (pid_t)number : 0;
}

bool read_process_line(pid_t pid, struct process_line *line) {
    char path[64], text[512];
    proc_path(path, pid, "/stat");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t size = RETRY(read(fd, text, sizeof text - 1));
    close(fd);
    if (size <= 0)
        return false;
    text[size] = 0;
    /* The name may hold anything but ends at the last parenthesis. */
    char *at = strrchr(text, ')');
    if (!at || at[1] != ' ' || !at[2] || at[3] != ' ')
        return false;
    line->state = at[2];
    line->parent = parse_number(at + 4);
    at = strchr(at + 4, ' ');
    line->group = at ? parse_number(at + 1) : 0;
    return true;
}

/* A /proc of another pid namespace shows other processes under these numbers. */
static bool proc_is_ours(void) {
    char target[32];
    ssize_t size = readlink("/proc/self", target, sizeof target - 1);
    if (size <= 0)
        return false;
    target[size] = 0;
    return parse_number(target) == getpid();
}

static void add(struct descent *descent, pid_t pid, pid_t parent) {
    if (descent->count < MOST_DESCENDANTS && pid > 1) {
        descent->entries[descent->count].pid = pid;
        descent->entries[descent->count].parent = parent;
        descent->count++;
    }
}

/* Numbers of a directory of /proc, one by one. */
struct numbers {
    int fd;
    ssize_t size;
    ssize_t at;
    _Alignas(8) char buffer[2048];
};

static bool numbers_open(struct numbers *numbers, const char *path) {
    numbers->size = numbers->at = 0;
    numbers->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return numbers->fd >= 0;
}

static pid_t numbers_next(struct numbers *numbers) {
    for (;;) {
        if (numbers->at >= numbers->size) {
            numbers->size = RETRY(sys_getdents64(numbers->fd, numbers->buffer, sizeof numbers->buffer));
            numbers->at = 0;
            if (numbers->size <= 0) {
                close(numbers->fd);
                return 0;
            }
        }
        const struct kernel_dirent *entry = (const void *)(numbers->buffer + numbers->at);
        numbers->at += entry->length;
        pid_t number = parse_number(entry->name);
        if (number > 0)
            return number;
    }
}

/* False when the kernel has no such file. */
static bool children_of_thread(pid_t pid, pid_t thread, struct descent *descent) {
    char path[96], text[1024];
    proc_path(path, pid, "/task/");
    char *at = put_number(path + strlen(path), thread);
    memcpy(at, "/children", 10);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    int64_t number = -1;
    ssize_t size;
    while ((size = RETRY(read(fd, text, sizeof text))) > 0)
        for (ssize_t index = 0; index < size; index++) {
            if (text[index] >= '0' && text[index] <= '9') {
                number = (number < 0 ? 0 : number) * 10 + (text[index] - '0');
            } else if (number >= 0) {
                add(descent, (pid_t)number, pid);
                number = -1;
            }
        }
    close(fd);
    return true;
}

static bool children_of(pid_t pid, struct descent *descent) {
    char path[64];
    struct numbers threads;
    bool any = false;
    proc_path(path, pid, "/task");
    if (!numbers_open(&threads, path))
        return true; /* gone */
    for (pid_t thread; (thread = numbers_next(&threads)) > 0;)
        any |= children_of_thread(pid, thread, descent);
    return any;
}

/* Over all processes, again for each level of the tree. */
static void descend_by_scan(pid_t root, bool deep, struct descent *descent) {
    int before;
    int level_start = 0;
    bool first = true;
    do {
        struct numbers pids;
        before = descent->count;
        if (!numbers_open(&pids, "/proc"))
            return;
        for (pid_t pid; (pid = numbers_next(&pids)) > 0;) {
            struct process_line line;
            if (!read_process_line(pid, &line))
                continue;
            bool below = first && line.parent == root;
            for (int index = level_start; index < before && !below; index++)
                below = descent->entries[index].pid == line.parent;
            if (below)
                add(descent, pid, line.parent);
        }
        level_start = before;
        first = false;
    } while (deep && descent->count > before);
}

void descend(pid_t root, bool deep, struct descent *descent) {
    descent->count = 0;
    if (!proc_is_ours())
        return;
    if (!children_of(root, descent)) {
        char path[64];
        proc_path(path, root, "/stat");
        if (access(path, F_OK) == 0)
            descend_by_scan(root, deep, descent);
        return;
    }
    for (int index = 0; deep && index < descent->count; index++)
        (void)children_of(descent->entries[index].pid, descent);
}

void find_children(pid_t root, struct descent *descent) {
    descent->count = 0;
    if (proc_is_ours())
        descend_by_scan(root, false, descent);
}

bool signal_descendant(const struct descendant *descendant, pid_t root, int number) {
    /* Nobody but the caller can free the number of its own child. */
    if (descendant->parent == root)
        return kill(descendant->pid, number) == 0;
    int pidfd = sys_pidfd_open(descendant->pid);
    struct process_line line;
    /* Looked at once more while the descriptor holds the process fast. An orphan has become the root's. */
    if (!read_process_line(descendant->pid, &line) || (line.parent != descendant->parent && line.parent != root)) {
        if (pidfd >= 0)
            close(pidfd);
        return false;
    }
    bool sent;
    if (pidfd >= 0) {
        sent = sys_pidfd_send_signal(pidfd, number) == 0;
        int error = errno;
        close(pidfd);
        if (!sent && error == ENOSYS)
            sent = kill(descendant->pid, number) == 0;
    } else {
        sent = kill(descendant->pid, number) == 0;
    }
    return sent;
}
