/* The event loop: epoll(7), edge-triggered. */
#ifndef WARDEN_LOOP_H
#define WARDEN_LOOP_H

#include "handles.h"

#include <stdint.h>
#include <sys/epoll.h>

struct source {
    void (*ready)(struct source *source, uint32_t events);
};

/* The structure that contains a member. */
#define CONTAINER(pointer, type, member) ((type *)(void *)((char *)(pointer) - offsetof(type, member)))

int loop_start(void);
/* Aborts when the kernel has no memory for it. */
void loop_add(int fd, uint32_t events, struct source *source);
void loop_remove(int fd);
/* Drops a reference when no event of this round can mention the object any more. */
void loop_drop_later(struct handle *handle);
/* One round; waits at most `timeout_ms`, -1 for ever. */
void loop_round(int timeout_ms);

#endif
