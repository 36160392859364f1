/* Running a batch: stop at the first failure, undo, close; references to earlier results. */
#include "batch.h"

#include "sys.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

static step_function *const step_functions[OP_END] = {
    [OP_OPEN] = step_open,
    [OP_CLOSE] = step_close,
    [OP_READ] = step_read,
    [OP_READ_AT] = step_read_at,
    [OP_WRITE] = step_write,
    [OP_SEEK] = step_seek,
    [OP_SYNC] = step_sync,
    [OP_TRUNCATE] = step_truncate,
    [OP_STAT] = step_stat,
    [OP_STAT_HANDLE] = step_stat_handle,
    [OP_CHECK] = step_check,
    [OP_REAL_PATH] = step_real_path,
    [OP_READ_LINK] = step_read_link,
    [OP_MAKE_SYMLINK] = step_make_symlink,
    [OP_LINK] = step_link,
    [OP_RENAME] = step_rename,
    [OP_UNLINK] = step_unlink,
    [OP_MAKE_DIRECTORY] = step_make_directory,
    [OP_REMOVE_DIRECTORY] = step_remove_directory,
    [OP_SET_MODE] = step_set_mode,
    [OP_SET_TIMES] = step_set_times,
    [OP_SET_OWNER] = step_set_owner,
    [OP_LIST_DIRECTORY] = step_list_directory,
    [OP_OPEN_WALK] = step_open_walk,
    [OP_READ_WALK] = step_read_walk,
    [OP_LOCK] = step_lock,
    [OP_COPY_RANGE] = step_copy_range,
    [OP_STAT_FILE_SYSTEM] = step_stat_file_system,
    [OP_OPEN_WATCH] = step_open_watch,
    [OP_ADD_WATCH] = step_add_watch,
    [OP_REMOVE_WATCH] = step_remove_watch,
    [OP_FIND_EXECUTABLE] = step_find_executable,
    [OP_SPAWN] = step_spawn,
    [OP_CONNECT] = step_connect,
};

#ifdef WARDEN_FUZZ
extern volatile uint8_t *fuzz_reached;
#endif

bool batch_cancelled(const struct batch *batch) { return !batch->failed && atomic_load(&batch->job.cancelled); }

static bool tolerates(const struct step *step, uint16_t status) {
    for (size_t at = 0; at + 1 < step->tolerated.size; at += 2)
        if ((step->tolerated.data[at] | step->tolerated.data[at + 1] << 8) == status)
            return true;
    return false;
}

static void write_outcome(struct batch *batch, uint16_t status, uint16_t step, uint16_t count) {
    struct buffer *reply = &batch->reply;
    size_t size = reply->size;
    reply->size = 0;
    put_u16(reply, status);
    put_u32(reply, batch->detail);
    put_u16(reply, step);
    put_u16(reply, count);
    if (size > OUTCOME_SIZE)
        reply->size = size;
}

static uint16_t run_step(struct batch *batch, uint16_t index) {
    const struct step *step = &batch->steps[index];
    struct result *result = &batch->results[index];
    struct buffer *reply = &batch->reply;
    batch->current = index;
    batch->detail = 0;
    if (batch_cancelled(batch))
        return ECANCELED;
    size_t before = reply->size;
    /* What opens something must not fail for lack of room behind it. */
    if (!buffer_reserve(reply, 64)) {
        reply->failed = false;
        return EMSGSIZE;
    }
    put_u16(reply, 0);
    result->at = reply->size;
#ifdef WARDEN_FUZZ
    fuzz_reached[step->operation.opcode] = 1;
#endif
    int status = step_functions[step->operation.opcode](batch, &step->operation);
    if (reply->failed) {
        reply->failed = false;
        status = EMSGSIZE;
    }
    if (status != 0)
        reply->size = before;
    return (uint16_t)status;
}

static void undo_and_close(struct batch *batch, unsigned done) {
    struct buffer *reply = &batch->reply;
    size_t size = reply->size;
    for (unsigned index = done; index-- > 0;) {
        const struct operation *undo = batch->steps[index].undo;
        if (!undo || batch->results[index].status != 0)
            continue;
        batch->current = (uint16_t)index;
        (void)step_functions[undo->opcode](batch, undo);
        reply->failed = false;
        reply->size = size;
    }
    for (unsigned index = 0; index < batch->opened_count; index++) {
        struct handle *handle = batch->opened[index];
        if (handle->kind != HANDLE_FILE && handle->kind != HANDLE_WALK)
            continue; /* the loop's */
        if (handle_remove(handle->number))
            handle_drop(handle);
    }
}

/* What is left is the loop's to attach, and to drop. Files are closed here, when Close or the end of the batch has taken
 * them out of the table. */
static void drop_files(struct batch *batch) {
    unsigned kept = 0;
    for (unsigned index = 0; index < batch->opened_count; index++)
        if (handle_may_hang(batch->opened[index]))
            handle_drop(batch->opened[index]);
        else
            batch->opened[kept++] = batch->opened[index];
    batch->opened_count = kept;
}

