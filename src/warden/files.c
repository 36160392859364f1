/* Steps on open files: open, read, write, copy, lock. */
#include "batch.h"
#include "sys.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#define COPY_PIECE (8u * 1024u * 1024u)

/* An interrupted call is made again, unless the interruption means that the batch was cancelled. */
#define UNLESS_CANCELLED(batch, expression)                                                                            \
    ({                                                                                                                 \
        __typeof__(expression) retry_result;                                                                           \
        do                                                                                                             \
            retry_result = (expression);                                                                               \
        while (retry_result == -1 && errno == EINTR && !batch_cancelled(batch));                                       \
        retry_result;                                                                                                  \
    })

static int kernel_flags(uint64_t flags) {
    int result = O_CLOEXEC | O_NOCTTY | O_NONBLOCK | O_LARGEFILE;
    if (flags & OPEN_PATH_ONLY) /* open(2): other flags are ignored; openat2(2): refused */
        result = O_PATH | O_CLOEXEC;
    else if ((flags & OPEN_WRITE) && (flags & OPEN_READ))
        result |= O_RDWR;
    else if (flags & OPEN_WRITE)
        result |= O_WRONLY;
    if (!(flags & OPEN_PATH_ONLY)) {
        if (flags & OPEN_CREATE)
            result |= O_CREAT;
        if (flags & OPEN_EXCLUSIVE)
            result |= O_EXCL;
        if (flags & OPEN_TRUNCATE)
            result |= O_TRUNC;
        if (flags & OPEN_APPEND)
            result |= O_APPEND;
    }
    if (flags & OPEN_DIRECTORY)
        result |= O_DIRECTORY;
    if (flags & OPEN_NO_FOLLOW)
        result |= O_NOFOLLOW;
    return result;
}

int step_open(struct batch *batch, const struct operation *operation) {
    uint64_t flags = operation->numbers[0];
    mode_t mode = (mode_t)operation->numbers[1];
    struct path_text path;
    struct file *base;
    int base_fd;
    if (flags & ~(uint64_t)OPEN_ALL || mode & ~07777u)
        return EINVAL;
    int status = resolve_path(batch, &operation->paths[0], &path);
    if (status == 0)
        status = resolve_base(batch, &operation->handles[0], &base, &base_fd);
    if (status != 0)
        return status;
    int fd;
    if (flags & (OPEN_BENEATH | OPEN_NO_SYMLINKS)) {
        struct open_request request = {.flags = (uint64_t)kernel_flags(flags)};
        if (request.flags & O_CREAT)
            request.mode = mode;
        if (flags & OPEN_BENEATH)
            request.resolve |= RESOLVE_BENEATH_BIT | RESOLVE_NO_MAGICLINKS_BIT;
        if (flags & OPEN_NO_SYMLINKS)
            request.resolve |= RESOLVE_NO_SYMLINKS_BIT;
        /* EAGAIN: something was renamed meanwhile, and the kernel could not prove that the path stayed beneath. */
        int attempts = 32;
        do
            fd = UNLESS_CANCELLED(batch, sys_openat2(base_fd, path.text, &request, sizeof request));
        while (fd < 0 && errno == EAGAIN && --attempts > 0);
    } else {
        fd = UNLESS_CANCELLED(batch, openat(base_fd, path.text, kernel_flags(flags), mode));
    }
    status = fd < 0 ? errno : 0;
    drop_file(base);
    if (status == 0)
        put_opened(batch, file_register(fd));
    return status;
}

static void remove_handle(struct handle *handle) {
    if (handle_remove(handle->number))
        handle_drop(handle);
}

int step_close(struct batch *batch, const struct operation *operation) {
    struct handle *handle;
    int status = resolve_handle(batch, &operation->handles[0], &handle);
    if (status != 0)
        return status;
    if (handle->kind == HANDLE_PROCESS) {
        handle_drop(handle);
        return EBADF;
    }
    if (handle->kind == HANDLE_FILE || handle->kind == HANDLE_WALK) {
        remove_handle(handle);
        handle_drop(handle);
        return 0;
    }
    /* The loop has to let go of it first. */
    struct handle **grown = realloc(batch->detached, (batch->detached_count + 1) * sizeof(struct handle *));
    if (!grown) {
        handle_drop(handle);
        return ENOMEM;
    }
    batch->detached = grown;
    if (handle_remove(handle->number))
        batch->detached[batch->detached_count++] = handle;
    handle_drop(handle);
    return 0;
}

/* Into the reply, as `bytes`. `offset` -1: from the position. */
static int read_into_reply(struct batch *batch, int fd, int64_t offset, size_t size, size_t *got) {
    struct buffer *reply = &batch->reply;
    size_t length_at = reply->size;
    *got = 0;
    put_u32(reply, 0);
    while (*got < size) {
        /* Small files need no room of a megabyte. */
        size_t piece = size - *got, most = *got < 65536 ? 65536 : 1024 * 1024;
        if (piece > most)
            piece = most;
        if (!buffer_reserve(reply, piece))
            return ENOMEM;
        uint8_t *at = reply->data + reply->size;
        ssize_t count = UNLESS_CANCELLED(
            batch, offset < 0 ? read(fd, at, piece) : pread(fd, at, piece, (off_t)((uint64_t)offset + *got)));
        if (count < 0) {
            if (errno == EAGAIN && *got > 0)
                break;
            return errno;
        }
        if (count == 0)
            break;
        reply->size += (size_t)count;
        *got += (size_t)count;
    }
    patch_u32(reply, length_at, (uint32_t)*got);
    return 0;
}

