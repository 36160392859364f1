/* Walking a tree. One directory is open at a time; those found wait as paths, the last found first. */
#include "batch.h"
#include "listing.h"
#include "sys.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAGE_BYTES (1024u * 1024u)

struct pending {
    struct pending *next;
    uint32_t depth;
    size_t size;
    char path[]; /* relative to the start; empty for the start itself */
};

struct walk {
    struct handle handle;
    pthread_mutex_t mutex;
    int root;
    int directory; /* being read, -1 between two */
    struct pending *current;
    struct pending *pending;
    struct listing *listing;
    uint32_t max_depth;
    uint32_t prune_count;
    uint8_t *prune; /* list of bytes */
    size_t prune_size;
};

static void walk_destroy(struct handle *handle) {
    struct walk *walk = (struct walk *)handle;
    while (walk->pending) {
        struct pending *next = walk->pending->next;
        free(walk->pending);
        walk->pending = next;
    }
    free(walk->current);
    listing_free(walk->listing);
    free(walk->prune);
    if (walk->directory >= 0)
        close(walk->directory);
    close(walk->root);
    pthread_mutex_destroy(&walk->mutex);
    free(walk);
}

static int push(struct walk *walk, const char *path, size_t size, uint32_t depth) {
    struct pending *pending = malloc(sizeof *pending + size + 1);
    if (!pending)
        return ENOMEM;
    pending->depth = depth;
    pending->size = size;
    if (size)
        memcpy(pending->path, path, size);
    pending->path[size] = 0;
    pending->next = walk->pending;
    walk->pending = pending;
    return 0;
}

int step_open_walk(struct batch *batch, const struct operation *operation) {
    struct path_text path;
    struct file *base;
    int base_fd;
    int status = resolve_path(batch, &operation->paths[0], &path);
    if (status == 0)
        status = resolve_base(batch, &operation->handles[0], &base, &base_fd);
    if (status != 0)
        return status;
    int root = openat(base_fd, path.text, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    status = root < 0 ? errno : 0;
    drop_file(base);
    if (status != 0)
        return status == ELOOP ? ENOTDIR : status;
    struct walk *walk = calloc(1, sizeof *walk);
    if (!walk)
        abort();
    walk->root = root;
    walk->directory = -1;
    walk->max_depth = (uint32_t)operation->numbers[0];
    walk->prune_count = operation->lists[0].count;
    walk->prune_size = operation->lists[0].raw.size;
    walk->prune = malloc(walk->prune_size + 1);
    walk->listing = listing_new();
    pthread_mutex_init(&walk->mutex, NULL);
    if (!walk->prune || !walk->listing || push(walk, "", 0, 0) != 0)
        abort();
    memcpy(walk->prune, operation->lists[0].raw.data, walk->prune_size);
    put_opened(batch, handle_register(&walk->handle, HANDLE_WALK, walk_destroy));
    return 0;
}

static bool pruned(const struct walk *walk, const char *name) {
    struct cursor cursor = {walk->prune, walk->prune + walk->prune_size, false};
    size_t size = strlen(name);
    for (uint32_t index = 0; index < walk->prune_count; index++) {
        struct slice slice = take_bytes(&cursor);
        if (slice.size == size && memcmp(slice.data, name, size) == 0)
            return true;
    }
    return false;
}

/* Component by component, following no link, where openat2(2) does not exist. */
static int open_stepwise(int root, const char *path) {
    int directory = root;
    while (*path) {
        char name[NAME_MAX + 1];
        size_t size = strcspn(path, "/");
        if (size > NAME_MAX) {
            errno = ENAMETOOLONG;
            size = 0;
        }
        memcpy(name, path, size);
        name[size] = 0;
        int next = size ? openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK) : -1;
        int error = errno;
        if (directory != root)
            close(directory);
        errno = error;
        if (next < 0)
            return -1;
        directory = next;
        path += size;
        while (*path == '/')
            path++;
    }
    return directory;
}

