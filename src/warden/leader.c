/* From the supervisor's vfork to the program. It shares the supervisor's memory: system calls alone. */
#include "limits.h"
#include "lock.h"
#include "protocol.h"
#include "spawn.h"
#include "sys.h"

#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EMPTY_PATH 0x1000 /* AT_EMPTY_PATH */

static struct rlimit files_before;

void spawn_remember_limits(void) {
    static bool remembered;
    if (remembered)
        return;
    remembered = true;
    getrlimit(RLIMIT_NOFILE, &files_before);
    struct rlimit most = files_before;
    most.rlim_cur = most.rlim_max;
    if (most.rlim_cur != files_before.rlim_cur)
        setrlimit(RLIMIT_NOFILE, &most);
}

/* prlimit64(2): its structure is two 64-bit numbers everywhere, and all ones mean no limit. */
static int set_limit(uint32_t resource, uint64_t soft, uint64_t hard) {
    uint64_t values[2] = {soft, hard};
    return (int)syscall(SYS_prlimit64, 0, resource, values, NULL);
}

/* The C library would make every thread of the process take the ids, and there is but this one. */
static int take_ids(const struct command *command) {
    if (command->has_groups || command->has_uid)
        if (syscall(SYS_setgroups, command->has_groups ? command->group_count : 0u, command->groups) < 0)
            return -1;
    if (command->has_gid && syscall(SYS_setresgid, command->gid, command->gid, command->gid) < 0)
        return -1;
    if (command->has_uid && syscall(SYS_setresuid, command->uid, command->uid, command->uid) < 0)
        return -1;
    return 0;
}

static int place_descriptors(const struct command *command) {
    /* The sources lie above 2, so that none is overwritten before it was copied. */
    for (int target = 0; target < 3; target++)
        if (dup2(command->standard[target], target) < 0)
            return -1;
    return command->terminal ? ioctl(0, TIOCSCTTY, 0) : 0;
}

static int set_up(const struct start *start) {
    const struct command *command = start->command;
    if (setsid() < 0 || place_descriptors(command) < 0)
        return -1;
    if (set_limit(RLIMIT_NOFILE, files_before.rlim_cur, files_before.rlim_max) < 0)
        return -1;
    for (uint32_t index = 0; index < command->limit_count; index++) {
        const struct limit *limit = &command->limits[index];
        if (set_limit(limit->resource, limit->soft, limit->hard) < 0)
            return -1;
    }
    if (lock_before_ids() < 0 || take_ids(command) < 0)
        return -1;
    if (command->has_umask)
        umask(command->umask);
    /* After the ids: taking ids clears it. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        return -1;
    if (getppid() != start->supervisor) {
        errno = ESRCH;
        return -1;
    }
    if (!command->limits_of_cell)
        return lock_after_ids();
    limits_enter(command->limits_of_cell);
    return 0;
}

static void execute(const struct command *command) {
    if (command->executable > 0)
        syscall(SYS_execveat, command->executable, "", command->argv, command->environment, EMPTY_PATH);
    else
        execve(command->program, command->argv, command->environment);
}

int leader_main(void *argument) {
    const struct start *start = argument;
    const struct command *command = start->command;
    struct failure failure = {.stage = STAGE_SETUP};
    if (set_up(start) == 0) {
        failure.stage = STAGE_DIRECTORY;
        if (!command->directory || chdir(command->directory) == 0) {
            failure.stage = STAGE_EXEC;
            /* Ignored signals stay ignored in a program, caught ones do not. */
            struct sigaction action = {.sa_handler = SIG_DFL};
            sigaction(SIGPIPE, &action, NULL);
            sigset_t none;
            sigemptyset(&none);
            sigprocmask(SIG_SETMASK, &none, NULL);
            execute(command);
        }
    }
    failure.error = errno;
    (void)!write(start->report, &failure, sizeof failure);
    _exit(127);
}
