#include "lock.h"

#include "landlock.h"
#include "sys.h"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CAPABILITY_VERSION 0x20080522u
#define CAPABILITY_SETPCAP 8
#define CAPABILITIES_MOST 64
#define SECCOMP_SET_FILTER 1u
#define SCOPE_SIGNAL 2u /* LANDLOCK_SCOPE_SIGNAL */

static struct {
    bool set;
    bool has_capabilities;
    uint64_t capabilities;
    int ruleset;
    bool has_domain;
    struct slice filter;
    struct restriction restriction;
    bool restricted;
    const struct limit *limits;
    uint32_t limit_count;
} lock = {.ruleset = -1, .restriction = {.capabilities = UINT64_MAX}};

void lock_set(const struct plan *plan, int ruleset) {
    lock.set = true;
    lock.has_capabilities = plan->has_capabilities;
    lock.capabilities = plan->capabilities;
    lock.ruleset = ruleset;
    lock.has_domain = ruleset >= 0 && plan->ruleset.scoped & SCOPE_SIGNAL;
    lock.filter = plan->filter;
    lock.limits = plan->limits;
    lock.limit_count = plan->limit_count;
}

int lock_ruleset(void) { return lock.ruleset; }
bool lock_has_domain(void) { return lock.has_domain; }
int lock_domain(void) { return landlock_restrict(lock.ruleset); }

void lock_restrict(struct restriction restriction) {
    lock.restriction = restriction;
    lock.restricted = true;
}

struct restriction lock_restriction(void) { return lock.restriction; }

/* ---- capabilities ---- */

struct capability_header {
    uint32_t version;
    int32_t pid;
};
struct capability_data {
    uint32_t effective;
    uint32_t permitted;
    uint32_t inheritable;
};

static int read_capabilities(struct capability_data data[2]) {
    struct capability_header header = {CAPABILITY_VERSION, 0};
    return (int)syscall(SYS_capget, &header, data);
}

static int lower_bounding_set(uint64_t mask) {
    struct capability_data data[2];
    if (read_capabilities(data) < 0)
        return -1;
    /* Without that right nothing can be taken from the set. Nothing can be got from it either: with no_new_privs, which
     * is set in every cell, an execve adds no capability to those permitted before. */
    if (!(data[0].effective >> CAPABILITY_SETPCAP & 1))
        return 0;
    for (int number = 0; number < CAPABILITIES_MOST; number++) {
        if (mask >> number & 1)
            continue;
        int has = prctl(PR_CAPBSET_READ, number, 0, 0, 0);
        if (has < 0)
            break; /* the kernel knows no more of them */
        if (has && prctl(PR_CAPBSET_DROP, number, 0, 0, 0) < 0)
            return -1;
    }
    return 0;
}

static int lower_own(uint64_t mask) {
    struct capability_header header = {CAPABILITY_VERSION, 0};
    struct capability_data data[2];
    if (read_capabilities(data) < 0)
        return -1;
    for (int half = 0; half < 2; half++) {
        uint32_t kept = (uint32_t)(mask >> (32 * half));
        data[half].effective &= kept;
        data[half].permitted &= kept;
        data[half].inheritable &= kept;
    }
    /* Takes those out of the ambient set that are no longer permitted. */
    return (int)syscall(SYS_capset, &header, data);
}

int capabilities_keep(uint64_t mask) {
    if (lower_bounding_set(mask) < 0)
        return -1;
    return lower_own(mask);
}

/* ---- filters ---- */

int filter_apply(struct slice filter) {
    struct {
        unsigned short count;
        const uint8_t *instructions;
    } program = {(unsigned short)(filter.size / INSTRUCTION_SIZE), filter.data};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -1;
    return (int)syscall(SYS_seccomp, SECCOMP_SET_FILTER, 0u, &program);
}

/* ---- what programs are under ---- */

/* What the command asked for stays where it is less. */
static int lower_limit(const struct limit *limit) {
    uint64_t now[2], least[2] = {limit->soft, limit->hard};
    if (syscall(SYS_prlimit64, 0, limit->resource, NULL, now) < 0)
        return -1;
    for (int index = 0; index < 2; index++)
        if (now[index] < least[index])
            least[index] = now[index];
    if (least[0] > least[1])
        least[0] = least[1];
    return (int)syscall(SYS_prlimit64, 0, limit->resource, least, NULL);
}

/* Of programs. All of them where nobody takes any. */
static uint64_t capabilities_left(void) {
    return lock.restriction.capabilities & (lock.has_capabilities ? lock.capabilities : UINT64_MAX);
}

int lock_inherited(void) {
    if (capabilities_left() != UINT64_MAX && lower_bounding_set(capabilities_left()) < 0)
        return -1;
    if (lock.filter.size && filter_apply(lock.filter) < 0)
        return -1;
#ifdef WARDEN_FUZZ /* the warden cannot do its work under just any filter, and no host asks it to */
    return 0;
#else
    return lock.restriction.filter.size ? filter_apply(lock.restriction.filter) : 0;
#endif
}

int lock_own_files(void) {
    for (uint32_t index = 0; index < lock.limit_count; index++)
        if (lock.limits[index].resource == RLIMIT_FSIZE && lower_limit(&lock.limits[index]) < 0)
            return -1;
    return 0;
}

int lock_before_ids(void) {
    for (uint32_t index = 0; index < lock.limit_count; index++)
        if (lower_limit(&lock.limits[index]) < 0)
            return -1;
    return 0;
}

int lock_after_ids(void) {
    if (!lock.set && !lock.restricted)
        return 0;
    if (capabilities_left() != UINT64_MAX && lower_own(capabilities_left()) < 0)
        return -1;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -1;
    return lock.ruleset >= 0 && !lock.has_domain ? lock_domain() : 0;
}
