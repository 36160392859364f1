/* From messages to what they ask for. */
#ifndef WARDEN_DISPATCH_H
#define WARDEN_DISPATCH_H

#include "batch.h"
#include "world.h"

bool dispatch(uint8_t type, uint64_t id, uint8_t **data, size_t size, bool owned);
/* Repeats what a worker may have missed: an interruption just before a system call. Milliseconds, or -1. */
int dispatch_tick(void);
/* Cancels every batch that is not done. */
void dispatch_cancel_all(void);

#endif
