/* What every program in a cell is under beside the cell itself. Set once, in the cell; applied by
 * system calls alone. Outside of a cell there is none and nothing happens. */
#ifndef WARDEN_LOCK_H
#define WARDEN_LOCK_H

#include "plan.h"

/* Keeps the parts of the plan, which must stay. `ruleset` is a descriptor or -1. */
void lock_set(const struct plan *plan, int ruleset);
/* Descriptor that supervisors must keep; -1. */
int lock_ruleset(void);
/* What a world takes from all that is started in it, in cells too, beyond what their plans say. */
struct restriction {
    uint64_t capabilities; /* that are left */
    struct slice filter;   /* of size 0: none */
};
/* The filter must stay. */
void lock_restrict(struct restriction restriction);
struct restriction lock_restriction(void);

/* Whether all programs are in one Landlock domain: where it keeps their signals in, and each could else signal none but its
 * own. Then their supervisors are in it too. */
bool lock_has_domain(void);

/* In this order. -1 with errno. The first is inherited, and so once for all, by the thread that forks the supervisors: a
 * filter is compiled when it is applied, which takes longer than all else in the start of a command. So is the second, if
 * there is one domain. The others are the leader's, with the ids between them. */
int lock_inherited(void);  /* bounding set, no_new_privs, filters */
int lock_domain(void);     /* no_new_privs, ruleset */
int lock_before_ids(void); /* limits */
int lock_after_ids(void);  /* capabilities, no_new_privs, ruleset unless there is one domain; not for what becomes a cell */

/* Also for the cell itself. */
int lock_own_files(void); /* no file grows beyond the limit of programs by its doing */
int capabilities_keep(uint64_t mask);
int filter_apply(struct slice filter);

#endif
