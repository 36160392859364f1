#include "limits.h"

#include "beside.h"
#include "hierarchy.h"
#include "sys.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
    const char *controller;
    const char *v1_file;
    const char *v1_swap_file;
    const char *v2_file;
    const char *v2_swap_file;
} kinds[LIMIT_COUNT] = {
    [LIMIT_PROCESSES] = {"pids", "pids.max", NULL, "pids.max", NULL},
    /* Without a limit on swap a limit on memory only makes it slow. */
    [LIMIT_MEMORY] = {"memory", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.max", "memory.swap.max"},
};

static int write_text(int directory, const char *name, const char *text) {
    int fd = openat(directory, name, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    size_t size = strlen(text);
    int error = RETRY(write(fd, text, size)) == (ssize_t)size ? 0 : errno;
    close(fd);
    return error;
}

static int write_number(int directory, const char *name, uint64_t number) {
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)number);
    return write_text(directory, name, text);
}

/* The number in a file; all ones when there is none (`max`). */
static uint64_t read_number(int directory, const char *name) {
    char text[64];
    int fd = openat(directory, name, O_RDONLY | O_CLOEXEC);
    ssize_t size = fd >= 0 ? RETRY(read(fd, text, sizeof text - 1)) : -1;
    if (fd >= 0)
        close(fd);
    text[size > 0 ? size : 0] = 0;
    return text[0] >= '0' && text[0] <= '9' ? strtoull(text, NULL, 10) : UINT64_MAX;
}

static int set_limit(int directory, const char *file, const char *swap_file, uint64_t swap, uint64_t wanted) {
    int error = write_number(directory, file, wanted);
    if (error == 0 && swap_file)
        error = write_number(directory, swap_file, swap);
    return error == ENOENT && swap_file && faccessat(directory, file, F_OK, 0) == 0 ? 0 : error; /* swap is not counted */
}

