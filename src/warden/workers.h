/* Threads for whatever may block. They are started when needed and never end: a parent-death signal is sent when the
 * *thread* that forked ends. */
#ifndef WARDEN_WORKERS_H
#define WARDEN_WORKERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct job {
    struct job *next;
    void (*run)(struct job *job);  /* in a worker */
    void (*done)(struct job *job); /* in the loop */
    atomic_bool cancelled;
    atomic_int thread; /* that runs it; 0 before and after */
};

/* A descriptor that becomes readable when jobs are done; -1 with errno. */
int workers_start(void);
void workers_submit(struct job *job);
/* Whether the caller runs in a worker. */
bool workers_inside(void);
/* Takes it out of the queue when it has not begun. */
bool workers_withdraw(struct job *job);
/* Sets the flag and interrupts the system call that it is in. */
void workers_cancel(struct job *job);
/* Calls `done` for all that are done. */
void workers_collect(void);
/* Starts one more thread when jobs wait and nothing moves. Milliseconds until it wants to be asked again, or -1. */
int workers_pressure(void);
unsigned workers_waiting(void);
/* Queued or running. */
unsigned workers_active(void);

#endif
