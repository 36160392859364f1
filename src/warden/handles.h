/* The table of everything that the host can name by a number. Safe to use from every thread. */
#ifndef WARDEN_HANDLES_H
#define WARDEN_HANDLES_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum handle_kind { HANDLE_FILE, HANDLE_WALK, HANDLE_WATCH, HANDLE_PROCESS, HANDLE_CONNECTION };

struct handle {
    uint64_t number;
    enum handle_kind kind;
    atomic_int references;
    /* Frees the object and closes its descriptors. Runs in whatever thread drops the last reference. */
    void (*destroy)(struct handle *handle);
};

/* Gives it two references: the table takes one, the caller has the other. Numbers are never used again. */
struct handle *handle_register(struct handle *handle, enum handle_kind kind, void (*destroy)(struct handle *));

/* A new reference, or NULL. */
struct handle *handle_get(uint64_t number);
struct handle *handle_get_kind(uint64_t number, enum handle_kind kind);

void handle_hold(struct handle *handle);
/* The last one to drop a file or a walk closes it, in a worker: a file system may not answer that (flush of FUSE and NFS). */
void handle_drop(struct handle *handle);
/* Drops it in a worker, and then calls `then` in the loop. */
void handle_drop_in_worker(struct handle *handle, void (*then)(uint64_t id), uint64_t id);
bool handle_may_hang(const struct handle *handle);

/* Takes the number out of the table; the table's reference goes to the caller. NULL when it is gone already. */
struct handle *handle_remove(uint64_t number);

/* Held while the process forks, so that a child finds the table in order. */
void handles_lock(void);
void handles_unlock(void);

struct listing;

struct file {
    struct handle handle;
    int fd;
    pthread_mutex_t mutex; /* of `listing` */
    struct listing *listing;
};

struct handle *file_register(int fd);

#endif
