/* Landlock(7) layers. */
#ifndef WARDEN_LANDLOCK_H
#define WARDEN_LANDLOCK_H

#include "plan.h"

/* A ruleset over opened pins; -1 with errno. */
int landlock_make(const struct ruleset *ruleset, const int *pins);
/* no_new_privs, then the layer. A system call each: also between vfork and exec. */
int landlock_restrict(int ruleset);

#endif
