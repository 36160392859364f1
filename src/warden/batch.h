/* A batch: decoded completely before anything runs, then run step by step in a worker. */
#ifndef WARDEN_BATCH_H
#define WARDEN_BATCH_H

#include "handles.h"
#include "protocol.h"
#include "wire.h"
#include "workers.h"

#include <limits.h>
#include <sys/stat.h>

enum { TAG_NONE, TAG_NUMBER, TAG_STEP };
enum { PATH_BYTES, PATH_WHOLE, PATH_PARENT, PATH_NAME };

struct handle_field {
    uint8_t tag;
    uint16_t step;
    uint64_t number;
};

struct path_field {
    uint8_t tag;
    uint16_t step;
    struct slice bytes;
};

struct list_field {
    uint32_t count;
    struct slice raw; /* elements as they came, checked */
};

/* Fields in the order of protocol.md, one array for each type. */
struct operation {
    uint8_t opcode;
    struct path_field paths[2];
    struct handle_field handles[2];
    uint64_t numbers[10];
    struct slice data;
    struct list_field lists[4];
};

struct step {
    struct operation operation;
    struct operation *undo;
    struct slice tolerated;
};

struct result {
    uint16_t status;
    uint64_t handle;   /* of steps that open one */
    size_t at;         /* where the value lies in the reply: bytes of a path, or a stat */
    size_t size;
};

struct batch {
    struct job job; /* first */
    uint64_t id;
    uint8_t *message;
    size_t message_size;
    struct step *steps;
    struct operation *undos;
    uint16_t count;

    /* The rest belongs to the worker until the batch is done. */
    struct result *results;
    uint16_t current;
    struct buffer reply; /* the body of the REPLY, outcome first */
    uint32_t detail;
    bool bulk_allowed;       /* it made no handle that speaks unasked */
    struct handle **opened;  /* references, for the loop to attach or to close */
    unsigned opened_count;
    unsigned opened_capacity;
    struct handle **detached; /* watches and connections that Close took out of the table */
    unsigned detached_count;
    bool failed;
    unsigned kills_pending; /* of the loop */
    struct batch *next;     /* of the loop: all unanswered batches */
    struct batch *previous;
};

/* Offset of the status, detail, step and count in the reply. */
#define OUTCOME_SIZE 10u

/* NULL with a status when the batch is refused. Owns `message` from then on, also when it fails. */
struct batch *batch_decode(uint64_t id, uint8_t *message, size_t size, uint16_t *status);
void batch_run(struct job *job);
void batch_free(struct batch *batch);
/* Outcome of a batch of which nothing ran. */
void batch_refuse(struct batch *batch, uint16_t status);

/* For the steps. A step returns its status and puts its value into `batch->reply`. */
typedef int step_function(struct batch *batch, const struct operation *operation);

/* Space for one path; `text` points into it or into nothing. */
struct path_text {
    char text[PATH_MAX];
};

/* 0 or the status. */
int resolve_path(struct batch *batch, const struct path_field *field, struct path_text *into);
int slice_to_path(struct slice slice, struct path_text *into);
/* A reference that the caller drops. `kind_any` takes every kind. */
int resolve_handle(struct batch *batch, const struct handle_field *field, struct handle **handle);
int resolve_file(struct batch *batch, const struct handle_field *field, struct file **file);
/* `*file` is NULL and `*fd` is AT_FDCWD without a base. */
int resolve_base(struct batch *batch, const struct handle_field *field, struct file **file, int *fd);
void drop_file(struct file *file);
/* The number of what the batch opened, as value. Takes the caller's reference over. */
void put_opened(struct batch *batch, struct handle *handle);
bool batch_cancelled(const struct batch *batch);

void put_stat(struct buffer *buffer, const struct stat *stat);
uint16_t kind_of(mode_t mode);

step_function step_open, step_close, step_read, step_read_at, step_write, step_seek, step_sync, step_truncate,
    step_stat, step_stat_handle, step_check, step_real_path, step_read_link, step_make_symlink, step_link, step_rename,
    step_unlink, step_make_directory, step_remove_directory, step_set_mode, step_set_times, step_set_owner,
    step_list_directory, step_open_walk, step_read_walk, step_lock, step_copy_range, step_stat_file_system,
    step_open_watch, step_add_watch, step_remove_watch, step_find_executable, step_spawn, step_connect;

#endif
