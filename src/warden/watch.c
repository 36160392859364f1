#include "watch.h"

#include "batch.h"
#include "sys.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <unistd.h>

#define MASK                                                                                                           \
    (IN_CREATE | IN_DELETE | IN_MODIFY | IN_ATTRIB | IN_CLOSE_WRITE | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE_SELF |  \
     IN_MOVE_SELF | IN_ONLYDIR | IN_DONT_FOLLOW | IN_EXCL_UNLINK)

static void watch_destroy(struct handle *handle) {
    struct watch *watch = (struct watch *)handle;
    close(watch->fd);
    free(watch);
}

void watch_attach(struct watch *watch) {
    int fd = fcntl(watch->fd, F_DUPFD_CLOEXEC, 3); /* workers may still use the other one when the stream is stopped */
    if (fd < 0)
        abort();
    watch->attached = true;
    stream_start(&watch->output, &watch->handle, STREAM_WATCH, 1, fd);
}

void watch_release(struct watch *watch) { stream_stop(&watch->output); }

int step_open_watch(struct batch *batch, const struct operation *operation) {
    (void)operation;
    int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (fd < 0)
        return errno;
    struct watch *watch = calloc(1, sizeof *watch);
    if (!watch)
        abort();
    watch->fd = fd;
    put_opened(batch, handle_register(&watch->handle, HANDLE_WATCH, watch_destroy));
    return 0;
}

static int resolve_watch(struct batch *batch, const struct handle_field *field, struct watch **watch) {
    struct handle *handle;
    int status = resolve_handle(batch, field, &handle);
    if (status != 0)
        return status;
    if (handle->kind != HANDLE_WATCH) {
        handle_drop(handle);
        return EBADF;
    }
    *watch = (struct watch *)handle;
    return 0;
}

int step_add_watch(struct batch *batch, const struct operation *operation) {
    struct watch *watch;
    struct path_text path;
    struct file *base;
    int base_fd;
    int status = resolve_watch(batch, &operation->handles[0], &watch);
    if (status != 0)
        return status;
    status = resolve_path(batch, &operation->paths[0], &path);
    if (status == 0)
        status = resolve_base(batch, &operation->handles[1], &base, &base_fd);
    if (status == 0) {
        int number;
        if (base) {
            /* inotify(7) knows only paths: one through the descriptor, so that the base is what it was. */
            char through[64];
            int fd = openat(base_fd, path.text, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            snprintf(through, sizeof through, "/proc/self/fd/%d", fd);
            number = fd < 0 ? -1 : inotify_add_watch(watch->fd, through, MASK & ~(uint32_t)IN_DONT_FOLLOW);
            int error = errno;
            if (fd >= 0)
                close(fd);
            errno = error;
        } else {
            number = inotify_add_watch(watch->fd, path.text, MASK);
        }
        status = number < 0 ? errno : 0;
        put_u32(&batch->reply, (uint32_t)number);
        drop_file(base);
    }
    handle_drop(&watch->handle);
    return status;
}

int step_remove_watch(struct batch *batch, const struct operation *operation) {
    struct watch *watch;
    int status = resolve_watch(batch, &operation->handles[0], &watch);
    if (status != 0)
        return status;
    if (inotify_rm_watch(watch->fd, (int)operation->numbers[0]) < 0)
        status = errno;
    handle_drop(&watch->handle);
    return status;
}
