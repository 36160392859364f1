#include "listing.h"

#include "batch.h"
#include "sys.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

struct listing *listing_new(void) {
    struct listing *listing = malloc(sizeof *listing);
    if (listing) {
        listing->at = listing->size = 0;
        listing->end = 0;
    }
    return listing;
}

void listing_free(struct listing *listing) { free(listing); }

int listing_next(struct listing *listing, int directory, const char **name, unsigned char *type) {
    for (;;) {
        if (listing->at >= listing->size) {
            if (listing->end)
                return 0;
            ssize_t size = RETRY(sys_getdents64(directory, listing->entries, sizeof listing->entries));
            if (size < 0)
                return -1;
            listing->at = 0;
            listing->size = (size_t)size;
            if (size == 0) {
                listing->end = 1;
                return 0;
            }
        }
        const struct kernel_dirent *entry = (const void *)(listing->entries + listing->at);
        listing->at += entry->length;
        if (strcmp(entry->name, ".") == 0 || strcmp(entry->name, "..") == 0)
            continue;
        *name = entry->name;
        *type = entry->type;
        return 1;
    }
}

int put_entry(struct buffer *buffer, int directory, const char *name, unsigned char type, const void *path,
              size_t path_size, mode_t *mode) {
    struct stat stat;
    if (fstatat(directory, name, &stat, AT_SYMLINK_NOFOLLOW) < 0) {
        if (errno == ENOENT)
            return 0;
        memset(&stat, 0, sizeof stat);
    }
    *mode = stat.st_mode;
    put_bytes(buffer, path, path_size);
    size_t at = buffer->size;
    put_stat(buffer, &stat);
    uint16_t kind = kind_of(stat.st_mode);
    if (stat.st_mode == 0 && !buffer->failed) {
        kind = type == DT_UNKNOWN ? KIND_OTHER : kind_of((mode_t)DTTOIF(type));
        buffer->data[at] = (uint8_t)kind;
        buffer->data[at + 1] = (uint8_t)(kind >> 8);
    }
    if (kind == KIND_SYMLINK)
        kind = fstatat(directory, name, &stat, 0) < 0 ? KIND_ABSENT : kind_of(stat.st_mode);
    put_u16(buffer, kind);
    return 1;
}

int step_list_directory(struct batch *batch, const struct operation *operation) {
    struct file *file;
    uint64_t limit = operation->numbers[0];
    if (limit == 0)
        return EINVAL;
    if (limit > MAX_LIST)
        limit = MAX_LIST;
    int status = resolve_file(batch, &operation->handles[0], &file);
    if (status != 0)
        return status;
    struct buffer *reply = &batch->reply;
    size_t end_at = reply->size;
    uint32_t count = 0;
    put_u8(reply, 0);
    put_u32(reply, 0);
    pthread_mutex_lock(&file->mutex);
    if (!file->listing && !(file->listing = listing_new()))
        status = ENOMEM;
    while (status == 0 && count < limit && !batch_cancelled(batch)) {
        const char *name;
        unsigned char type;
        mode_t mode;
        int more = listing_next(file->listing, file->fd, &name, &type);
        if (more < 0)
            status = errno;
        if (more <= 0)
            break;
        count += (uint32_t)put_entry(reply, file->fd, name, type, name, strlen(name), &mode);
    }
    if (status == 0 && !reply->failed) {
        reply->data[end_at] = (uint8_t)(file->listing->end && file->listing->at >= file->listing->size);
        patch_u32(reply, end_at + 1, count);
    }
    pthread_mutex_unlock(&file->mutex);
    drop_file(file);
    return status;
}