int step_read(struct batch *batch, const struct operation *operation) {
    struct file *file;
    size_t size = operation->numbers[0], got;
    if (size > MAX_TRANSFER)
        return EINVAL;
    int status = resolve_file(batch, &operation->handles[0], &file);
    if (status != 0)
        return status;
    status = read_into_reply(batch, file->fd, -1, size, &got);
    if (status == 0 && operation->numbers[1] && got < size)
        remove_handle(&file->handle);
    drop_file(file);
    return status;
}

int step_read_at(struct batch *batch, const struct operation *operation) {
    struct file *file;
    uint64_t offset = operation->numbers[0];
    size_t size = operation->numbers[1], got;
    if (size > MAX_TRANSFER || offset > INT64_MAX)
        return EINVAL;
    int status = resolve_file(batch, &operation->handles[0], &file);
    if (status != 0)
        return status;
    status = read_into_reply(batch, file->fd, (int64_t)offset, size, &got);
    drop_file(file);
    return status;
}

int step_write(struct batch *batch, const struct operation *operation) {
    struct file *file;
    struct slice data = operation->data;
    if (data.size > MAX_TRANSFER)
        return EINVAL;
    int status = resolve_file(batch, &operation->handles[0], &file);
    if (status != 0)
        return status;
    do {
        ssize_t count = UNLESS_CANCELLED(batch, write(file->fd, data.data, data.size));
        if (count < 0) {
            status = errno;
            break;
        }
        data.data += count;
        data.size -= (size_t)count;
    } while (data.size > 0);
    drop_file(file);
    return status;
}

int step_seek(struct batch *batch, const struct operation *operation) {
    struct file *file;
    uint64_t whence = operation->numbers[1];
    if (whence > 2)
        return EINVAL;
    int status = resolve_file(batch, &operation->handles[0], &file);
    if (status != 0)
        return status;
    static const int kernel_whence[] = {SEEK_SET, SEEK_CUR, SEEK_END};
    off_t position = lseek(file->fd, (off_t)operation->numbers[0], kernel_whence[whence]);
    status = position < 0 ? errno : 0;
    put_u64(&batch->reply, (uint64_t)position);
    drop_file(file);
    return status;
}

int step_sync(struct batch *batch, const struct operation *operation) {
    struct file *file;
    int status = resolve_file(batch, &operation->handles[0], &file);
    if (status != 0)
        return status;
    if (UNLESS_CANCELLED(batch, fsync(file->fd)) < 0)
        status = errno;
    drop_file(file);
    return status;
}

int step_truncate(struct batch *batch, const struct operation *operation) {
    struct file *file;
    if (operation->numbers[0] > INT64_MAX)
        return EINVAL;
    int status = resolve_file(batch, &operation->handles[0], &file);
    if (status != 0)
        return status;
    if (UNLESS_CANCELLED(batch, ftruncate(file->fd, (off_t)operation->numbers[0])) < 0)
        status = errno;
    drop_file(file);
    return status;
}

int step_lock(struct batch *batch, const struct operation *operation) {
    static const int modes[] = {LOCK_UN, LOCK_SH | LOCK_NB, LOCK_EX | LOCK_NB};
    struct file *file;
    if (operation->numbers[0] > 2)
        return EINVAL;
    int status = resolve_file(batch, &operation->handles[0], &file);
    if (status != 0)
        return status;
    if (flock(file->fd, modes[operation->numbers[0]]) < 0)
        status = errno;
    drop_file(file);
    return status;
}

static ssize_t copy_by_hand(struct batch *batch, int source, int target, size_t size) {
    enum { PIECE = 64 * 1024 };
    uint8_t *piece = malloc(PIECE);
    if (!piece) {
        errno = ENOMEM;
        return -1;
    }
    ssize_t count = UNLESS_CANCELLED(batch, read(source, piece, size < PIECE ? size : PIECE));
    ssize_t written = 0;
    while (written < count) {
        ssize_t step = UNLESS_CANCELLED(batch, write(target, piece + written, (size_t)(count - written)));
        if (step < 0) {
            count = -1;
            break;
        }
        written += step;
    }
    int error = errno;
    free(piece);
    errno = error;
    return count;
}

int step_copy_range(struct batch *batch, const struct operation *operation) {
    struct file *source, *target = NULL;
    uint64_t size = operation->numbers[0], copied = 0;
    int status = resolve_file(batch, &operation->handles[0], &source);
    if (status != 0)
        return status;
    status = resolve_file(batch, &operation->handles[1], &target);
    bool by_hand = false;
    while (status == 0 && copied < size) {
        size_t piece = size - copied < COPY_PIECE ? (size_t)(size - copied) : COPY_PIECE;
        ssize_t count = -1;
        if (batch_cancelled(batch)) {
            status = ECANCELED;
            break;
        }
        if (!by_hand) {
            count = sys_copy_file_range(source->fd, target->fd, piece);
            /* 0: procfs and the like pretend to be empty for it. Whatever it cannot do, plain reading may. */
            by_hand = count <= 0;
        }
        if (by_hand)
            count = copy_by_hand(batch, source->fd, target->fd, piece);
        if (count < 0)
            status = errno;
        if (count <= 0)
            break;
        copied += (uint64_t)count;
    }
    put_u64(&batch->reply, copied);
    drop_file(source);
    drop_file(target);
    return status;
}
