/* RealPath: the canonical form of a path, also of one whose end does not exist yet. */
#include "batch.h"
#include "sys.h"

#include <string.h>
#include <unistd.h>

#define MOST_LINKS 40

struct resolution {
    char done[PATH_MAX]; /* canonical, absolute */
    size_t done_size;
    char rest[PATH_MAX * 2]; /* to do */
    int links;
    bool missing; /* nothing behind `done` exists */
};

static int append(struct resolution *state, const char *name, size_t size) {
    bool slash = state->done_size > 1;
    if (state->done_size + slash + size >= sizeof state->done)
        return ENAMETOOLONG;
    if (slash)
        state->done[state->done_size++] = '/';
    memcpy(state->done + state->done_size, name, size);
    state->done_size += size;
    state->done[state->done_size] = 0;
    return 0;
}

static void remove_last(struct resolution *state) {
    while (state->done_size > 1 && state->done[state->done_size - 1] != '/')
        state->done_size--;
    if (state->done_size > 1)
        state->done_size--;
    state->done[state->done_size] = 0;
}

static int follow(struct resolution *state, const char *rest) {
    char target[PATH_MAX];
    if (++state->links > MOST_LINKS)
        return ELOOP;
    ssize_t size = readlink(state->done, target, sizeof target);
    if (size < 0)
        return errno;
    if (size == 0)
        return ENOENT;
    size_t rest_size = strlen(rest);
    if ((size_t)size + rest_size >= PATH_MAX)
        return ENAMETOOLONG;
    /* `rest` lies inside state->rest, behind the name just taken. */
    memmove(state->rest + size, rest, rest_size + 1); /* empty, or begins with a slash */
    memcpy(state->rest, target, (size_t)size);
    if (target[0] == '/') {
        state->done_size = 1;
        state->done[1] = 0;
    } else {
        remove_last(state);
    }
    return 0;
}

static int advance(struct resolution *state, bool missing_ok) {
    char *name = state->rest;
    while (*name == '/')
        name++;
    size_t size = strcspn(name, "/");
    char *rest = name + size;
    if (size == 0) {
        state->rest[0] = 0;
        return 0;
    }
    int status = 0;
    if (size == 1 && name[0] == '.') {
        /* nothing */
    } else if (size == 2 && name[0] == '.' && name[1] == '.') {
        remove_last(state);
        state->missing = false; /* may be back where things exist; harmless when not */
    } else {
        if (size > NAME_MAX)
            return ENAMETOOLONG;
        status = append(state, name, size);
        if (status != 0)
            return status;
        struct stat stat;
        if (!state->missing && lstat(state->done, &stat) < 0) {
            if (errno != ENOENT || !missing_ok)
                return errno;
            state->missing = true;
        }
        if (!state->missing && S_ISLNK(stat.st_mode))
            return follow(state, rest);
        if (!state->missing && !S_ISDIR(stat.st_mode) && rest[0] == '/')
            return ENOTDIR;
    }
    memmove(state->rest, rest, strlen(rest) + 1);
    return 0;
}

int step_real_path(struct batch *batch, const struct operation *operation) {
    struct path_text path;
    struct resolution state = {.done = "/", .done_size = 1};
    bool missing_ok = operation->numbers[0] != 0;
    int status = resolve_path(batch, &operation->paths[0], &path);
    if (status != 0)
        return status;
    if (path.text[0] == 0)
        return ENOENT;
    if (path.text[0] != '/') {
        if (!getcwd(state.done, sizeof state.done))
            return errno;
        state.done_size = strlen(state.done);
    }
    memcpy(state.rest, path.text, strlen(path.text) + 1);
    while (state.rest[0]) {
        status = advance(&state, missing_ok);
        if (status != 0)
            return status;
    }
    put_bytes(&batch->reply, state.done, state.done_size);
    return 0;
}
