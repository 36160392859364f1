/* The supervisors of a warden: those that run a command, and those whose tree is proven empty and that wait for the next
 * one, which saves a fork. Thread-safe. */
#ifndef WARDEN_SUPERVISORS_H
#define WARDEN_SUPERVISORS_H

#include "lock.h"
#include "spawn.h"

#include <stdbool.h>
#include <sys/types.h>

/* Gives the command to one that waits, or forks one. Sets supervisor, control and cgroup of `spawned`; an errno. */
int supervisor_start(struct command *command, struct spawned *spawned);
/* Forks one for this command alone. `spawned` has its cgroup already. */
int supervisor_fork(struct command *command, struct spawned *spawned);
/* A child that is no supervisor and ends soon by itself; as forker_fork. */
pid_t helper_fork(const int *fds, int count, void (*main)(void *argument, const int *fds), void *argument);
/* Puts all of them but those of cells, and all that they start, under a restriction, which is copied. An errno; EBUSY when
 * anything was started before. */
int supervisors_restrict(struct restriction restriction);
/* A child of either sort, unless it was reaped already. */
void helper_kill(pid_t pid);
/* What a program stopped goes on at once: one that is stopped answers no order, and has not even said that it started. */
void supervisor_resume(pid_t pid);
/* Takes one back whose tree ended by itself. Takes over control and cgroup. */
void supervisor_keep(pid_t pid, int control, struct cgroup *cgroup);
/* Lets go of all that wait; they end. */
void supervisors_dismiss(void);
/* How many there are, waiting ones included. */
unsigned supervisors_count(void);

/* Held while it is not decided which of the warden's children are supervisors. */
void supervisors_lock(void);
void supervisors_unlock(void);
/* With the lock held. */
bool supervisor_known(pid_t pid);
/* It was reaped. Whether it was one. */
bool supervisor_forget(pid_t pid);

#endif
