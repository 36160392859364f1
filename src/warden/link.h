/* The stream to the host: frames in, two queues of frames out. */
#ifndef WARDEN_LINK_H
#define WARDEN_LINK_H

#include "wire.h"

#include <stdbool.h>
#include <stdint.h>

/* A message of the host. Takes `*data` over by setting it to NULL when `owned`. False: a violation. */
typedef bool message_handler(uint8_t type, uint64_t id, uint8_t **data, size_t size, bool owned);

void link_start(int in, int out, message_handler *handler);
/* The input ended or failed, or the output failed. */
bool link_ended(void);
/* The host broke the rules. */
bool link_violated(void);
/* Reads no more. */
void link_stop_reading(void);
/* Whether anything was received since the last call. */
bool link_heard(void);

void link_send(uint8_t type, uint64_t id, const struct buffer *body);
/* A reply of any size; bulk when it is large and `bulk_allowed`. */
void link_reply(uint64_t id, const struct buffer *body, bool bulk_allowed);

/* The host takes descriptors from now on. False: this stream carries none. */
bool link_pass_descriptors(void);
/* Passes a copy of `fd`, in the order of these calls, no later than the first byte of what is sent next. False when the
 * host takes none. */
bool link_pass(int fd);

/* Room for a DATA frame of at most `*room` bytes of data, at least `want_at_least`; NULL when the queue is full. */
uint8_t *link_data_room(size_t want_at_least, size_t *room);
void link_data_commit(uint64_t handle, uint8_t stream, uint8_t flags, uint16_t status, size_t size);

/* Handles what was received. True when there is more. */
bool link_receive(void);

/* Writes some of what the kernel takes. True when it may take more. */
bool link_flush(void);
/* For data. */
bool link_has_room(void);
bool link_pending(void);
/* Writes everything and waits for it, for at most so long; then closes both ends. */
void link_finish(int timeout_ms);

/* For the fuzz target: bytes as if they had been received. */
void link_feed(const uint8_t *data, size_t size);
void link_end(void);

#endif
