#include "handles.h"

#include "listing.h"
#include "workers.h"

#include <stdlib.h>
#include <unistd.h>

struct slot {
    struct handle *handle;
    uint32_t generation;
    uint32_t next_free;
};

static pthread_mutex_t table_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct slot *slots;
static uint32_t slot_count;
static uint32_t slot_capacity;
static uint32_t first_free = UINT32_MAX;

void handles_lock(void) { pthread_mutex_lock(&table_mutex); }
void handles_unlock(void) { pthread_mutex_unlock(&table_mutex); }

struct handle *handle_register(struct handle *handle, enum handle_kind kind, void (*destroy)(struct handle *)) {
    handle->kind = kind;
    handle->destroy = destroy;
    atomic_init(&handle->references, 2); /* the table's and the caller's */
    handles_lock();
    uint32_t index = first_free;
    if (index != UINT32_MAX) {
        first_free = slots[index].next_free;
    } else {
        if (slot_count == slot_capacity) {
            uint32_t capacity = slot_capacity ? slot_capacity * 2 : 64;
            struct slot *grown = realloc(slots, capacity * sizeof *grown);
            if (!grown)
                abort(); /* the supervisors end what runs */
            slots = grown;
            slot_capacity = capacity;
        }
        index = slot_count++;
        slots[index].generation = 0;
    }
    struct slot *slot = &slots[index];
    slot->handle = handle;
    slot->generation++;
    handle->number = (uint64_t)slot->generation << 32 | (index + 1);
    handles_unlock();
    return handle;
}

static struct slot *find(uint64_t number) {
    uint32_t index = (uint32_t)number - 1;
    if (index >= slot_count || !slots[index].handle || slots[index].generation != number >> 32)
        return NULL;
    return &slots[index];
}

struct handle *handle_get(uint64_t number) {
    handles_lock();
    struct slot *slot = find(number);
    struct handle *handle = slot ? slot->handle : NULL;
    if (handle)
        handle_hold(handle);
    handles_unlock();
    return handle;
}

struct handle *handle_get_kind(uint64_t number, enum handle_kind kind) {
    struct handle *handle = handle_get(number);
    if (handle && handle->kind != kind) {
        handle_drop(handle);
        return NULL;
    }
    return handle;
}

void handle_hold(struct handle *handle) { atomic_fetch_add(&handle->references, 1); }

bool handle_may_hang(const struct handle *handle) {
    return handle->kind == HANDLE_FILE || handle->kind == HANDLE_WALK;
}

struct closing {
    struct job job; /* first */
    struct handle *handle;
    void (*then)(uint64_t id);
    uint64_t id;
};

static void run_closing(struct job *job) { handle_drop(((struct closing *)job)->handle); }

static void on_closed(struct job *job) {
    struct closing *closing = (struct closing *)job;
    if (closing->then)
        closing->then(closing->id);
    free(closing);
}

void handle_drop_in_worker(struct handle *handle, void (*then)(uint64_t id), uint64_t id) {
    struct closing *closing = calloc(1, sizeof *closing);
    if (!closing)
        abort();
    *closing = (struct closing){.handle = handle, .then = then, .id = id};
    closing->job.run = run_closing;
    closing->job.done = on_closed;
    workers_submit(&closing->job);
}

void handle_drop(struct handle *handle) {
    if (atomic_fetch_sub(&handle->references, 1) != 1)
        return;
    if (!handle_may_hang(handle) || workers_inside()) {
        handle->destroy(handle);
        return;
    }
    atomic_store(&handle->references, 1);
    handle_drop_in_worker(handle, NULL, 0);
}

struct handle *handle_remove(uint64_t number) {
    handles_lock();
    struct slot *slot = find(number);
    struct handle *handle = slot ? slot->handle : NULL;
    if (handle) {
        slot->handle = NULL;
        /* A slot whose generations are used up is never used again. */
        if (slot->generation != UINT32_MAX) {
            slot->next_free = first_free;
            first_free = (uint32_t)(slot - slots);
        }
    }
    handles_unlock();
    return handle;
}

static void file_destroy(struct handle *handle) {
    struct file *file = (struct file *)handle;
    listing_free(file->listing);
    pthread_mutex_destroy(&file->mutex);
    close(file->fd);
    free(file);
}

struct handle *file_register(int fd) {
    struct file *file = calloc(1, sizeof *file);
    if (!file)
        abort();
    file->fd = fd;
    pthread_mutex_init(&file->mutex, NULL);
    return handle_register(&file->handle, HANDLE_FILE, file_destroy);
}
