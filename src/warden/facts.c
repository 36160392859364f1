#include "facts.h"

#include "cgroup.h"
#include "lockdown.h"
#include "protocol.h"
#include "sys.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#ifndef BUILD_ID
#define BUILD_ID "unknown"
#endif

extern char **environ;

static struct {
    struct utsname system;
    char boot_id[64];
    uint64_t pid_namespace;
    uint64_t init_start;
    char user[256];
    char home[PATH_MAX];
    char cwd[PATH_MAX];
    const char *temp_roots[4];
    uint32_t temp_count;
    mode_t mask;
    int null;
    unsigned landlock;
    unsigned errata;
    uint32_t namespaces;
    pid_t pid;
} facts;

mode_t facts_umask(void) { return facts.mask; }
int facts_null(void) { return facts.null; }
void facts_use_null(int fd) { facts.null = fd; }

static void read_text(const char *path, char *into, size_t size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t count = fd >= 0 ? RETRY(read(fd, into, size - 1)) : -1;
    if (fd >= 0)
        close(fd);
    into[count > 0 ? count : 0] = 0;
}

static void find_init_start(void) {
    char text[1024];
    read_text("/proc/1/stat", text, sizeof text);
    char *at = strrchr(text, ')');
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    facts.init_start = at ? strtoull(at + 1, NULL, 10) : 0;
}

/* name:password:uid:gid:comment:home:shell. The C library would load modules to ask other sources. */
static void find_user(void) {
    FILE *file = fopen("/etc/passwd", "re");
    char line[1024];
    snprintf(facts.user, sizeof facts.user, "%u", (unsigned)geteuid());
    strcpy(facts.home, "/");
    while (file && fgets(line, sizeof line, file)) {
        char *fields[7];
        int count = 0;
        line[strcspn(line, "\n")] = 0;
        for (char *at = line; at && count < 7; count++) {
            fields[count] = at;
            at = strchr(at, ':');
            if (at)
                *at++ = 0;
        }
        if (count < 6 || fields[2][0] < '0' || fields[2][0] > '9' || strtoul(fields[2], NULL, 10) != geteuid())
            continue;
        snprintf(facts.user, sizeof facts.user, "%s", fields[0]);
        if (fields[5][0] == '/')
            snprintf(facts.home, sizeof facts.home, "%s", fields[5]);
        break;
    }
    if (file)
        fclose(file);
    const char *home = getenv("HOME");
    if (home && home[0] == '/' && strlen(home) < sizeof facts.home)
        strcpy(facts.home, home);
}

static void find_temp_roots(void) {
    const char *const candidates[] = {getenv("TMPDIR"), "/tmp", "/var/tmp", "/dev/shm"};
    for (size_t index = 0; index < sizeof candidates / sizeof candidates[0]; index++) {
        const char *path = candidates[index];
        struct stat stat_buffer;
        if (!path || path[0] != '/' || stat(path, &stat_buffer) < 0 || !S_ISDIR(stat_buffer.st_mode) ||
            faccessat(AT_FDCWD, path, W_OK | X_OK, AT_EACCESS) < 0)
            continue;
        bool twice = false;
        for (uint32_t other = 0; other < facts.temp_count; other++)
            twice |= strcmp(facts.temp_roots[other], path) == 0;
        if (!twice)
            facts.temp_roots[facts.temp_count++] = path;
    }
}

/* Of a directory that was removed, where it was: what is relative to it has to fail, not to mean another place. */
static void find_cwd(void) {
    static const char removed[] = " (deleted)";
    const size_t tail = sizeof removed - 1;
    if (getcwd(facts.cwd, sizeof facts.cwd) && facts.cwd[0] == '/')
        return;
    ssize_t length = readlink("/proc/self/cwd", facts.cwd, sizeof facts.cwd - 1);
    facts.cwd[length > 0 ? length : 0] = 0;
    if (length > (ssize_t)tail && strcmp(facts.cwd + length - tail, removed) == 0)
        facts.cwd[(size_t)length - tail] = 0;
    if (facts.cwd[0] != '/')
        strcpy(facts.cwd, "/");
}

void facts_begin(void) {
#ifndef WARDEN_FUZZ /* a new network namespace for each session is most of its time */
    if (!cell_inside())
        probe_namespaces_begin();
#endif
}

void facts_start(void) {
    struct stat stat_buffer;
    uname(&facts.system);
    read_text("/proc/sys/kernel/random/boot_id", facts.boot_id, sizeof facts.boot_id);
    facts.boot_id[strcspn(facts.boot_id, "\n")] = 0;
    facts.pid_namespace = stat("/proc/self/ns/pid", &stat_buffer) == 0 ? stat_buffer.st_ino : 0;
    find_init_start();
    find_user();
    find_cwd();
    find_temp_roots();
    facts.mask = umask(0);
    umask(facts.mask);
    if (facts.null <= 0)
        facts.null = open("/dev/null", O_RDWR | O_CLOEXEC);
    facts.landlock = sys_landlock(false);
    facts.errata = facts.landlock ? sys_landlock(true) : (unsigned)errno;
#ifndef WARDEN_FUZZ
    facts.namespaces = cell_inside() ? 0 : probe_namespaces_end();
#endif
    facts.pid = getpid();
}

static void put_environment(struct buffer *buffer) {
    size_t count_at = buffer->size;
    uint32_t count = 0;
    put_u32(buffer, 0);
    for (char **entry = environ; *entry; entry++) {
        const char *equals = strchr(*entry, '=');
        if (!equals || equals == *entry)
            continue;
        put_bytes(buffer, *entry, (size_t)(equals - *entry));
        put_text(buffer, equals + 1);
        count++;
    }
    patch_u32(buffer, count_at, count);
}

void facts_put(struct buffer *buffer) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    put_u16(buffer, PROTOCOL_VERSION);
    put_text(buffer, BUILD_ID);
    put_u32(buffer, MAX_BODY);
    put_u32(buffer, MAX_MESSAGE);
    put_u16(buffer, MAX_STEPS);
    put_u32(buffer, INPUT_WINDOW);
    put_text(buffer, facts.system.machine);
    put_text(buffer, facts.system.release);
    put_text(buffer, facts.system.nodename);
    put_text(buffer, facts.boot_id);
    put_u64(buffer, facts.pid_namespace);
    put_u64(buffer, facts.init_start);
    put_u32(buffer, (uint32_t)facts.pid);
    put_u32(buffer, geteuid());
    put_u32(buffer, getegid());
    put_u32(buffer, facts.mask);
    put_text(buffer, facts.user);
    put_text(buffer, facts.home);
    put_text(buffer, facts.cwd);
    put_u32(buffer, facts.temp_count);
    for (uint32_t index = 0; index < facts.temp_count; index++)
        put_text(buffer, facts.temp_roots[index]);
    put_environment(buffer);
    put_u64(buffer, (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec);
    put_u8(buffer, cgroup_used() ? KILL_CGROUP : facts.pid == 1 ? KILL_PID_NAMESPACE : KILL_SUBREAPER);
    put_u16(buffer, (uint16_t)facts.landlock);
    put_u32(buffer, facts.errata);
    put_u32(buffer, facts.namespaces);
    put_u32(buffer, cgroup_abilities());
    put_text(buffer, cgroup_own_path());
}
