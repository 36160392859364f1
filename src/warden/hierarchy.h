/* The hierarchies of control groups as this process sees them, and what is done to groups of either version. */
#ifndef WARDEN_HIERARCHY_H
#define WARDEN_HIERARCHY_H

#include <stdbool.h>
#include <stddef.h>

/* What the names of all groups of wardens begin with. */
#define HIERARCHY_PREFIX "execworld-"

/* Path of the own group from /proc/self/cgroup; the empty name: in version 2. */
bool hierarchy_own_path(const char *controller, char *into, size_t size);
/* Directory of the own group; NULL: in version 2. -1 where it is not mounted. */
int hierarchy_open_own(const char *controller_of_v1);
/* The directory that the own group of version 2 is in; -1 where nothing that is mounted shows it. */
int hierarchy_open_above(void);

/* Whether a file of a group has the word. */
bool hierarchy_has(int directory, const char *name, const char *word);
/* Hands a controller of version 2 to the groups below a directory; an errno. EBUSY: the group has processes of its own, and
 * is not the root. */
int hierarchy_hand_down(int directory, const char *controller);

/* Removes the empty groups below one of a warden. Async-signal-safe. */
void hierarchy_remove_children(int directory);
/* Removes a group with those below it when nothing runs in it; `name` is its own, seen from itself ("../name"), so that
 * nothing above need be open. Waits a moment: what was reaped leaves its group a little later. Async-signal-safe. */
void hierarchy_remove(int directory, const char *name);
/* Removes groups of wardens that were killed before anything of theirs could remove them. */
void hierarchy_remove_stale(int hierarchy);

#endif
