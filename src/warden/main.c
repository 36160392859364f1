/* The warden: executes primitive operations inside a world for a host at the other end of its standard input and
 * output. protocol.md says what it speaks. */
#include "cell.h"
#include "dispatch.h"
#include "link.h"
#include "lockdown.h"
#include "protocol.h"
#include "sys.h"
#include "targets.h"
#include "world.h"

#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/* Moves one of our two streams out of the way of what children get. */
static int move(int fd) {
    int moved = fcntl(fd, F_DUPFD_CLOEXEC, 10);
    if (moved < 0 || fcntl(moved, F_SETFL, fcntl(moved, F_GETFL) | O_NONBLOCK) < 0)
        _exit(1);
    return moved;
}

static void fill_standard(void) {
    /* 0 to 2 must be taken, or a later descriptor would land there. */
    int null = open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 2; fd++)
        if (null >= 0) {
            if (null != fd)
                dup2(null, fd);
        } else {
            close(fd);
            int ends[2];
            if (pipe(ends) < 0)
                _exit(1);
        }
    if (null > 2)
        close(null);
    if (fcntl(2, F_GETFD) < 0)
        dup2(0, 2);
}

int main(int count, char **arguments) {
    /* How it starts itself anew; nobody else has a reason to. */
    if (count == 2 && strcmp(arguments[1], "target") == 0)
        target_main();
    if (count == 2 && strcmp(arguments[1], "cell") == 0)
        cell_become();
    prctl(PR_SET_DUMPABLE, 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    (void)setsid(); /* away from the group of whoever started us; fails when we lead one */
    int in = move(0), out = move(1);
    fill_standard();
    for (unsigned fd = 3; fd < 10; fd++)
        close((int)fd);
    if (!cell_inside())
        cells_start();
    if (world_start() < 0 || RETRY(write(out, WARDEN_PREAMBLE, PREAMBLE_SIZE)) != PREAMBLE_SIZE)
        return 1;
    link_start(in, out, dispatch);
    world_greet();
    world_run();
}