static int open_below(struct walk *walk, const struct pending *pending) {
    if (pending->size == 0)
        return fcntl(walk->root, F_DUPFD_CLOEXEC, 3);
    struct open_request request = {
        .flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK,
        .resolve = RESOLVE_BENEATH_BIT | RESOLVE_NO_SYMLINKS_BIT,
    };
    int fd = RETRY(sys_openat2(walk->root, pending->path, &request, sizeof request));
    if (fd < 0 && (errno == ENOSYS || errno == EPERM || errno == EAGAIN || errno == ENAMETOOLONG))
        fd = open_stepwise(walk->root, pending->path);
    return fd;
}

/* A directory to read, or none left. An error is reported and passed over. */
static bool next_directory(struct walk *walk, struct buffer *errors, uint32_t *error_count) {
    while (walk->pending) {
        free(walk->current);
        walk->current = walk->pending;
        walk->pending = walk->current->next;
        walk->directory = open_below(walk, walk->current);
        if (walk->directory >= 0) {
            walk->listing->at = walk->listing->size = 0;
            walk->listing->end = 0;
            return true;
        }
        if (errno == ENOENT && walk->current->size > 0)
            continue; /* vanished */
        put_bytes(errors, walk->current->path, walk->current->size);
        put_u16(errors, (uint16_t)errno);
        ++*error_count;
    }
    return false;
}

/* Reports one entry and remembers it when it is to be entered. */
static int visit(struct walk *walk, struct buffer *reply, const char *name, unsigned char type, uint32_t *count) {
    size_t name_size = strlen(name), size = walk->current->size;
    char *path = malloc(size + 1 + name_size + 1);
    mode_t mode;
    if (!path)
        return ENOMEM;
    memcpy(path, walk->current->path, size);
    if (size)
        path[size++] = '/';
    memcpy(path + size, name, name_size + 1);
    size += name_size;
    int status = 0;
    uint32_t depth = walk->current->depth + 1;
    if (put_entry(reply, walk->directory, name, type, path, size, &mode)) {
        ++*count;
        if (S_ISDIR(mode) && (walk->max_depth == 0 || depth < walk->max_depth) && !pruned(walk, name))
            status = push(walk, path, size, depth);
    }
    free(path);
    return status;
}

int step_read_walk(struct batch *batch, const struct operation *operation) {
    struct handle *handle;
    uint64_t limit = operation->numbers[0];
    if (limit == 0)
        return EINVAL;
    if (limit > MAX_LIST)
        limit = MAX_LIST;
    int status = resolve_handle(batch, &operation->handles[0], &handle);
    if (status != 0)
        return status;
    if (handle->kind != HANDLE_WALK) {
        handle_drop(handle);
        return EBADF;
    }
    struct walk *walk = (struct walk *)handle;
    struct buffer *reply = &batch->reply;
    struct buffer errors = {.limit = MAX_MESSAGE};
    size_t start = reply->size;
    uint32_t count = 0, error_count = 0;
    put_u8(reply, 0);
    put_u32(reply, 0);
    pthread_mutex_lock(&walk->mutex);
    bool end = false;
    while (status == 0 && count + error_count < limit && reply->size - start + errors.size < PAGE_BYTES &&
           !batch_cancelled(batch)) {
        if (walk->directory < 0 && !next_directory(walk, &errors, &error_count)) {
            end = true;
            break;
        }
        const char *name;
        unsigned char type;
        int more = listing_next(walk->listing, walk->directory, &name, &type);
        if (more > 0) {
            status = visit(walk, reply, name, type, &count);
            continue;
        }
        if (more < 0 && errno != ENOENT) {
            put_bytes(&errors, walk->current->path, walk->current->size);
            put_u16(&errors, (uint16_t)errno);
            error_count++;
        }
        close(walk->directory);
        walk->directory = -1;
    }
    pthread_mutex_unlock(&walk->mutex);
    handle_drop(handle);
    if (status == 0 && !reply->failed) {
        reply->data[start] = end;
        patch_u32(reply, start + 1, count);
        put_u32(reply, error_count);
        put_raw(reply, errors.data, errors.size);
    }
    buffer_free(&errors);
    return status;
}
