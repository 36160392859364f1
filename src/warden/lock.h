/* What every program in a cell is under beside the cell itself. Set once, in the cell; applied between vfork and exec, so
 * by system calls alone. Outside of a cell there is none and nothing happens. */
#ifndef WARDEN_LOCK_H
#define WARDEN_LOCK_H

#include "plan.h"

/* Keeps the parts of the plan, which must stay. `ruleset` is a descriptor or -1. */
void lock_set(const struct plan *plan, int ruleset);
/* Descriptor that supervisors must keep; -1. */
int lock_ruleset(void);

/* In this order, with the ids between the first two. -1 with errno. */
int lock_before_ids(void); /* limits, bounding set */
int lock_after_ids(void);  /* capabilities, no_new_privs, ruleset */
int lock_filter(void);     /* last: what follows may be forbidden by it */

/* Also for the cell itself. */
int capabilities_keep(uint64_t mask);
int filter_apply(struct slice filter);

#endif
