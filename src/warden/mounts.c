#include "mounts.h"

#include "sys.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Shared by all architectures. */
#define NR_OPEN_TREE 428
#define NR_MOVE_MOUNT 429
#define NR_FSOPEN 430
#define NR_FSCONFIG 431
#define NR_FSMOUNT 432
#define NR_MOUNT_SETATTR 442

#define TREE_CLONE 1u
#define RECURSIVE 0x8000u
#define EMPTY_PATH 0x1000u
#define FROM_EMPTY_PATH 0x04u
#define TO_EMPTY_PATH 0x40u
#define CONTEXT_CLOEXEC 1u
#define CONFIG_FLAG 0u
#define CONFIG_STRING 1u
#define CONFIG_CREATE 6u

/* struct mount_attr of mount_setattr(2). */
struct mount_attributes {
    uint64_t set;
    uint64_t clear;
    uint64_t propagation;
    uint64_t user_namespace;
};

/* Its size was checked when the plan was decoded. */
static const char *text_of(struct slice slice, char into[PATH_MAX]) {
    if (slice.size)
        memcpy(into, slice.data, slice.size);
    into[slice.size] = 0;
    return into;
}

int mounts_pin(struct slice path, bool directory) {
    char text[PATH_MAX];
    struct open_request request = {
        .flags = O_PATH | O_CLOEXEC | (directory ? O_DIRECTORY : 0u),
        .resolve = RESOLVE_NO_SYMLINKS_BIT | RESOLVE_NO_MAGICLINKS_BIT,
    };
    return sys_openat2(AT_FDCWD, text_of(path, text), &request, sizeof request);
}

int mounts_make_private(void) { return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL); }

int mounts_clone_tree(int pin) {
    return (int)syscall(NR_OPEN_TREE, pin, "", TREE_CLONE | O_CLOEXEC | RECURSIVE | EMPTY_PATH);
}

int mounts_set_attributes(int tree, uint64_t attributes) {
    struct mount_attributes change = {.set = attributes};
    bool whole = tree < 0;
    return (int)syscall(NR_MOUNT_SETATTR, whole ? AT_FDCWD : tree, whole ? "/" : "",
                        RECURSIVE | (whole ? 0u : EMPTY_PATH), &change, sizeof change);
}

int mounts_attach(int tree, int pin) {
    return (int)syscall(NR_MOVE_MOUNT, tree, "", pin, "", FROM_EMPTY_PATH | TO_EMPTY_PATH);
}

static int configure(int context, struct slice options, uint32_t count) {
    char value[PATH_MAX], key[PATH_MAX];
    struct cursor cursor = {options.data, options.data + options.size, false};
    for (uint32_t index = 0; index < count; index++) {
        text_of(take_bytes(&cursor), key);
        struct slice given = take_bytes(&cursor);
        text_of(given, value);
        if (syscall(NR_FSCONFIG, context, given.size ? CONFIG_STRING : CONFIG_FLAG, key, given.size ? value : NULL, 0) < 0)
            return -1;
    }
    return (int)syscall(NR_FSCONFIG, context, CONFIG_CREATE, NULL, NULL, 0);
}

int mounts_new(struct slice kind, struct slice options, uint32_t option_count, uint64_t attributes, int pin) {
    char name[PATH_MAX];
    int context = (int)syscall(NR_FSOPEN, text_of(kind, name), CONTEXT_CLOEXEC);
    if (context < 0)
        return -1;
    int mounted = -1, result = -1;
    if (configure(context, options, option_count) == 0)
        mounted = (int)syscall(NR_FSMOUNT, context, CONTEXT_CLOEXEC, (unsigned)attributes);
    if (mounted >= 0)
        result = mounts_attach(mounted, pin);
    int error = errno;
    close(context);
    if (mounted >= 0)
        close(mounted);
    errno = error;
    return result;
}
