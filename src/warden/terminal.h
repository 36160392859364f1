/* Terminals, allocated by the warden: a locked-in program could not. */
#ifndef WARDEN_TERMINAL_H
#define WARDEN_TERMINAL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* 0, or an errno. The size is set before anybody sees it. */
int terminal_open(uint16_t rows, uint16_t columns, int *master, int *slave);
int terminal_resize(int master, uint16_t rows, uint16_t columns);
/* 0 when there is none. */
pid_t terminal_foreground(int master);
/* Number of the device of the slave. */
dev_t terminal_device(int master);

/* Whether a thread of a process of the group is proven to be blocked reading the terminal. */
bool waits_for_input(pid_t group, pid_t supervisor, dev_t device);

#endif
