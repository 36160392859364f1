/* Groups of cgroup v2 beside the warden's own: in the group that its own is in. A group with processes, which the warden's
 * own is, hands no controllers down unless it is the root (cgroup-v2.rst, "No Internal Process Constraint"). */
#ifndef WARDEN_BESIDE_H
#define WARDEN_BESIDE_H

#include "cgroup.h"

#include <stddef.h>
#include <stdint.h>

/* Finds out what can be done, by doing it: CGROUP_MEMORY, CGROUP_PIDS. After cgroup_prefix is known. */
uint32_t beside_start(void);
/* Makes none from now on. */
void beside_disable(void);

/* A group for one cell, to start in; NULL with errno. `outer` is the locked group around it, which has the files of
 * limits; `name` is that group's, seen from itself, for hierarchy_remove. Thread-safe. */
struct cgroup *beside_make(int *outer, char *name, size_t size);

#endif
