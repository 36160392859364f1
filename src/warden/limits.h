/* Limits of a cell as a whole, held by control groups. */
#ifndef WARDEN_LIMITS_H
#define WARDEN_LIMITS_H

#include "cgroup.h"

#include <stdbool.h>
#include <stdint.h>

enum limit_method { LIMIT_NONE, LIMIT_CGROUP_V2, LIMIT_CGROUP_V1 };
enum limit_kind { LIMIT_PROCESSES, LIMIT_MEMORY, LIMIT_COUNT };

/* Groups of version 1, one for each kind, or the one of version 2 beside the warden's own, which both kinds share. Copied
 * into the supervisor, which removes them. */
struct limit_groups {
    int directories[LIMIT_COUNT]; /* -1: none, or the limit is in the group that the cell starts in */
    char names[LIMIT_COUNT][80];
    uint64_t wanted[LIMIT_COUNT];
    uint8_t method[LIMIT_COUNT];
    uint16_t error[LIMIT_COUNT]; /* why there is none */
};

/* Returns the group of version 2 that the cell is to start in; NULL: there is none. Zero: no limit is wanted. */
struct cgroup *limits_make(struct limit_groups *groups, uint64_t processes, uint64_t memory_bytes);
/* In the process that becomes the cell, between vfork and exec. */
void limits_enter(const struct limit_groups *groups);
/* Whether it is in there and the limits are in force; what is not is no limit. */
void limits_verify(struct limit_groups *groups, const struct cgroup *cgroup);
/* When nothing runs in them. Async-signal-safe. */
void limits_remove(const struct limit_groups *groups);
void limits_close(struct limit_groups *groups);

#endif
