/* Groups of cgroup v2, one for each running command, where the warden may make them. */
#ifndef WARDEN_CGROUP_H
#define WARDEN_CGROUP_H

#include <stdbool.h>
#include <stdint.h>

struct cgroup {
    struct cgroup *next;
    unsigned number;
    int directory;
    bool beside; /* made and removed there: see beside.h */
};

enum cgroup_can {
    CGROUP_MOUNTED = 1,
    CGROUP_CHILD = 2,
    CGROUP_KILL = 4,
    CGROUP_CLONE = 8,
    CGROUP_MEMORY = 16,
    CGROUP_PIDS = 32,
    CGROUP_V1_PIDS = 64,
    CGROUP_V1_MEMORY = 128,
    CGROUP_WITHHELD = 256,
};

/* Finds out what can be done, by doing it. */
void cgroup_start(void);
uint32_t cgroup_abilities(void);
const char *cgroup_own_path(void);
/* Whether commands get one. */
bool cgroup_used(void);

/* Uses none from now on. */
void cgroup_disable(void);

/* Thread-safe; NULL when there is none to be had. */
struct cgroup *cgroup_acquire(void);
/* One that is empty and in which nothing was ever killed is used again. Since cgroup.kill counts its uses, Linux (seen
 * in 6.18) also kills whatever is cloned into a group whose count differs from that of the parent's group. */
void cgroup_release(struct cgroup *cgroup, bool killed);

/* Async-signal-safe: kills what is in a group. */
void cgroup_kill(int directory);
/* Removes all empty groups of this warden, and their parent when nothing is left. */
void cgroup_remove_all(void);

/* Number of processes that the kernel killed for memory in the warden's own group; -1 unknown. */
int64_t cgroup_memory_kills(void);

/* Descriptor that a supervisor must keep for cgroup_remove_all; -1. */
int cgroup_parent(void);

/* How what belongs to this warden is called in every hierarchy. */
const char *cgroup_prefix(void);
/* Hands a controller of version 2 to the groups of commands; an errno. */
int cgroup_delegate(const char *controller);
/* Whether something can be started in a group, and, within a second, whether cgroup.kill ends it. */
bool cgroup_clone_works(int directory, bool *killed);

#endif
