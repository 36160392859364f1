#include "landlock.h"

#include "sys.h"

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NR_LANDLOCK_CREATE_RULESET 444
#define NR_LANDLOCK_ADD_RULE 445
#define NR_LANDLOCK_RESTRICT_SELF 446
#define RULE_PATH_BENEATH 1
#define RULE_NET_PORT 2

/* Their sizes are part of the interface: a kernel that knows less takes the rest when it is zero. */
struct ruleset_attributes {
    uint64_t handled_fs;
    uint64_t handled_net;
    uint64_t scoped;
};

struct path_attributes {
    uint64_t access;
    int32_t parent;
} __attribute__((packed));

struct port_attributes {
    uint64_t access;
    uint64_t port;
};

static int add_rules(int fd, const struct ruleset *ruleset, const int *pins) {
    struct cursor cursor = {ruleset->paths.data, ruleset->paths.data + ruleset->paths.size, false};
    for (uint32_t index = 0; index < ruleset->path_count; index++) {
        uint16_t pin = take_u16(&cursor);
        struct path_attributes path = {.access = take_u64(&cursor), .parent = pins[pin]};
        if (syscall(NR_LANDLOCK_ADD_RULE, fd, RULE_PATH_BENEATH, &path, 0u) < 0)
            return -1;
    }
    cursor = (struct cursor){ruleset->ports.data, ruleset->ports.data + ruleset->ports.size, false};
    for (uint32_t index = 0; index < ruleset->port_count; index++) {
        uint16_t number = take_u16(&cursor);
        struct port_attributes port = {.access = take_u64(&cursor), .port = number};
        if (syscall(NR_LANDLOCK_ADD_RULE, fd, RULE_NET_PORT, &port, 0u) < 0)
            return -1;
    }
    return 0;
}

int landlock_make(const struct ruleset *ruleset, const int *pins) {
    struct ruleset_attributes attributes = {ruleset->handled_fs, ruleset->handled_net, ruleset->scoped};
    int fd = (int)syscall(NR_LANDLOCK_CREATE_RULESET, &attributes, sizeof attributes, 0u); /* close-on-exec always */
    if (fd >= 0 && add_rules(fd, ruleset, pins) < 0) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

int landlock_restrict(int ruleset) {
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -1;
    return (int)syscall(NR_LANDLOCK_RESTRICT_SELF, ruleset, 0u);
}
