#include "beside.h"

#include "hierarchy.h"
#include "sys.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define INNER "c0"
#define MOST_NAMES 3 /* a sweep that locks one before its maker does takes it away */

static const struct {
    const char *controller;
    uint32_t bit;
} controllers[] = {{"memory", CGROUP_MEMORY}, {"pids", CGROUP_PIDS}};

static int above = -1;
static uint32_t able;

/* Whoever manages what is above may take a controller away there as long as nobody hands it further down, and limits with
 * it. Therefore two groups, of which the inner one has the processes. */
static int open_inner(int outer) {
    for (size_t index = 0; index < sizeof controllers / sizeof controllers[0]; index++) {
        int error = able & controllers[index].bit ? hierarchy_hand_down(outer, controllers[index].controller) : 0;
        if (error != 0) {
            errno = error;
            return -1;
        }
    }
    return mkdirat(outer, INNER, 0755) < 0 ? -1 : openat(outer, INNER, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static int open_outer(char *name, size_t size) {
    static unsigned made;
    snprintf(name, size, "../%s-%u", cgroup_prefix(), __atomic_fetch_add(&made, 1, __ATOMIC_RELAXED));
    if (mkdirat(above, name + 3, 0755) < 0)
        return -1;
    int outer = openat(above, name + 3, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (outer < 0 || flock(outer, LOCK_EX | LOCK_NB) == 0)
        return outer;
    close(outer);
    errno = EAGAIN;
    return -1;
}

struct cgroup *beside_make(int *outer, char *name, size_t size) {
    if (above < 0) {
        errno = EBUSY; /* what the own group says */
        return NULL;
    }
    struct cgroup *cgroup = calloc(1, sizeof *cgroup);
    if (!cgroup)
        return NULL;
    int error = 0;
    for (int attempt = 0; attempt < MOST_NAMES; attempt++) {
        *outer = open_outer(name, size);
        cgroup->beside = true;
        cgroup->directory = *outer >= 0 ? open_inner(*outer) : -1;
        if (cgroup->directory >= 0)
            return cgroup;
        error = errno;
        if (*outer >= 0) {
            hierarchy_remove(*outer, name);
            close(*outer);
            *outer = -1;
        }
    }
    free(cgroup);
    errno = error;
    return NULL;
}

void beside_disable(void) { above = -1; } /* it stays open: a cell may be in the making */

uint32_t beside_start(void) {
    above = hierarchy_open_above();
    if (above >= 0)
        hierarchy_remove_stale(above);
    for (size_t index = 0; above >= 0 && index < sizeof controllers / sizeof controllers[0]; index++)
        if (hierarchy_has(above, "cgroup.subtree_control", controllers[index].controller))
            able |= controllers[index].bit;
    if (able == 0) {
        if (above >= 0)
            close(above);
        above = -1;
        return 0;
    }
    char name[80];
    int outer = -1;
    bool killed = false;
    struct cgroup *cgroup = beside_make(&outer, name, sizeof name);
    /* Making one is not all: to start in it takes the right to write the list of processes above. */
    bool works = cgroup && cgroup_clone_works(cgroup->directory, &killed) && killed;
    if (cgroup) {
        hierarchy_remove(outer, name);
        close(outer);
        cgroup_release(cgroup, true);
    }
    if (!works) {
        close(above);
        above = -1;
        able = 0;
    }
    return able;
}
