/* Starting commands: what the worker, the supervisor and the leader share. */
#ifndef WARDEN_SPAWN_H
#define WARDEN_SPAWN_H

#include "wire.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct limit_groups;

struct limit {
    uint32_t resource;
    uint64_t soft;
    uint64_t hard;
};

/* A command as it is to be started. Lives in the worker's memory; the supervisor sees its copy of it. */
struct command {
    const char *program; /* not used with `executable` */
    char **argv;
    char **environment;
    const char *directory; /* NULL: where the supervisor is */
    int null;        /* /dev/null, for reading and writing */
    int standard[3]; /* become 0, 1 and 2 */
    bool terminal;   /* they are one, and to be the controlling one */
    bool has_uid, has_gid, has_groups, has_umask;
    uid_t uid;
    gid_t gid;
    mode_t umask;
    gid_t *groups;
    uint32_t group_count;
    struct limit *limits;
    uint32_t limit_count;
    int control; /* the supervisor's end */
    int cgroup;  /* directory, or -1 */
    int executable; /* this program, to become a cell; 0: a command */
    const struct limit_groups *limits_of_cell;
};

/* From the supervisor, one packet each. */
enum note_type { NOTE_STARTED, NOTE_EXITED, NOTE_GONE, NOTE_SIGNALLED, NOTE_REPORT };

#define MOST_SURVIVORS 256

struct note {
    uint32_t type;
    int32_t pid;      /* STARTED: of the leader, 0 when it failed */
    int32_t error;    /* STARTED */
    uint32_t stage;   /* STARTED */
    int32_t raw;      /* EXITED */
    int32_t count;    /* SIGNALLED: processes, or minus errno */
    uint8_t gone;     /* EXITED, REPORT: nothing of the tree is left */
    uint8_t method;   /* GONE, REPORT, EXITED with gone */
    uint16_t padding;
    uint32_t survivor_count;
    uint64_t token;   /* SIGNALLED */
    uint64_t user_us; /* EXITED */
    uint64_t system_us;
    uint64_t peak_bytes;
    int32_t survivors[MOST_SURVIVORS];
};

/* To the supervisor. */
enum order_type { ORDER_SIGNAL, ORDER_KILL };

struct order {
    uint32_t type;
    int32_t number;
    uint32_t target;
    uint32_t padding;
    uint64_t token;
};

/* What a spawn left in the hands of the warden; -1 for what there is not. */
struct spawned {
    pid_t supervisor;
    pid_t leader;
    int control;
    int input;
    int output[2];
    int master;
    struct cgroup *cgroup;
};

/* Runs in a fork of the warden and does not return: this command, and then others that come over the control socket. */
_Noreturn void supervise(const struct command *command, pid_t warden);

/* Runs in the memory of the supervisor until the program is executed. The outcome of a failure goes through a pipe
 * that the program's start closes: under emulators (qemu-user) a vfork shares no memory and waits for nothing. */
struct start {
    const struct command *command;
    pid_t supervisor;
    int report;
};
struct failure {
    int32_t error;
    uint32_t stage;
};
int leader_main(void *start);

/* The soft limit of open files that the warden was started with, for its children. */
void spawn_remember_limits(void);

/* A command as one packet. Packing gives 0 when it is too large; unpacking points into the packet and `strings`. */
#define COMMAND_MOST 65536u
#define COMMAND_MOST_STRINGS 4096u
size_t command_pack(const struct command *command, uint8_t *into, size_t room, int fds[3], int *fd_count);
bool command_unpack(uint8_t *from, size_t size, const int *fds, int fd_count, char **strings, struct command *command);

#endif
