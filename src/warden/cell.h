/* Cells as the first warden sees them: a connection to the host, a process with a supervisor underneath. */
#ifndef WARDEN_CELL_H
#define WARDEN_CELL_H

#include "process.h"

/* Opens this program, which may be deleted later. */
void cells_start(void);
/* Requests. False: a violation. */
bool cell_on_make(uint64_t id, const uint8_t *body, size_t size);
bool cell_on_drop(uint64_t id, struct cursor *body);
/* The host let its connection go, which is already closed. */
void cell_released(struct cell *cell);
/* Nothing of it is left. */
void cell_gone(struct cell *cell);
/* Deadlines; milliseconds until the next one, or -1. */
int cells_tick(void);
/* The world ends: closes the connections. Cells get some time to end by themselves. */
void cells_end(void);

#endif
