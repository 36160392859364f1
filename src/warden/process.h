/* A running command as the loop sees it, and connections, which are sent to and received from alike. */
#ifndef WARDEN_PROCESS_H
#define WARDEN_PROCESS_H

#include "handles.h"
#include "limits.h"
#include "loop.h"
#include "spawn.h"
#include "stream.h"

struct cell;

struct waiter {
    struct waiter *next;
    uint64_t id;
};

struct process {
    struct handle handle; /* first */
    bool attached;        /* the loop owns it */
    bool released;
    bool exited;
    bool gone;            /* proven: nothing of the tree is left */
    bool control_lost;    /* the supervisor died before its time */
    bool terminal;
    bool once;            /* its supervisor takes no other command */
    uint8_t method;
    int32_t raw;
    pid_t supervisor;     /* 0 when reaped */
    pid_t leader;
    int master;
    int64_t memory_kills; /* of the warden's group when it was started; -1 unknown */
    struct cgroup *cgroup;
    struct limit_groups limits; /* of a cell */
    struct cell *cell;          /* NULL: it is a command */
    int control;
    struct source control_source;
    struct stream output[2];
    struct input input;
    struct waiter *killers;  /* KILL_TREE requests without an answer */
    struct waiter *signallers; /* SIGNAL requests with the supervisor */
    int64_t kill_deadline_ms;
    void (*on_killed)(void *argument); /* for failed batches and the end of the world */
    void *on_killed_argument;
    uint32_t survivor_count;
    int32_t survivors[MOST_SURVIVORS];
    struct process *next; /* all that are attached and not gone, or not released */
    struct process *previous;
};

struct connection {
    struct handle handle; /* first */
    bool attached;
    bool passed; /* the host reads and writes the descriptor itself; ours is there to end it */
    int fd;
    struct cell *cell; /* at the other end; NULL */
    struct stream output;
    struct input input;
    struct connection *next;
    struct connection *previous;
};

/* In a worker: takes the descriptors over. */
struct handle *process_register(const struct spawned *spawned);
struct handle *connection_register(int fd);

/* The rest in the loop. */
void process_attach(struct process *process);
void process_release(struct process *process);
/* Begins to kill; `on_killed` runs when it is gone or given up, perhaps at once. */
void process_kill(struct process *process, void (*on_killed)(void *), void *argument);
void process_request_kill(struct process *process, uint64_t id);
void process_request_signal(struct process *process, uint64_t id, uint32_t number, uint32_t target);
/* A child of the warden ended. */
void process_reaped(pid_t pid, int raw);
/* Deadlines; milliseconds until the next one, or -1. */
int process_tick(void);
extern struct process *process_first;

/* A supervisor ended without having proven its tree empty, so that there may be orphans. */
void suspect_orphans(void);
/* Whether that was not disproved since. */
bool orphans_suspected(void);
/* Kills all children of the warden that are no supervisors: orphans of a supervisor that was killed. True when none
 * is left. */
bool sweep_orphans(void);

void connection_attach(struct connection *connection);
void connection_release(struct connection *connection);
/* Drops what waits to be sent under this request. */
void connection_cancel(uint64_t id);

#endif
