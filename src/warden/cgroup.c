#include "cgroup.h"

#include "descend.h"
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

#define PREFIX "execworld-"
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
void cgroup_disable(void) { used = false; }
int cgroup_parent(void) { return parent; }
const char *cgroup_prefix(void) { return parent_name; }

/* Value of a line "hierarchy:controllers:path" of /proc/self/cgroup. */
static bool find_own_path(const char *controller, char *into, size_t size) {
    FILE *file = fopen("/proc/self/cgroup", "re");
    char line[PATH_MAX];
    bool found = false;
    while (file && !found && fgets(line, sizeof line, file)) {
        char *controllers = strchr(line, ':');
        char *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = 0;
        controllers++;
        path[strcspn(path, "\n")] = 0;
        if (controller[0] == 0)
            found = line[0] == '0' && controllers[0] == 0;
        else
            for (char *save, *name = strtok_r(controllers, ",", &save); name && !found; name = strtok_r(NULL, ",", &save))
                found = strcmp(name, controller) == 0;
        if (found)
            snprintf(into, size, "%s", path);
    }
    if (file)
        fclose(file);
    return found;
}

/* Directory of the own group in a mounted hierarchy, from /proc/self/mountinfo. */
static int open_own(const char *type, const char *controller) {
    char own[PATH_MAX], line[PATH_MAX * 2], path[PATH_MAX * 2];
    if (!find_own_path(controller, own, sizeof own))
        return -1;
    FILE *file = fopen("/proc/self/mountinfo", "re");
    int fd = -1;
    while (file && fd < 0 && fgets(line, sizeof line, file)) {
        /* id parent major:minor root mount options [tags] - type source superoptions */
        char root[PATH_MAX], mount[PATH_MAX], kind[32], options[256];
        char *rest = strstr(line, " - ");
        if (!rest || sscanf(line, "%*s %*s %*s %4095s %4095s", root, mount) != 2 ||
            sscanf(rest, " - %31s %*s %255s", kind, options) != 2 || strcmp(kind, type) != 0)
            continue;
        if (controller[0]) {
            bool has = false;
            for (char *save, *name = strtok_r(options, ",", &save); name; name = strtok_r(NULL, ",", &save))
                has |= strcmp(name, controller) == 0;
            if (!has)
                continue;
        }
        size_t root_size = strcmp(root, "/") == 0 ? 0 : strlen(root);
        if (strncmp(own, root, root_size) != 0 || (own[root_size] != '/' && own[root_size] != 0))
            continue; /* what is mounted here does not contain our group */
        snprintf(path, sizeof path, "%s%s", mount, own + root_size);
        fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    if (file)
        fclose(file);
    return fd;
}

int cgroup_open_own_v1(const char *controller) { return open_own("cgroup", controller); }

static bool file_has_word(int directory, const char *name, const char *word) {
    char text[512];
    int fd = openat(directory, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t size = RETRY(read(fd, text, sizeof text - 1));
    close(fd);
    text[size > 0 ? size : 0] = 0;
    for (char *save, *part = strtok_r(text, " \n", &save); part; part = strtok_r(NULL, " \n", &save))
        if (strcmp(part, word) == 0)
            return true;
    return false;
}

static int hand_down(int directory, const char *controller) {
    char text[32];
    if (file_has_word(directory, "cgroup.subtree_control", controller))
        return 0;
    if (!file_has_word(directory, "cgroup.controllers", controller))
        return ENOENT;
    int size = snprintf(text, sizeof text, "+%s", controller);
    int fd = openat(directory, "cgroup.subtree_control", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    int error = RETRY(write(fd, text, (size_t)size)) == size ? 0 : errno;
    close(fd);
    return error;
}

int cgroup_delegate(const char *controller) {
    if (!used)
        return ENOENT;
    /* Fails with EBUSY where the group has processes of its own, unless it is the root. */
    int error = hand_down(base, controller);
    return error ? error : hand_down(parent, controller);
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

/* Removes the empty groups below `directory`. Async-signal-safe. */
static void remove_children(int directory) {
    _Alignas(8) char buffer[2048];
    int fd = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t size;
    while ((size = RETRY(sys_getdents64(fd, buffer, sizeof buffer))) > 0)
        for (ssize_t at = 0; at < size;) {
            const struct kernel_dirent *entry = (const void *)(buffer + at);
            at += entry->length;
            if (entry->name[0] == 'c' && entry->name[1] >= '0' && entry->name[1] <= '9')
                (void)unlinkat(directory, entry->name, AT_REMOVEDIR);
        }
    close(fd);
}

void cgroup_remove_all(void) {
    if (parent < 0)
        return;
    remove_children(parent);
    (void)unlinkat(parent, parent_path, AT_REMOVEDIR);
}

/* Groups of wardens that were killed before anything of theirs could remove them. */
static void remove_stale(int hierarchy) {
    _Alignas(8) char buffer[4096];
    int fd = openat(hierarchy, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t size;
    while ((size = RETRY(sys_getdents64(fd, buffer, sizeof buffer))) > 0)
        for (ssize_t at = 0; at < size;) {
            const struct kernel_dirent *entry = (const void *)(buffer + at);
            at += entry->length;
            /* A warden's name goes on with its number; others may have names that begin alike. */
            char next = strncmp(entry->name, PREFIX, sizeof PREFIX - 1) == 0 ? entry->name[sizeof PREFIX - 1] : 0;
            if (next < '0' || next > '9')
                continue;
            int stale = openat(hierarchy, entry->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            if (stale < 0)
                continue;
            /* Its warden, or a supervisor of it that still cleans up, holds the lock: seen from every namespace. */
            if (flock(stale, LOCK_EX | LOCK_NB) < 0) {
                close(stale);
                continue;
            }
            remove_children(stale);
            close(stale);
            (void)unlinkat(hierarchy, entry->name, AT_REMOVEDIR);
        }
    close(fd);
}

static struct cgroup *make(void) {
    char name[16];
    struct cgroup *cgroup = malloc(sizeof *cgroup);
    if (!cgroup)
        return NULL;
    cgroup->number = made++;
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
static bool clone_works(struct cgroup *cgroup, bool *killed) {
    static _Alignas(16) char stack[8192];
    pid_t helper = sys_fork();
    if (helper == 0) {
        /* Becomes the child's parent and is killed with it: it moves along. */
        pid_t child = sys_vfork(wait_for_kill, NULL, stack, sizeof stack, cgroup->directory);
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
            int fd = openat(cgroup->directory, "cgroup.procs", O_RDONLY | O_CLOEXEC);
            ssize_t size = fd >= 0 ? RETRY(read(fd, text, sizeof text)) : -1;
            if (fd >= 0)
                close(fd);
            entered = size > 0;
            if (entered)
                cgroup_kill(cgroup->directory);
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
        const char *type, *controller, *file, *key;
    } sources[] = {
        {"cgroup2", "", "memory.events", "oom_kill "},
        {"cgroup", "memory", "memory.oom_control", "oom_kill "},
    };
    for (size_t index = 0; index < 2 && memory_events < 0; index++) {
        int own = open_own(sources[index].type, sources[index].controller);
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
    int own = open_own("cgroup", controller);
    if (own < 0)
        return;
    remove_stale(own);
    char name[64];
    snprintf(name, sizeof name, PREFIX "probe-%d", (int)getpid());
    if (mkdirat(own, name, 0755) == 0) {
        abilities |= bit;
        (void)unlinkat(own, name, AT_REMOVEDIR);
    }
    close(own);
}

void cgroup_start(void) {
    struct stat own;
    find_own_path("", own_path, sizeof own_path);
    find_memory_events();
    if (cell_inside())
        return;
    unsigned namespace = stat("/proc/self/ns/pid", &own) == 0 ? (unsigned)own.st_ino : 0;
    snprintf(parent_name, sizeof parent_name, PREFIX "%d-%llu-%u", (int)getpid(), start_time(getpid()), namespace);
    snprintf(parent_path, sizeof parent_path, "../%s", parent_name);
    probe_v1("pids", CGROUP_V1_PIDS);
    probe_v1("memory", CGROUP_V1_MEMORY);
    base = open_own("cgroup2", "");
    if (base < 0)
        return;
    abilities |= CGROUP_MOUNTED;
    if (file_has_word(base, "cgroup.controllers", "memory"))
        abilities |= CGROUP_MEMORY;
    if (file_has_word(base, "cgroup.controllers", "pids"))
        abilities |= CGROUP_PIDS;
    remove_stale(base);
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
    if (clone_works(first, &killed))
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
