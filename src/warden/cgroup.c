#include "cgroup.h"

#include "beside.h"
#include "descend.h"
#include "hierarchy.h"
#include "lockdown.h"
#include "sys.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST_IDLE 32

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct cgroup *idle;
static unsigned idle_count;
static unsigned made;
static uint32_t abilities;
static bool used;
static int parent = -1;      /* our directory, of which the groups of commands are children */
static int base = -1;        /* the group that the warden itself is in */
static char parent_name[64]; /* below base */
static char parent_path[80]; /* the same, seen from itself: a supervisor keeps no descriptor of the base */
static char own_path[PATH_MAX];
static int memory_events = -1;
static char memory_key[16];

uint32_t cgroup_abilities(void) { return abilities; }
const char *cgroup_own_path(void) { return own_path; }
bool cgroup_used(void) { return used; }
void cgroup_disable(void) {
    used = false;
    beside_disable();
}
int cgroup_parent(void) { return parent; }
const char *cgroup_prefix(void) { return parent_name; }

int cgroup_delegate(const char *controller) {
    if (!used)
        return ENOENT;
    /* Fails with EBUSY where the group has processes of its own, unless it is the root. */
    int error = hierarchy_hand_down(base, controller);
    return error ? error : hierarchy_hand_down(parent, controller);
}

static unsigned long long start_time(pid_t pid) {
    char path[64], text[1024];
    proc_path(path, pid, "/stat");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t size = RETRY(read(fd, text, sizeof text - 1));
    close(fd);
    text[size > 0 ? size : 0] = 0;
    char *at = strrchr(text, ')');
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    return at ? strtoull(at + 1, NULL, 10) : 0;
}

void cgroup_remove_all(void) {
    if (parent < 0)
        return;
    hierarchy_remove_children(parent);
    (void)unlinkat(parent, parent_path, AT_REMOVEDIR);
}

static struct cgroup *make(void) {
    char name[16];
    struct cgroup *cgroup = malloc(sizeof *cgroup);
    if (!cgroup)
        return NULL;
    cgroup->number = made++;
    cgroup->beside = false;
    snprintf(name, sizeof name, "c%u", cgroup->number);
    cgroup->directory = -1;
    if (mkdirat(parent, name, 0755) == 0)
        cgroup->directory = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (cgroup->directory < 0) {
        (void)unlinkat(parent, name, AT_REMOVEDIR);
        free(cgroup);
        return NULL;
    }
    return cgroup;
}

static void unmake(struct cgroup *cgroup) {
    char name[16];
    snprintf(name, sizeof name, "c%u", cgroup->number);
    close(cgroup->directory);
    (void)unlinkat(parent, name, AT_REMOVEDIR);
    free(cgroup);
}

void cgroup_kill(int directory) {
    int fd = openat(directory, "cgroup.kill", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    (void)RETRY(write(fd, "1", 1));
    close(fd);
}

static _Noreturn int wait_for_kill(void *nothing) {
    (void)nothing;
    for (;;)
        pause();
}

/* Vforking would wait for the child, so a child of a fork does it. */
bool cgroup_clone_works(int directory, bool *killed) {
    static _Alignas(16) char stack[8192];
    pid_t helper = sys_fork();
    if (helper == 0) {
        /* Becomes the child's parent and is killed with it: it moves along. */
        pid_t child = sys_vfork(wait_for_kill, NULL, stack, sizeof stack, directory);
        _exit(child < 0 ? 1 : 0);
    }
    *killed = false;
    if (helper < 0)
        return false;
    /* The helper hangs in vfork until the child is killed: proof that cgroup.kill works, within a second. */
    int status = 0;
    bool entered = false;
    for (int attempt = 0; attempt < 200; attempt++) {
        pid_t done = waitpid(helper, &status, WNOHANG);
        if (done == helper)
            break;
        if (done == 0 && !entered) {
            char text[32];
            int fd = openat(directory, "cgroup.procs", O_RDONLY | O_CLOEXEC);
            ssize_t size = fd >= 0 ? RETRY(read(fd, text, sizeof text)) : -1;
            if (fd >= 0)
                close(fd);
            entered = size > 0;
            if (entered)
                cgroup_kill(directory);
        }
        struct timespec pause_time = {.tv_nsec = attempt < 50 ? 100000 : 5000000};
        nanosleep(&pause_time, NULL);
        status = -1;
    }
    if (status == -1) {
        kill(helper, SIGKILL);
        (void)RETRY(waitpid(helper, &status, 0));
        return entered;
    }
    *killed = entered && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    return entered;
}

static void find_memory_events(void) {
    static const struct {
        const char *controller_of_v1, *file, *key;
    } sources[] = {
        {NULL, "memory.events", "oom_kill "},
        {"memory", "memory.oom_control", "oom_kill "},
    };
    for (size_t index = 0; index < 2 && memory_events < 0; index++) {
        int own = hierarchy_open_own(sources[index].controller_of_v1);
        if (own < 0)
            continue;
        memory_events = openat(own, sources[index].file, O_RDONLY | O_CLOEXEC);
        snprintf(memory_key, sizeof memory_key, "%s", sources[index].key);
        close(own);
        if (cgroup_memory_kills() < 0 && memory_events >= 0) {
            close(memory_events);
            memory_events = -1;
        }
    }
}

int64_t cgroup_memory_kills(void) {
    char text[512];
    ssize_t size = memory_events >= 0 ? RETRY(pread(memory_events, text, sizeof text - 1, 0)) : -1;
    if (size <= 0)
        return -1;
    text[size] = 0;
    for (char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, memory_key, strlen(memory_key)) == 0)
            return strtoll(line + strlen(memory_key), NULL, 10);
    }
    return -1;
}

