/* Finding the processes below one. Async-signal-safe: no allocation, no locks. */
#ifndef WARDEN_DESCEND_H
#define WARDEN_DESCEND_H

#include <stdbool.h>
#include <sys/types.h>

#define MOST_DESCENDANTS 8192

struct descendant {
    pid_t pid;
    pid_t parent;
};

struct descent {
    int count;
    struct descendant entries[MOST_DESCENDANTS];
};

/* Children of `root`, and with `deep` everything below them. Misses what is forked meanwhile. */
void descend(pid_t root, bool deep, struct descent *descent);

/* Children of `root` by a look at every process, which costs more. It misses none that is there all the while; the list
 * of children that the kernel keeps may skip one whose sibling ends as it is read (proc(5)). */
void find_children(pid_t root, struct descent *descent);

/* Signals it when it still is what was found; false when not. `root` is the caller. */
bool signal_descendant(const struct descendant *descendant, pid_t root, int number);

/* Parent of a process, state and group; false when it is gone. */
struct process_line {
    char state;
    pid_t parent;
    pid_t group;
};
bool read_process_line(pid_t pid, struct process_line *line);

/* Formats without the C library: "/proc/" pid suffix. */
void proc_path(char into[64], pid_t pid, const char *suffix);

#endif
