#include "hierarchy.h"

#include "sys.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/vfs.h>
#include <unistd.h>

#define REMOVE_ATTEMPTS 60
#define MAGIC_OF_V2 0x63677270 /* CGROUP2_SUPER_MAGIC, which the headers of musl lack */

/* Value of a line "hierarchy:controllers:path" of /proc/self/cgroup. */
bool hierarchy_own_path(const char *controller, char *into, size_t size) {
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

/* What is opened is a group, not what happens to lie where one was looked for. */
static int open_group(const char *path, bool newer) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct statfs found;
    if (fd >= 0 && newer && (fstatfs(fd, &found) < 0 || found.f_type != MAGIC_OF_V2)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Directory of the own group in a mounted hierarchy, or the one above it, from /proc/self/mountinfo. */
static int open_own(const char *type, const char *controller, bool above) {
    char own[PATH_MAX], line[PATH_MAX * 2], path[PATH_MAX * 2];
    if (!hierarchy_own_path(controller, own, sizeof own) || strncmp(own, "/..", 3) == 0)
        return -1; /* there is none, or it lies outside of what our namespace shows */
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
        char *inside = own + root_size;
        size_t length = strlen(inside);
        if (above) {
            char *last = strrchr(inside, '/');
            if (!last || last[1] == 0)
                continue; /* it is the top of what is mounted here */
            length = (size_t)(last - inside);
        }
        snprintf(path, sizeof path, "%s%.*s", mount, (int)length, inside);
        fd = open_group(path, strcmp(type, "cgroup2") == 0);
    }
    if (file)
        fclose(file);
    return fd;
}

int hierarchy_open_own(const char *controller_of_v1) {
    return controller_of_v1 ? open_own("cgroup", controller_of_v1, false) : open_own("cgroup2", "", false);
}

int hierarchy_open_above(void) { return open_own("cgroup2", "", true); }

bool hierarchy_has(int directory, const char *name, const char *word) {
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

int hierarchy_hand_down(int directory, const char *controller) {
    char text[32];
    if (hierarchy_has(directory, "cgroup.subtree_control", controller))
        return 0;
    if (!hierarchy_has(directory, "cgroup.controllers", controller))
        return ENOENT;
    int size = snprintf(text, sizeof text, "+%s", controller);
    int fd = openat(directory, "cgroup.subtree_control", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    int error = RETRY(write(fd, text, (size_t)size)) == size ? 0 : errno;
    close(fd);
    return error;
}

void hierarchy_remove_children(int directory) {
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

void hierarchy_remove(int directory, const char *name) {
    for (int attempt = 0; attempt < REMOVE_ATTEMPTS; attempt++) {
        hierarchy_remove_children(directory);
        if (unlinkat(directory, name, AT_REMOVEDIR) == 0 || errno != EBUSY)
            return;
        struct timespec pause_time = {.tv_nsec = attempt < 10 ? 200000 : 2000000};
        nanosleep(&pause_time, NULL);
    }
}

void hierarchy_remove_stale(int hierarchy) {
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
            const size_t length = sizeof HIERARCHY_PREFIX - 1;
            char next = strncmp(entry->name, HIERARCHY_PREFIX, length) == 0 ? entry->name[length] : 0;
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
            hierarchy_remove_children(stale);
            close(stale);
            (void)unlinkat(hierarchy, entry->name, AT_REMOVEDIR);
        }
    close(fd);
}
