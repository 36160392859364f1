/* The threads that fork. The table of descriptors of each is its own and never has a file in it: closing a file may ask a file
 * system that does not answer (flush of FUSE and NFS), and a child would have to close all that it was given. One is
 * enough until what is started is restricted beyond what cells are. */
#ifndef WARDEN_FORKER_H
#define WARDEN_FORKER_H

#include <stdbool.h>
#include <sys/types.h>

#define FORKER_MOST_FDS 8

/* After everything is open that all children use: 0 to 2, facts_null, cgroup_parent and lock_ruleset. -1 with errno. */
int forker_start(void);

/* Everything but cells is forked under lock_restriction from now on, or, with -1 and errno, not at all. Once, and before
 * anything was forked. With the lock of the supervisors held. */
int forker_restrict(void);
bool forker_untouched(void);

/* As sys_fork, with the lock of the supervisors held; the child runs `main` and has, besides what all have, copies of the
 * given descriptors under the numbers that it is told. -1 stays -1. */
pid_t forker_fork(bool cell, const int *fds, int count, void (*main)(void *argument, const int *fds), void *argument);

#endif
