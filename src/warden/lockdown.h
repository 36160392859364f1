/* The process that becomes a cell: reads its plan, applies it, says what came of it, and goes on as a warden. */
#ifndef WARDEN_LOCKDOWN_H
#define WARDEN_LOCKDOWN_H

#include "probes.h"

enum cell_outcome { CELL_RUNNING, CELL_START, CELL_STEP, CELL_LOCK, CELL_TARGETS };

/* To the cell: this, the plan, the filter of the restriction of its world, struct targets. */
struct cell_order {
    uint32_t plan_size;
    uint32_t filter_size;
    uint64_t capabilities;
};

/* From it; then, when it runs, one struct attempt for each probe. */
struct cell_report {
    uint8_t outcome;
    uint16_t step;
    uint16_t error;
};

/* Returns as a locked cell or not at all. */
void cell_become(void);
/* Whether this warden is a cell. */
bool cell_inside(void);

#endif
