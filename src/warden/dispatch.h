/* From messages to what they ask for. */
#ifndef WARDEN_DISPATCH_H
#define WARDEN_DISPATCH_H

#include "batch.h"
#include "world.h"

bool dispatch(uint8_t type, uint64_t id, uint8_t **data, size_t size, bool owned);
/* Cancels every batch that is not done. */
void dispatch_cancel_all(void);

#endif
