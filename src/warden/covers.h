/* What a cell has mounted over something in order to hide it. Whoever is outside may still rename or remove the file or
 * directory below; then the mount goes with it, and what comes to lie at the path next is open. Nobody can prevent that, so
 * the cell ends with it. */
#ifndef WARDEN_COVERS_H
#define WARDEN_COVERS_H

#include "wire.h"

/* Before the cell is locked: something was mounted there. */
void covers_add(struct slice path);
/* When all is mounted: from here on nothing else may be seen there. 0, or an errno. */
int covers_remember(void);
/* In the loop. */
void covers_watch(void);
/* Milliseconds until it is to be called again, or -1. */
int covers_tick(void);

#endif
