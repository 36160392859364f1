#include "lockdown.h"

#include "covers.h"
#include "facts.h"
#include "landlock.h"
#include "lock.h"
#include "mounts.h"
#include "protocol.h"
#include "sys.h"

#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define ATTRIBUTES_INERT 0xFu /* of mount_setattr(2): read-only, without set-ids, devices and programs */
#define FIRST_KEPT 10 /* below this everything is closed when the warden starts */

static bool inside;

static struct {
    struct plan plan;
    uint8_t *message; /* the plan points into it */
    struct targets targets;
    struct attempt attempts[PLAN_MOST_PROBES];
    int *pins;
    struct slice *pinned; /* the path of each */
    int *trees;
    uint32_t pin_count;
    uint32_t tree_count;
    int ruleset; /* of the lock; -1 */
    bool ruleset_made;
    uid_t uid;
    gid_t gid;
    char cwd[PATH_MAX];
} cell = {.ruleset = -1};

bool cell_inside(void) { return inside; }

static void read_whole(void *into, size_t size) {
    uint8_t *at = into;
    while (size > 0) {
        ssize_t count = RETRY(read(0, at, size));
        if (count <= 0)
            _exit(1); /* the first warden is gone */
        at += count;
        size -= (size_t)count;
    }
}

static void write_whole(const void *from, size_t size) {
    const uint8_t *at = from;
    while (size > 0) {
        ssize_t count = RETRY(send(0, at, size, MSG_NOSIGNAL));
        if (count <= 0)
            _exit(1);
        at += count;
        size -= (size_t)count;
    }
}

static _Noreturn void fail(enum cell_outcome outcome, uint32_t step, int error) {
    struct cell_report report;
    memset(&report, 0, sizeof report);
    report.outcome = (uint8_t)outcome;
    report.step = (uint16_t)step;
    report.error = (uint16_t)error;
    write_whole(&report, sizeof report);
    _exit(1);
}

/* ---- steps; each gives 0, or -1 with errno ---- */

static int write_file(int fd, const char *text) {
    size_t size = strlen(text);
    return RETRY(write(fd, text, size)) == (ssize_t)size ? 0 : -1;
}

static int map_ids(void) {
    static const char *const paths[] = {"/proc/self/setgroups", "/proc/self/uid_map", "/proc/self/gid_map"};
    char texts[3][64] = {"deny"};
    int fds[3], result = 0;
    snprintf(texts[1], sizeof texts[1], "%u %u 1", (unsigned)cell.uid, (unsigned)cell.uid);
    snprintf(texts[2], sizeof texts[2], "%u %u 1", (unsigned)cell.gid, (unsigned)cell.gid);
    /* These belong to root while we may not be traced. No longer than it takes to open them. */
    prctl(PR_SET_DUMPABLE, 1);
    for (int index = 0; index < 3; index++)
        fds[index] = open(paths[index], O_WRONLY | O_CLOEXEC);
    int error = errno;
    prctl(PR_SET_DUMPABLE, 0);
    for (int index = 0; index < 3; index++) {
        if (result == 0 && fds[index] < 0)
            result = -1;
        else if (result == 0 && (result = write_file(fds[index], texts[index])) < 0)
            error = errno;
        if (fds[index] >= 0)
            close(fds[index]);
    }
    errno = error;
    return result;
}

/* Holds nothing, does nothing, and ends when the cell does, in the same way. */
static _Noreturn void keep_namespace(pid_t init) {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    prctl(PR_SET_NAME, "warden-keeper");
    if (sys_close_range(0, UINT32_MAX) < 0)
        for (int fd = 0; fd < 65536; fd++)
            close(fd);
    int raw = 0;
    if (RETRY(waitpid(init, &raw, 0)) != init)
        _exit(1);
    if (WIFSIGNALED(raw)) {
        int number = WTERMSIG(raw);
        signal(number, SIG_DFL);
        sigdelset(&all, number);
        kill(getpid(), number);
        sigprocmask(SIG_SETMASK, &all, NULL);
    }
    _exit(WIFEXITED(raw) ? WEXITSTATUS(raw) : 1);
}

static int enter_pid_namespace(void) {
    if (unshare(CLONE_NEWPID) < 0)
        return -1;
    pid_t init = sys_fork();
    if (init < 0)
        return -1;
    if (init > 0)
        keep_namespace(init);
    return prctl(PR_SET_PDEATHSIG, SIGKILL);
}

