/* The life of the world: beginning, lease, end. */
#ifndef WARDEN_WORLD_H
#define WARDEN_WORLD_H

#include <stdbool.h>
#include <stdint.h>

/* Everything but the link; -1 when the kernel will not. */
int world_start(void);
/* Sends the HELLO of the warden. */
void world_greet(void);
/* One round of the loop, waiting at most so long; exits at the end. */
void world_round(int most_ms);
/* Until the end, and then exits. */
_Noreturn void world_run(void);

/* After HELLO. */
void world_begin(uint32_t lease_ms);
bool world_begun(void);
/* Begins to end; `close_id` is the request to answer, or 0. `reason` is 0 or an enum ending. */
void world_end(unsigned reason, const char *text, uint64_t close_id);
bool world_ending(void);

#endif
