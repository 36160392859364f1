#include "terminal.h"

#include "sys.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <termios.h>
#include <unistd.h>

#ifndef TIOCGPTPEER
#define TIOCGPTPEER 0x5441
#endif

/* ioctl(2) takes its number as an int in one library and as an unsigned long in the other. */
static int control(int fd, unsigned long request, void *argument) {
    return (int)syscall(SYS_ioctl, fd, request, argument);
}

int terminal_open(uint16_t rows, uint16_t columns, int *master, int *slave) {
    int lock = 0;
    struct winsize size = {.ws_row = rows, .ws_col = columns};
    *slave = -1;
    *master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (*master < 0)
        *master = open("/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (*master < 0)
        return errno;
    if (control(*master, TIOCSPTLCK, &lock) == 0 && control(*master, TIOCSWINSZ, &size) == 0) {
        /* Without a path, which might lead into another mount of devpts. */
        *slave = (int)syscall(SYS_ioctl, *master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
        if (*slave < 0 && (errno == EINVAL || errno == ENOTTY)) {
            unsigned number;
            char path[32];
            if (control(*master, TIOCGPTN, &number) == 0) {
                snprintf(path, sizeof path, "/dev/pts/%u", number);
                *slave = open(path, O_RDWR | O_NOCTTY | O_CLOEXEC);
            }
        }
    }
    if (*slave >= 0)
        return 0;
    int error = errno;
    close(*master);
    *master = -1;
    return error;
}

int terminal_resize(int master, uint16_t rows, uint16_t columns) {
    struct winsize size = {.ws_row = rows, .ws_col = columns};
    return control(master, TIOCSWINSZ, &size) < 0 ? errno : 0;
}

pid_t terminal_foreground(int master) {
    pid_t group = 0;
    if (control(master, TIOCGPGRP, &group) < 0 || group < 0)
        return 0;
    return group;
}

dev_t terminal_device(int master) {
    unsigned number;
    if (control(master, TIOCGPTN, &number) < 0)
        return 0;
    /* devpts: major 136 to 143, 20 bits of minor in all. */
    char path[32];
    struct stat stat_buffer;
    snprintf(path, sizeof path, "/dev/pts/%u", number);
    if (stat(path, &stat_buffer) < 0)
        return 0;
    return stat_buffer.st_rdev;
}
