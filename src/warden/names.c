/* Steps on names: links, renames, removal, directories, search of a program. */
#include "batch.h"
#include "sys.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* One path and its base, the usual shape. */
struct place {
    struct path_text path;
    struct file *base;
    int fd;
};

static int resolve_place(struct batch *batch, const struct operation *operation, unsigned index, struct place *place) {
    int status = resolve_path(batch, &operation->paths[index], &place->path);
    return status ? status : resolve_base(batch, &operation->handles[index], &place->base, &place->fd);
}

static int finish(struct place *place, int result) {
    int status = result < 0 ? errno : 0;
    drop_file(place->base);
    return status;
}

int step_read_link(struct batch *batch, const struct operation *operation) {
    struct place place;
    char target[PATH_MAX];
    int status = resolve_place(batch, operation, 0, &place);
    if (status != 0)
        return status;
    ssize_t size = readlinkat(place.fd, place.path.text, target, sizeof target);
    status = finish(&place, size < 0 ? -1 : 0);
    if (status == 0 && (size_t)size == sizeof target)
        status = ENAMETOOLONG;
    if (status == 0)
        put_bytes(&batch->reply, target, (size_t)size);
    return status;
}

int step_make_symlink(struct batch *batch, const struct operation *operation) {
    struct place place;
    struct path_text target;
    int status = slice_to_path(operation->data, &target);
    if (status == 0)
        status = resolve_place(batch, operation, 0, &place);
    if (status != 0)
        return status;
    return finish(&place, symlinkat(target.text, place.fd, place.path.text));
}

static int resolve_two(struct batch *batch, const struct operation *operation, struct place places[2]) {
    int status = resolve_place(batch, operation, 0, &places[0]);
    if (status != 0)
        return status;
    status = resolve_place(batch, operation, 1, &places[1]);
    if (status != 0)
        drop_file(places[0].base);
    return status;
}

int step_link(struct batch *batch, const struct operation *operation) {
    struct place places[2];
    int status = resolve_two(batch, operation, places);
    if (status != 0)
        return status;
    int result = linkat(places[0].fd, places[0].path.text, places[1].fd, places[1].path.text, 0);
    status = finish(&places[0], result);
    drop_file(places[1].base);
    return status;
}

int step_rename(struct batch *batch, const struct operation *operation) {
    struct place places[2];
    if (operation->numbers[0] > 2)
        return EINVAL;
    int status = resolve_two(batch, operation, places);
    if (status != 0)
        return status;
    unsigned how = (unsigned)operation->numbers[0]; /* RENAME_NOREPLACE is 1, RENAME_EXCHANGE is 2 */
    int result = how == 0 ? renameat(places[0].fd, places[0].path.text, places[1].fd, places[1].path.text)
                          : sys_renameat2(places[0].fd, places[0].path.text, places[1].fd, places[1].path.text, how);
    status = finish(&places[0], result);
    drop_file(places[1].base);
    return status;
}

int step_unlink(struct batch *batch, const struct operation *operation) {
    struct place place;
    int status = resolve_place(batch, operation, 0, &place);
    return status ? status : finish(&place, unlinkat(place.fd, place.path.text, 0));
}

int step_make_directory(struct batch *batch, const struct operation *operation) {
    struct place place;
    if (operation->numbers[0] & ~07777ull)
        return EINVAL;
    int status = resolve_place(batch, operation, 0, &place);
    return status ? status : finish(&place, mkdirat(place.fd, place.path.text, (mode_t)operation->numbers[0]));
}

int step_remove_directory(struct batch *batch, const struct operation *operation) {
    struct place place;
    int status = resolve_place(batch, operation, 0, &place);
    return status ? status : finish(&place, unlinkat(place.fd, place.path.text, AT_REMOVEDIR));
}

static int executable(const char *path, bool *exists) {
    struct stat stat;
    *exists = fstatat(AT_FDCWD, path, &stat, 0) == 0;
    if (!*exists)
        return errno;
    if (!S_ISREG(stat.st_mode))
        return EACCES;
    /* For root access(2) says yes when anybody may execute it, as execve(2) does. */
    return faccessat(AT_FDCWD, path, X_OK, AT_EACCESS) < 0 ? errno : 0;
}

int step_find_executable(struct batch *batch, const struct operation *operation) {
    struct slice name = operation->data;
    struct path_text path;
    bool exists;
    if (name.size == 0)
        return ENOENT;
    if (memchr(name.data, '/', name.size)) {
        int status = slice_to_path(name, &path);
        if (status == 0)
            status = executable(path.text, &exists);
        if (status == 0)
            put_bytes(&batch->reply, name.data, name.size);
        return status == ENOTDIR ? ENOENT : status;
    }
    int result = ENOENT;
    struct cursor directories = {operation->lists[0].raw.data,
                                 operation->lists[0].raw.data + operation->lists[0].raw.size, false};
    for (uint32_t index = 0; index < operation->lists[0].count; index++) {
        struct slice directory = take_bytes(&directories);
        if (directory.size == 0 || directory.size + 1 + name.size >= sizeof path.text)
            continue;
        memcpy(path.text, directory.data, directory.size);
        size_t size = directory.size;
        if (path.text[size - 1] != '/')
            path.text[size++] = '/';
        memcpy(path.text + size, name.data, name.size);
        size += name.size;
        path.text[size] = 0;
        if (memchr(path.text, 0, size))
            return EINVAL;
        int status = executable(path.text, &exists);
        if (status == 0) {
            put_bytes(&batch->reply, path.text, size);
            return 0;
        }
        if (exists) /* what lies in a directory that cannot be searched is not there for anybody here */
            result = EACCES;
    }
    return result;
}