static int bring_loopback_up(void) {
    struct ifreq request;
    memset(&request, 0, sizeof request);
    memcpy(request.ifr_name, "lo", 3);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    int result = ioctl(fd, SIOCGIFFLAGS, &request);
    if (result == 0) {
        request.ifr_flags |= IFF_UP;
        result = ioctl(fd, SIOCSIFFLAGS, &request);
    }
    int error = errno;
    close(fd);
    errno = error;
    return result;
}

static int keep_descriptor(int *list, uint32_t *count, int fd) {
    if (fd < 0)
        return -1;
    list[(*count)++] = fd;
    return 0;
}

static int restrict_to(const struct ruleset *ruleset) {
    int fd = landlock_make(ruleset, cell.pins);
    if (fd < 0)
        return -1;
    int result = landlock_restrict(fd), error = errno;
    close(fd);
    errno = error;
    return result;
}

static int attach_tree(const struct cell_step *step) {
    int tree = cell.trees[step->tree];
    if (step->number && mounts_set_attributes(tree, step->number) < 0)
        return -1;
    return mounts_attach(tree, cell.pins[step->pin]);
}

static int pin(const struct cell_step *step) {
    cell.pinned[cell.pin_count] = step->text;
    return keep_descriptor(cell.pins, &cell.pin_count, mounts_pin(step->text, step->directory));
}

static int apply(const struct cell_step *step) {
    switch (step->opcode) {
    case STEP_UNSHARE: return unshare((int)step->number);
    case STEP_MAP_IDS: return map_ids();
    case STEP_PID_NAMESPACE: return enter_pid_namespace();
    case STEP_PRIVATE_MOUNTS: return mounts_make_private();
    case STEP_PIN: return pin(step);
    case STEP_CLONE_TREE:
        return keep_descriptor(cell.trees, &cell.tree_count, mounts_clone_tree(cell.pins[step->pin]));
    case STEP_SET_MOUNT_ATTRIBUTES: return mounts_set_attributes(-1, step->number);
    case STEP_ATTACH_TREE: return attach_tree(step);
    case STEP_NEW_FILE_SYSTEM:
        return mounts_new(step->text, step->options, step->option_count, step->number, cell.pins[step->pin]);
    case STEP_LOOPBACK_UP: return bring_loopback_up();
    case STEP_RESTRICT: return restrict_to(&step->ruleset);
    case STEP_KEEP_CAPABILITIES: return capabilities_keep(step->number);
    case STEP_FILTER: return filter_apply(step->text);
    default: errno = EINVAL; return -1;
    }
}

/* As early as its pins are there: a filter of the cell may forbid it later. */
static void make_lock_ruleset(void) {
    const struct ruleset *ruleset = &cell.plan.ruleset;
    if (!cell.plan.has_ruleset || cell.ruleset_made || cell.pin_count < ruleset->pins_needed)
        return;
    int fd = landlock_make(ruleset, cell.pins);
    if (fd >= 0) {
        cell.ruleset = fcntl(fd, F_DUPFD_CLOEXEC, FIRST_KEPT);
        close(fd);
    }
    if (cell.ruleset < 0)
        fail(CELL_LOCK, 0, errno);
    cell.ruleset_made = true;
}

/* A file or an empty directory that can be used for nothing is there to hide what lies below. */
static void note_cover(const struct cell_step *step) {
    static const char empty[] = "tmpfs";
    bool directory = step->opcode == STEP_NEW_FILE_SYSTEM && step->text.size == sizeof empty - 1 &&
                     memcmp(step->text.data, empty, sizeof empty - 1) == 0;
    if (step->number == ATTRIBUTES_INERT && (directory || step->opcode == STEP_ATTACH_TREE))
        covers_add(cell.pinned[step->pin]);
}

static void apply_all(void) {
    make_lock_ruleset();
    for (uint32_t index = 0; index < cell.plan.step_count; index++) {
        if (apply(&cell.plan.steps[index]) < 0)
            fail(CELL_STEP, index, errno);
        note_cover(&cell.plan.steps[index]);
        make_lock_ruleset();
    }
    for (uint32_t index = 0; index < cell.pin_count; index++)
        close(cell.pins[index]);
    for (uint32_t index = 0; index < cell.tree_count; index++)
        close(cell.trees[index]);
    free(cell.pins);
    free(cell.pinned);
    free(cell.trees);
    /* The path that we were in may lead into another mount now. */
    if (cell.cwd[0] != '/' || chdir(cell.cwd) < 0)
        if (chdir("/") < 0)
            fail(CELL_START, 0, errno);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        fail(CELL_START, 0, errno);
    int error = covers_remember();
    if (error != 0)
        fail(CELL_START, 0, error);
}

