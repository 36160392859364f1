/* What probes are aimed at: made by the first warden, which sees there whether an effect came about. In a worker. */
#ifndef WARDEN_TARGETS_H
#define WARDEN_TARGETS_H

#include "probes.h"

struct target_set {
    struct targets where;
    const struct plan *plan;
    int directory;              /* -1 */
    int listeners[PORT_COUNT];  /* -1 */
    int named;                  /* listener with a path; -1 */
    int abstract;               /* -1 */
    int control;                /* of the process; -1 */
    bool signalled;             /* what the process said last */
    bool limited;
};

/* An errno. To be removed in every case. `executable` is a descriptor of this program. */
int targets_make(struct target_set *set, const struct plan *plan, int executable, int64_t deadline_ms);
/* 0 where the effect was seen since the last call, else what the attempt came to, or ENOMSG; makes the targets new. */
void targets_judge(struct target_set *set, const struct attempt *attempts, uint16_t *results);
void targets_remove(struct target_set *set);

/* The program that is the process. */
_Noreturn void target_main(void);

#endif
