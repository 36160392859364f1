/* Orphans whose supervisor was killed become children of the warden, which is a subreaper too. */
#include "cgroup.h"
#include "descend.h"
#include "domain.h"
#include "process.h"
#include "supervisors.h"
#include "sys.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static bool suspected;

void suspect_orphans(void) {
    suspected = true;
}

bool orphans_suspected(void) {
    return suspected;
}

/* True when there was none. */
static bool kill_orphans(const struct descent *descent, pid_t self) {
    bool none = true;
    for (int index = 0; index < descent->count; index++) {
        const struct descendant *found = &descent->entries[index];
        struct process_line line;
        if (supervisor_known(found->pid) || domain_is(found->pid) || !read_process_line(found->pid, &line) || line.parent != self)
            continue;
        none = false;
        if (line.state != 'Z')
            (void)signal_descendant(found, self, SIGKILL);
    }
    return none;
}

bool sweep_orphans(void) {
    struct descent *descent = malloc(sizeof *descent);
    if (!descent)
        return false;
    pid_t self = getpid();
    for (struct process *process = process_first; process; process = process->next)
        if (process->control_lost && !process->gone && process->cgroup)
            cgroup_kill(process->cgroup->directory);
    supervisors_lock(); /* nothing is forked meanwhile */
    descend(self, false, descent);
    bool none = kill_orphans(descent, self);
    if (none && suspected) {
        find_children(self, descent);
        none = kill_orphans(descent, self);
        suspected = !none;
    }
    supervisors_unlock();
    free(descent);
    return none;
}
