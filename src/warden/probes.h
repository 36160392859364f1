/* Attempts at effects that a cell is to prevent, or to allow. Made by a fork, so with async-signal-safe means alone. */
#ifndef WARDEN_PROBES_H
#define WARDEN_PROBES_H

#include "plan.h"

#include <limits.h>
#include <netinet/in.h>
#include <sys/types.h>

#define MARK_SIZE 32u /* hexadecimal digits */
#define SOCKET_PATH_SIZE 40u
#define TARGET_VARIABLE "EXECWORLD_PROBE="
#define TARGET_FILES 33 /* limit of open files of the process that is a target, before and after it is changed */

enum target_port { PORT_TCP, PORT_FAST_OPEN, PORT_MULTIPATH, PORT_UDP, PORT_COUNT };

/* Where the targets are. Goes to the cell as it is: both ends are the same program. */
struct targets {
    char directory[PATH_MAX];
    uint16_t ports[PORT_COUNT]; /* as in sin_port */
    char abstract[MARK_SIZE + 1]; /* name of the socket; without one it is empty */
    char mark[MARK_SIZE];       /* what the process has in its memory and in its environment */
    pid_t process;              /* 0: there is none */
    uint64_t memory;            /* address of the mark in it */
    uint64_t start_time;
    uint64_t most_files;        /* hard limit */
    struct {
        uint64_t device;
        uint64_t inode;
        bool known;
    } read[PLAN_MOST_PROBES];
};

/* What a prober says of a probe, and of the lock before all of them. */
struct attempt {
    int32_t error;
    uint64_t device; /* of what READ opened */
    uint64_t inode;
};

/* From `first` on; an attempt each goes into the pipe. */
void probes_try(const struct plan *plan, const struct targets *targets, uint32_t first, int pipe);

/* Those of `controls.c`: 0 or an errno. */
int controls_try(const struct probe *probe, const struct targets *targets);

/* By either way that takes the right to trace. Engines of containers deny the system call with their filter and leave the file,
 * so that the one alone would look like a denial. */
int probes_read_memory(pid_t pid, uint64_t address, char into[MARK_SIZE]);

/* Name of a target below the directory. */
const char *probes_path(const struct targets *targets, const char *name, char into[PATH_MAX + 16]);
/* Address of the socket in it. */
void probes_socket_path(int directory, char into[SOCKET_PATH_SIZE]);
uint64_t probes_start_time(pid_t pid);

#endif
