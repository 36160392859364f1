/* The life of the world: beginning, lease, end. */
#ifndef WARDEN_WORLD_H
#define WARDEN_WORLD_H

#include <stdbool.h>
#include <stdint.h>

/* After HELLO. */
void world_begin(uint32_t lease_ms);
bool world_begun(void);
/* Begins to end; `close_id` is the request to answer, or 0. `reason` is 0 or an enum ending. */
void world_end(unsigned reason, const char *text, uint64_t close_id);
bool world_ending(void);

#endif
