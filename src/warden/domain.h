/* The process that forks for programs where all of them are in one Landlock domain (lock_has_domain): a domain is had by
 * making it or from a parent, and neither the warden nor any thread of it may be in that of programs. */
#ifndef WARDEN_DOMAIN_H
#define WARDEN_DOMAIN_H

#include <stdbool.h>
#include <sys/types.h>

/* By the thread that forks, which has the same memory, descriptors and, while it waits, C library. -1 with errno. */
int domain_start(void);
/* As sys_fork, but the child, which is one of the warden, runs `main`. EAGAIN when a program has ended the process meanwhile. */
pid_t domain_fork(void (*main)(void *argument, const int *fds), void *argument, const int *fds);

/* Of the loop. Whether it is that process; also when it was stopped, or reaped. */
bool domain_is(pid_t process);
bool domain_stopped(pid_t process);
void domain_ended(pid_t process);

#endif
