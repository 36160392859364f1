/* Kernel interfaces that the C libraries do not offer, or whose headers musl lacks. Numbers: asm-generic unistd.h. */
#ifndef WARDEN_SYS_H
#define WARDEN_SYS_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#define RESOLVE_NO_SYMLINKS_BIT 0x04u
#define RESOLVE_NO_MAGICLINKS_BIT 0x02u
#define RESOLVE_BENEATH_BIT 0x08u

#define CLONE_INTO_CGROUP_BIT 0x200000000ull

/* struct open_how of openat2(2). */
struct open_request {
    uint64_t flags;
    uint64_t mode;
    uint64_t resolve;
};

int sys_openat2(int base, const char *path, const struct open_request *request, size_t size);
int sys_close_range(unsigned first, unsigned last);
/* A table of descriptors of the calling thread's own. Container engines deny unshare(2) whole, so that is the second way. */
int sys_unshare_descriptors(void);
/* All descriptors but the given ones, which it sorts, and 0 to 2. Those below 3 among them may be anything. */
void close_all_but(int *kept, int count);
int sys_renameat2(int source_base, const char *source, int target_base, const char *target, unsigned flags);
int sys_pidfd_open(pid_t pid);
int sys_pidfd_send_signal(int pidfd, int number);
ssize_t sys_getdents64(int fd, void *buffer, size_t size);
ssize_t sys_copy_file_range(int source, int target, size_t size);
int sys_tgkill(pid_t group, pid_t thread, int number);
/* Version of Landlock, or its errata; 0 when there are none. */
unsigned sys_landlock(bool errata);

/* fork(2) without the handlers of the C library: the child may use async-signal-safe functions alone. */
pid_t sys_fork(void);

/* Runs `main(argument)` in a child that shares this memory and suspends this thread until it executes a program or
 * ends, as vfork(2) does, on a stack of its own. `cgroup` is a directory of cgroup v2 to start in, or -1. */
pid_t sys_vfork(int (*main)(void *), void *argument, void *stack, size_t stack_size, int cgroup);

/* Entry of getdents64(2). */
struct kernel_dirent {
    uint64_t inode;
    int64_t offset;
    uint16_t length;
    uint8_t type;
    char name[];
};

int64_t monotonic_ms(void);

#define RETRY(expression)                                                                                              \
    ({                                                                                                                 \
        __typeof__(expression) retry_result;                                                                           \
        do                                                                                                             \
            retry_result = (expression);                                                                               \
        while (retry_result == -1 && errno == EINTR);                                                                  \
        retry_result;                                                                                                  \
    })

#endif