/* ---- the lock, tried ---- */

static _Noreturn void try_in_child(uint32_t first, int report) {
    struct attempt lock = {0};
    if (lock_inherited() < 0 || (lock_has_domain() && lock_domain() < 0) || lock_before_ids() < 0 ||
        lock_after_ids() < 0)
        lock.error = errno;
    if (RETRY(write(report, &lock, sizeof lock)) == (ssize_t)sizeof lock && lock.error == 0)
        probes_try(&cell.plan, &cell.targets, first, report);
    _exit(0);
}

/* From the probe `first` on. Returns how many were tried; the lock itself must not fail. */
static uint32_t try_some(uint32_t first) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        fail(CELL_LOCK, 0, errno);
    pid_t child = sys_fork();
    if (child == 0)
        try_in_child(first, ends[1]);
    int error = errno;
    close(ends[1]);
    if (child < 0)
        fail(CELL_LOCK, 0, error);
    struct attempt attempt = {0};
    uint32_t count = 0;
    /* The pipe keeps records of this size whole. */
    if (RETRY(read(ends[0], &attempt, sizeof attempt)) != (ssize_t)sizeof attempt)
        fail(CELL_LOCK, 0, EPERM); /* it was ended for it */
    if (attempt.error != 0)
        fail(CELL_LOCK, 0, attempt.error);
    while (first + count < cell.plan.probe_count &&
           RETRY(read(ends[0], &attempt, sizeof attempt)) == (ssize_t)sizeof attempt)
        cell.attempts[first + count++] = attempt;
    close(ends[0]);
    (void)RETRY(waitpid(child, NULL, 0));
    return count;
}

static void try_lock(void) {
    uint32_t tried = try_some(0);
    while (tried < cell.plan.probe_count) {
        /* A filter ended the one that tried this. */
        cell.attempts[tried++].error = EPERM;
        if (tried < cell.plan.probe_count)
            tried += try_some(tried);
    }
}

static void receive_restriction(const struct cell_order *order) {
    bool fits = order->filter_size <= PLAN_MOST_FILTER * INSTRUCTION_SIZE;
    uint8_t *filter = fits ? malloc(order->filter_size + 1u) : NULL;
    if (!filter)
        _exit(1);
    read_whole(filter, order->filter_size);
    lock_restrict((struct restriction){order->capabilities, {filter, order->filter_size}});
}

static void receive_plan(void) {
    struct cell_order order;
    read_whole(&order, sizeof order);
    if (order.plan_size > MAX_BODY || !(cell.message = malloc(order.plan_size + 1u)))
        _exit(1);
    read_whole(cell.message, order.plan_size);
    receive_restriction(&order);
    int error = plan_decode(&cell.plan, cell.message, order.plan_size);
    cell.pins = calloc(cell.plan.pin_count + 1u, sizeof *cell.pins);
    cell.pinned = calloc(cell.plan.pin_count + 1u, sizeof *cell.pinned);
    cell.trees = calloc(cell.plan.tree_count + 1u, sizeof *cell.trees);
    if (error != 0 || !cell.pins || !cell.pinned || !cell.trees)
        fail(CELL_START, 0, error ? error : ENOMEM);
}

void cell_become(void) {
    inside = true;
    prctl(PR_SET_DUMPABLE, 0);
    prctl(PR_SET_NAME, "warden-cell");
    signal(SIGPIPE, SIG_IGN);
    spawn_remember_limits();
    /* A device that was opened is open, whatever the cell sees of /dev afterwards. */
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0) {
        facts_use_null(fcntl(null, F_DUPFD_CLOEXEC, FIRST_KEPT));
        close(null);
    }
    cell.uid = geteuid();
    cell.gid = getegid();
    if (!getcwd(cell.cwd, sizeof cell.cwd))
        cell.cwd[0] = 0;
    receive_plan();
    apply_all();
    lock_set(&cell.plan, cell.ruleset);
    signal(SIGXFSZ, SIG_IGN); /* an error is enough for us; the loop restores it for what we start */
    if (lock_own_files() < 0)
        fail(CELL_LOCK, 0, errno);
    read_whole(&cell.targets, sizeof cell.targets); /* they were made while we were locked in */
    try_lock();
    struct cell_report report;
    memset(&report, 0, sizeof report);
    write_whole(&report, sizeof report);
    write_whole(cell.attempts, cell.plan.probe_count * sizeof cell.attempts[0]);
}