static int make_v1(struct limit_groups *groups, enum limit_kind kind) {
    static unsigned made;
    int parent = hierarchy_open_own(kinds[kind].controller);
    if (parent < 0)
        return ENOENT;
    char *name = groups->names[kind];
    /* As they see it from inside: the supervisor keeps no descriptor of what lies above. */
    snprintf(name, sizeof groups->names[kind], "../%s-%u", cgroup_prefix(), __atomic_fetch_add(&made, 1, __ATOMIC_RELAXED));
    int error = mkdirat(parent, name + 3, 0755) < 0 ? errno : 0;
    int directory = error == 0 ? openat(parent, name + 3, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
    if (error == 0 && directory < 0)
        error = errno;
    if (directory >= 0) {
        groups->directories[kind] = directory;
        (void)flock(directory, LOCK_EX | LOCK_NB); /* it is in use: see cgroup.c */
        error = set_limit(directory, kinds[kind].v1_file, kinds[kind].v1_swap_file, groups->wanted[kind],
                          groups->wanted[kind]);
    }
    close(parent);
    return error;
}

/* In a group beside ours what bounds our own group does not count, so one of ours is never given more than that. */
static uint64_t bounded(enum limit_kind kind, uint64_t wanted) {
    int own = hierarchy_open_own(NULL);
    uint64_t most = own >= 0 ? read_number(own, kinds[kind].v2_file) : UINT64_MAX;
    if (own >= 0)
        close(own);
    return most < wanted ? most : wanted;
}

static bool delegated(const struct limit_groups *groups) {
    for (int kind = 0; kind < LIMIT_COUNT; kind++)
        if (groups->wanted[kind] != 0 && cgroup_delegate(kinds[kind].controller) != 0)
            return false;
    return true;
}

/* The group of version 2 to start in: below our own where that can hold the limits, else beside it where that can. */
static struct cgroup *choose(struct limit_groups *groups, int *outer, char *name, size_t size) {
    struct cgroup *cgroup = delegated(groups) ? NULL : beside_make(outer, name, size);
    return cgroup ? cgroup : cgroup_acquire();
}

static int make_below(const struct limit_groups *groups, enum limit_kind kind, const struct cgroup *cgroup) {
    if (!cgroup)
        return ENOENT;
    int error = cgroup_delegate(kinds[kind].controller);
    if (error == 0)
        error = set_limit(cgroup->directory, kinds[kind].v2_file, kinds[kind].v2_swap_file, 0, groups->wanted[kind]);
    return error;
}

static int make_beside(struct limit_groups *groups, enum limit_kind kind, int outer, const char *name) {
    int error = set_limit(outer, kinds[kind].v2_file, kinds[kind].v2_swap_file, 0, bounded(kind, groups->wanted[kind]));
    if (error != 0)
        return error;
    groups->directories[kind] = fcntl(outer, F_DUPFD_CLOEXEC, 3); /* and the lock */
    snprintf(groups->names[kind], sizeof groups->names[kind], "%s", name);
    return groups->directories[kind] < 0 ? errno : 0;
}

static int make_v2(struct limit_groups *groups, enum limit_kind kind, const struct cgroup *cgroup, int outer, const char *name) {
    return outer >= 0 ? make_beside(groups, kind, outer, name) : make_below(groups, kind, cgroup);
}

struct cgroup *limits_make(struct limit_groups *groups, uint64_t processes, uint64_t memory_bytes) {
    char name[sizeof groups->names[0]];
    int outer = -1;
    memset(groups, 0, sizeof *groups);
    groups->wanted[LIMIT_PROCESSES] = processes;
    groups->wanted[LIMIT_MEMORY] = memory_bytes;
    struct cgroup *cgroup = choose(groups, &outer, name, sizeof name);
    bool held = false;
    for (int kind = 0; kind < LIMIT_COUNT; kind++) {
        groups->directories[kind] = -1;
        if (groups->wanted[kind] == 0)
            continue;
        int error = make_v2(groups, kind, cgroup, outer, name);
        if (error == 0) {
            groups->method[kind] = LIMIT_CGROUP_V2;
            held = true;
            continue;
        }
        int older = make_v1(groups, kind);
        if (older == 0)
            groups->method[kind] = LIMIT_CGROUP_V1;
        else
            groups->error[kind] = (uint16_t)(older == ENOENT ? error : older);
    }
    if (outer < 0)
        return cgroup;
    if (!held) { /* it is of no use, and nobody would remove it */
        hierarchy_remove(outer, name);
        cgroup_release(cgroup, true);
        cgroup = cgroup_acquire();
    }
    close(outer);
    return cgroup;
}

void limits_enter(const struct limit_groups *groups) {
    for (int kind = 0; kind < LIMIT_COUNT; kind++) {
        if (groups->method[kind] != LIMIT_CGROUP_V1)
            continue;
        int fd = openat(groups->directories[kind], "cgroup.procs", O_WRONLY | O_CLOEXEC);
        if (fd < 0)
            continue; /* whether it is in there is looked at afterwards */
        (void)RETRY(write(fd, "0", 1));
        close(fd);
    }
}

void limits_verify(struct limit_groups *groups, const struct cgroup *cgroup) {
    for (int kind = 0; kind < LIMIT_COUNT; kind++) {
        if (groups->method[kind] == LIMIT_NONE)
            continue;
        bool newer = groups->method[kind] == LIMIT_CGROUP_V2;
        /* Of version 2 it is around the one that has the processes, or the same. */
        int directory = groups->directories[kind] >= 0 ? groups->directories[kind] : cgroup->directory;
        int inner = newer ? cgroup->directory : directory;
        uint64_t now = read_number(directory, newer ? kinds[kind].v2_file : kinds[kind].v1_file);
        /* Memory is rounded down to pages. Somebody is in there when there is a first number. */
        if (now > groups->wanted[kind] || read_number(inner, "cgroup.procs") == UINT64_MAX) {
            groups->method[kind] = LIMIT_NONE;
            groups->error[kind] = EPERM;
        }
    }
}

void limits_remove(const struct limit_groups *groups) {
    for (int kind = 0; kind < LIMIT_COUNT; kind++)
        if (groups->directories[kind] >= 0)
            hierarchy_remove(groups->directories[kind], groups->names[kind]);
}

void limits_close(struct limit_groups *groups) {
    for (int kind = 0; kind < LIMIT_COUNT; kind++) {
        if (groups->directories[kind] >= 0)
            close(groups->directories[kind]);
        groups->directories[kind] = -1;
    }
}
