#include "covers.h"

#include "loop.h"
#include "protocol.h"
#include "sys.h"
#include "world.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIRST_KEPT 10 /* below this everything is closed when the warden starts */
#define LOOK_MS 100
#define NAMES_CHANGE (IN_CREATE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE)

struct cover {
    char *path;
    bool seen; /* else something else lies over it */
    dev_t device;
    ino_t inode;
};

static struct cover *covers;
static size_t count;
static int table = -1; /* of mounts: polls as exceptional when one of them comes or goes, as with what is removed */
static int names = -1; /* inotify(7): of what is renamed the mount goes along, and the table stays as it is */

void covers_add(struct slice path) {
    struct cover *more = realloc(covers, (count + 1) * sizeof *covers);
    char *text = strndup((const char *)path.data, path.size);
    if (!more || !text)
        abort();
    covers = more;
    covers[count++] = (struct cover){.path = text};
}

static bool look(const char *path, struct stat *found) {
    return fstatat(AT_FDCWD, path, found, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) == 0;
}

static int keep(int fd, int *kept) {
    if (fd < 0)
        return errno;
    *kept = fcntl(fd, F_DUPFD_CLOEXEC, FIRST_KEPT);
    int error = *kept < 0 ? errno : 0;
    close(fd);
    return error;
}

/* Every directory on the way. One that is watched already is not watched twice; who may not read one may not be told. */
static void watch_names(void) {
    for (size_t index = 0; index < count; index++)
        for (char *at = strchr(covers[index].path, '/'); at; at = strchr(at + 1, '/')) {
            char after = at[1];
            at[1] = 0;
            (void)inotify_add_watch(names, covers[index].path, NAMES_CHANGE | IN_ONLYDIR | IN_DONT_FOLLOW);
            at[1] = after;
        }
}

int covers_remember(void) {
    struct stat found;
    if (count == 0)
        return 0;
    int error = keep(open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC), &table);
    /* A user has few of these. Without one we look from time to time. */
    (void)keep(inotify_init1(IN_CLOEXEC | IN_NONBLOCK), &names);
    for (size_t index = 0; index < count; index++) {
        struct cover *cover = &covers[index];
        cover->seen = look(cover->path, &found);
        if (cover->seen) {
            cover->device = found.st_dev;
            cover->inode = found.st_ino;
        }
    }
    return error;
}

/* Nothing at all hides as well. */
static bool all_hidden(void) {
    struct stat found;
    for (size_t index = 0; index < count; index++) {
        const struct cover *cover = &covers[index];
        if (cover->seen && look(cover->path, &found) &&
            (found.st_dev != cover->device || found.st_ino != cover->inode))
            return false;
    }
    return true;
}

static void on_change(struct source *source, uint32_t events) {
    (void)source, (void)events;
    char told[4096];
    while (names >= 0 && RETRY(read(names, told, sizeof told)) > 0)
        ;
    if (names >= 0)
        watch_names(); /* a directory may have come in the place of another; what was made in it before is seen now */
    if (all_hidden())
        return;
    if (getpid() == 1)
        kill(-1, SIGKILL); /* before they look */
    world_end(ENDING_UNCOVERED, "what it hides was replaced from outside", 0);
}

int covers_tick(void) {
    if (table < 0 || names >= 0)
        return -1;
    on_change(NULL, 0);
    return LOOK_MS;
}

void covers_watch(void) {
    static struct source source = {.ready = on_change};
    if (table < 0)
        return;
    loop_add(table, EPOLLPRI, &source);
    if (names >= 0)
        loop_add(names, EPOLLIN, &source);
    on_change(&source, 0); /* what came before */
}