void batch_run(struct job *job) {
    struct batch *batch = (struct batch *)job;
    struct buffer *reply = &batch->reply;
    batch->bulk_allowed = true;
    buffer_reserve(reply, OUTCOME_SIZE);
    if (reply->failed)
        abort();
    reply->size = OUTCOME_SIZE;
    for (uint16_t index = 0; index < batch->count; index++) {
        uint16_t status = run_step(batch, index);
        if (status == 0) {
            batch->results[index].size = reply->size - batch->results[index].at;
            continue;
        }
        if (tolerates(&batch->steps[index], status)) {
            batch->results[index].status = status;
            put_u16(reply, status);
            put_u32(reply, batch->detail);
            continue;
        }
        uint32_t detail = batch->detail;
        batch->failed = true;
        undo_and_close(batch, index);
        batch->detail = detail;
        drop_files(batch);
        write_outcome(batch, status, index, index);
        return;
    }
    drop_files(batch);
    batch->detail = 0;
    write_outcome(batch, 0, NO_STEP, batch->count);
}

void batch_refuse(struct batch *batch, uint16_t status) {
    batch->bulk_allowed = true;
    batch->reply.size = 0;
    batch->detail = 0;
    write_outcome(batch, status, NO_STEP, 0);
}

void batch_free(struct batch *batch) {
    for (unsigned index = 0; index < batch->opened_count; index++)
        handle_drop(batch->opened[index]);
    free(batch->opened);
    free(batch->detached);
    free(batch->steps);
    free(batch->undos);
    free(batch->results);
    free(batch->message);
    buffer_free(&batch->reply);
    free(batch);
}

void put_opened(struct batch *batch, struct handle *handle) {
    if (batch->opened_count == batch->opened_capacity) {
        batch->opened_capacity = batch->opened_capacity ? batch->opened_capacity * 2 : 4;
        batch->opened = realloc(batch->opened, batch->opened_capacity * sizeof *batch->opened);
        if (!batch->opened)
            abort();
    }
    batch->opened[batch->opened_count++] = handle;
    batch->results[batch->current].handle = handle->number;
    if (handle->kind != HANDLE_FILE && handle->kind != HANDLE_WALK)
        batch->bulk_allowed = false;
    put_u64(&batch->reply, handle->number);
}

int slice_to_path(struct slice slice, struct path_text *into) {
    if (slice.size >= sizeof into->text)
        return ENAMETOOLONG;
    if (slice.size && memchr(slice.data, 0, slice.size))
        return EINVAL;
    if (slice.size)
        memcpy(into->text, slice.data, slice.size);
    into->text[slice.size] = 0;
    return 0;
}

static struct slice part_of(struct slice path, uint8_t part) {
    static const uint8_t root[] = "/", here[] = ".";
    if (part == PATH_WHOLE)
        return path;
    while (path.size > 1 && path.data[path.size - 1] == '/')
        path.size--;
    if (path.size == 1 && path.data[0] == '/')
        return part == PATH_PARENT ? (struct slice){root, 1} : (struct slice){here, 1};
    size_t name = path.size;
    while (name > 0 && path.data[name - 1] != '/')
        name--;
    if (part == PATH_NAME)
        return (struct slice){path.data + name, path.size - name};
    if (name == 0)
        return (struct slice){here, 1};
    while (name > 1 && path.data[name - 1] == '/')
        name--;
    return (struct slice){path.data, name};
}

int resolve_path(struct batch *batch, const struct path_field *field, struct path_text *into) {
    if (field->tag == PATH_BYTES)
        return slice_to_path(field->bytes, into);
    const struct result *result = &batch->results[field->step];
    if (result->status != 0)
        return ENOENT;
    /* The value is `bytes`: its length is in front. */
    struct slice path = {batch->reply.data + result->at + 4, result->size - 4};
    return slice_to_path(part_of(path, field->tag), into);
}

int resolve_handle(struct batch *batch, const struct handle_field *field, struct handle **handle) {
    uint64_t number = field->number;
    if (field->tag == TAG_STEP) {
        const struct result *result = &batch->results[field->step];
        number = result->status == 0 ? result->handle : 0;
    }
    *handle = handle_get(number);
    return *handle ? 0 : EBADF;
}

int resolve_file(struct batch *batch, const struct handle_field *field, struct file **file) {
    struct handle *handle;
    int status = resolve_handle(batch, field, &handle);
    if (status != 0)
        return status;
    if (handle->kind != HANDLE_FILE) {
        handle_drop(handle);
        return EBADF;
    }
    *file = (struct file *)handle;
    return 0;
}

int resolve_base(struct batch *batch, const struct handle_field *field, struct file **file, int *fd) {
    *file = NULL;
    *fd = AT_FDCWD;
    if (field->tag == TAG_NONE)
        return 0;
    int status = resolve_file(batch, field, file);
    if (status == 0)
        *fd = (*file)->fd;
    return status;
}

void drop_file(struct file *file) {
    if (file)
        handle_drop(&file->handle);
}
