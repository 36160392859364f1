/* The plan of a cell, as MAKE_CELL carries it: decoded and checked as a whole before anything of it happens. */
#ifndef WARDEN_PLAN_H
#define WARDEN_PLAN_H

#include "spawn.h"
#include "wire.h"

#include <stdbool.h>
#include <stdint.h>

#define PLAN_MOST_STEPS 4096u
#define PLAN_MOST_PROBES 256u
#define PLAN_MOST_LIMITS 64u
#define PLAN_MOST_FILTER 4096u /* instructions, as in the kernel */
#define PLAN_MOST_TIMEOUT_MS 60000u
#define INSTRUCTION_SIZE 8u    /* struct sock_filter */

enum cell_opcode {
    STEP_UNSHARE = 1,
    STEP_MAP_IDS,
    STEP_PID_NAMESPACE,
    STEP_PRIVATE_MOUNTS,
    STEP_PIN,
    STEP_CLONE_TREE,
    STEP_SET_MOUNT_ATTRIBUTES,
    STEP_ATTACH_TREE,
    STEP_NEW_FILE_SYSTEM,
    STEP_LOOPBACK_UP,
    STEP_RESTRICT,
    STEP_KEEP_CAPABILITIES,
    STEP_FILTER,
};

enum probe_kind {
    PROBE_WRITE = 1,
    PROBE_TRUNCATE,
    PROBE_CREATE,
    PROBE_REMOVE,
    PROBE_CHANGE_MODE,
    PROBE_READ,
    PROBE_WRITE_BELOW,
    PROBE_CONNECT_TCP,
    PROBE_FAST_OPEN,
    PROBE_MULTIPATH_TCP,
    PROBE_SEND_UDP,
    PROBE_VSOCK,
    PROBE_SIGNAL,
    PROBE_SET_LIMIT,
    PROBE_TRACE,
    PROBE_READ_ENVIRONMENT,
    PROBE_CONNECT_UNIX,
    PROBE_CONNECT_ABSTRACT,
    PROBE_SEE_PROCESS,
    PROBE_NETLINK,
    PROBE_OWN_TCP,
    PROBE_OWN_UDP,
    PROBE_OWN_SIGNAL,
    PROBE_OWN_TRACE,
    PROBE_OWN_UNIX,
    PROBE_OWN_PAIR,
    PROBE_GRANTED_PORT,
    PROBE_END,
};

/* Rules are read from the message when the ruleset is made; their pins are known to exist. */
struct ruleset {
    uint64_t handled_fs;
    uint64_t handled_net;
    uint64_t scoped;
    struct slice paths;
    struct slice ports;
    uint32_t path_count;
    uint32_t port_count;
    uint32_t pins_needed; /* highest number of a pin in it, and one more */
};

struct cell_step {
    uint8_t opcode;
    bool directory;
    uint16_t pin;
    uint16_t tree;
    uint32_t option_count;
    uint64_t number; /* flags, attributes or a mask */
    struct slice text; /* path, kind or filter */
    struct slice options;
    struct ruleset ruleset;
};

struct probe {
    uint8_t kind;
    char *path;
};

struct plan {
    uint32_t timeout_ms;
    uint64_t processes;
    uint64_t memory_bytes;
    char *scratch;
    struct cell_step *steps;
    uint32_t step_count;
    uint32_t pin_count;
    uint32_t tree_count;
    bool has_ruleset;
    bool has_capabilities;
    struct ruleset ruleset;
    uint64_t capabilities;
    struct slice filter;
    struct limit limits[PLAN_MOST_LIMITS];
    uint32_t limit_count;
    struct probe probes[PLAN_MOST_PROBES];
    uint32_t probe_count;
    char *text; /* of all paths that are texts */
};

/* Points into the message, which has to live as long. 0, EINVAL or ENOMEM; to be freed in every case. */
int plan_decode(struct plan *plan, const uint8_t *message, size_t size);
void plan_free(struct plan *plan);

#endif