static void probe_v1(const char *controller, uint32_t bit) {
    int own = hierarchy_open_own(controller);
    if (own < 0)
        return;
    hierarchy_remove_stale(own);
    char name[64];
    snprintf(name, sizeof name, HIERARCHY_PREFIX "probe-%d", (int)getpid());
    if (mkdirat(own, name, 0755) == 0) {
        abilities |= bit;
        (void)unlinkat(own, name, AT_REMOVEDIR);
    }
    close(own);
}

static void start_children(void) {
    hierarchy_remove_stale(base);
    if (mkdirat(base, parent_name, 0755) < 0)
        return;
    parent = openat(base, parent_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct cgroup *first = parent >= 0 && flock(parent, LOCK_EX | LOCK_NB) == 0 ? make() : NULL;
    if (!first) {
        (void)unlinkat(base, parent_name, AT_REMOVEDIR);
        return;
    }
    abilities |= CGROUP_CHILD;
    bool killed;
    if (cgroup_clone_works(first->directory, &killed))
        abilities |= CGROUP_CLONE;
    if (killed)
        abilities |= CGROUP_KILL;
    used = (abilities & CGROUP_CLONE) && killed;
    unmake(first);
    if (!used) {
        (void)unlinkat(base, parent_name, AT_REMOVEDIR);
        close(parent);
        parent = -1;
    }
}

/* Whether cgroup_delegate will do. Nothing is handed down before something is limited: it changes what is not ours. */
static bool may_delegate(const char *controller) {
    if (!used || hierarchy_has(base, "cgroup.subtree_control", controller))
        return used;
    bool root = faccessat(base, "cgroup.type", F_OK, 0) < 0 && errno == ENOENT;
    return root && faccessat(base, "cgroup.subtree_control", W_OK, AT_EACCESS) == 0;
}

static void note_controller(const char *controller, uint32_t bit, uint32_t beside) {
    if (hierarchy_has(base, "cgroup.controllers", controller))
        abilities |= (beside & bit) || may_delegate(controller) ? bit : CGROUP_WITHHELD;
}

void cgroup_start(void) {
    struct stat own;
    hierarchy_own_path("", own_path, sizeof own_path);
    find_memory_events();
    if (cell_inside())
        return;
    unsigned namespace = stat("/proc/self/ns/pid", &own) == 0 ? (unsigned)own.st_ino : 0;
    snprintf(parent_name, sizeof parent_name, HIERARCHY_PREFIX "%d-%llu-%u", (int)getpid(), start_time(getpid()), namespace);
    snprintf(parent_path, sizeof parent_path, "../%s", parent_name);
    probe_v1("pids", CGROUP_V1_PIDS);
    probe_v1("memory", CGROUP_V1_MEMORY);
    base = hierarchy_open_own(NULL);
    if (base < 0)
        return;
    abilities |= CGROUP_MOUNTED;
    start_children();
    uint32_t beside = beside_start();
    note_controller("memory", CGROUP_MEMORY, beside);
    note_controller("pids", CGROUP_PIDS, beside);
}

struct cgroup *cgroup_acquire(void) {
    if (!used)
        return NULL;
    pthread_mutex_lock(&mutex);
    struct cgroup *cgroup = idle;
    if (cgroup) {
        idle = cgroup->next;
        idle_count--;
    } else {
        cgroup = make();
    }
    pthread_mutex_unlock(&mutex);
    return cgroup;
}

static bool empty(const struct cgroup *cgroup) {
    char text[64];
    int fd = openat(cgroup->directory, "cgroup.events", O_RDONLY | O_CLOEXEC);
    ssize_t size = fd >= 0 ? RETRY(read(fd, text, sizeof text - 1)) : -1;
    if (fd >= 0)
        close(fd);
    text[size > 0 ? size : 0] = 0;
    return strstr(text, "populated 0") != NULL;
}

void cgroup_release(struct cgroup *cgroup, bool killed) {
    if (!cgroup)
        return;
    if (cgroup->beside) {
        close(cgroup->directory);
        free(cgroup);
        return;
    }
    pthread_mutex_lock(&mutex);
    if (!killed && idle_count < MOST_IDLE && empty(cgroup)) {
        cgroup->next = idle;
        idle = cgroup;
        idle_count++;
    } else {
        unmake(cgroup);
    }
    pthread_mutex_unlock(&mutex);
}
