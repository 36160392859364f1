/* Replies that are a status and a few fields. */
#ifndef WARDEN_REPLY_H
#define WARDEN_REPLY_H

#include "wire.h"

#include <stdint.h>

void reply_status(uint64_t id, uint16_t status);
/* An empty buffer that begins with the status; good until the next call. */
struct buffer *reply_begin(uint16_t status);
void reply_end(uint64_t id);

#endif
