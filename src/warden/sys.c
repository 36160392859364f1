#include "sys.h"

#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/resource.h>
#include <limits.h>
#include <unistd.h>

/* Shared by all architectures since 5.0. */
#define NR_PIDFD_SEND_SIGNAL 424
#define NR_PIDFD_OPEN 434
#define NR_CLONE3 435
#define NR_CLOSE_RANGE 436
#define NR_OPENAT2 437
#define NR_LANDLOCK_CREATE_RULESET 444
#define UNSHARE_DESCRIPTORS 2u /* CLOSE_RANGE_UNSHARE */

int sys_openat2(int base, const char *path, const struct open_request *request, size_t size) {
    return (int)syscall(NR_OPENAT2, base, path, request, size);
}

int sys_close_range(unsigned first, unsigned last) { return (int)syscall(NR_CLOSE_RANGE, first, last, 0u); }

int sys_unshare_descriptors(void) {
    if (syscall(NR_CLOSE_RANGE, UINT32_MAX, UINT32_MAX, UNSHARE_DESCRIPTORS) == 0)
        return 0;
    return unshare(CLONE_FILES);
}

void close_all_but(int *kept, int count) {
    for (int index = 1; index < count; index++)
        for (int at = index; at > 0 && kept[at] < kept[at - 1]; at--) {
            int swap = kept[at];
            kept[at] = kept[at - 1];
            kept[at - 1] = swap;
        }
    unsigned first = 3;
    for (int index = 0; index <= count; index++) {
        unsigned until = index < count ? (unsigned)kept[index] : UINT32_MAX;
        if (index < count && kept[index] < (int)first)
            continue;
        if (until > first && sys_close_range(first, until - 1) < 0) {
            struct rlimit limit;
            getrlimit(RLIMIT_NOFILE, &limit);
            unsigned most = limit.rlim_cur < 65536 ? (unsigned)limit.rlim_cur : 65536;
            for (unsigned fd = first; fd < until && fd < most; fd++)
                close((int)fd);
        }
        first = until + 1;
    }
}

int sys_renameat2(int source_base, const char *source, int target_base, const char *target, unsigned flags) {
    return (int)syscall(SYS_renameat2, source_base, source, target_base, target, flags);
}

int sys_pidfd_open(pid_t pid) { return (int)syscall(NR_PIDFD_OPEN, pid, 0u); }

int sys_pidfd_send_signal(int pidfd, int number) {
    return (int)syscall(NR_PIDFD_SEND_SIGNAL, pidfd, number, NULL, 0u);
}

ssize_t sys_getdents64(int fd, void *buffer, size_t size) { return (ssize_t)syscall(SYS_getdents64, fd, buffer, size); }

ssize_t sys_copy_file_range(int source, int target, size_t size) {
    return (ssize_t)syscall(SYS_copy_file_range, source, NULL, target, NULL, size, 0u);
}

int sys_tgkill(pid_t group, pid_t thread, int number) { return (int)syscall(SYS_tgkill, group, thread, number); }

unsigned sys_landlock(bool errata) {
    long value = syscall(NR_LANDLOCK_CREATE_RULESET, NULL, 0ul, errata ? 2u : 1u);
    return value > 0 ? (unsigned)value : 0;
}

pid_t sys_fork(void) {
#if defined(__s390__)
#error "clone(2) takes its arguments in another order here"
#endif
    return (pid_t)syscall(SYS_clone, (long)SIGCHLD, 0L, 0L, 0L, 0L);
}

/* struct clone_args of clone3(2), first version with a cgroup. */
struct clone_request {
    uint64_t flags;
    uint64_t pidfd;
    uint64_t child_tid;
    uint64_t parent_tid;
    uint64_t exit_signal;
    uint64_t stack;
    uint64_t stack_size;
    uint64_t tls;
    uint64_t set_tid;
    uint64_t set_tid_size;
    uint64_t cgroup;
};

/* The child comes back from the call on another stack, so it must not return into the caller's frame. */
static long clone3_call(struct clone_request *request, int (*main)(void *), void *argument) {
#if defined(__x86_64__)
    long result;
    __asm__ volatile("syscall\n\t"
                     "test %%rax, %%rax\n\t"
                     "jnz 1f\n\t"
                     "xor %%ebp, %%ebp\n\t"
                     "mov %[argument], %%rdi\n\t"
                     "call *%[main]\n\t"
                     "mov %%eax, %%edi\n\t"
                     "mov %[exit], %%eax\n\t"
                     "syscall\n\t"
                     "hlt\n"
                     "1:"
                     : "=a"(result)
                     : "a"((long)NR_CLONE3), "D"(request), "S"(sizeof *request), [main] "r"(main),
                       [argument] "r"(argument), [exit] "i"(SYS_exit)
                     : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long number __asm__("x8") = NR_CLONE3;
    register long first __asm__("x0") = (long)request;
    register long second __asm__("x1") = (long)sizeof *request;
    __asm__ volatile("svc #0\n\t"
                     "cbnz x0, 1f\n\t"
                     "mov x29, xzr\n\t"
                     "mov x0, %[argument]\n\t"
                     "blr %[main]\n\t"
                     "mov x8, %[exit]\n\t"
                     "svc #0\n\t"
                     "brk #0\n"
                     "1:"
                     : "+r"(first), "+r"(number)
                     : "r"(second), [main] "r"(main), [argument] "r"(argument), [exit] "i"(SYS_exit)
                     : "memory", "x30");
    return first;
#else
    (void)request, (void)main, (void)argument;
    return -ENOSYS;
#endif
}

pid_t sys_vfork(int (*main)(void *), void *argument, void *stack, size_t stack_size, int cgroup) {
    if (cgroup >= 0) {
        struct clone_request request = {
            .flags = CLONE_VM | CLONE_VFORK | CLONE_INTO_CGROUP_BIT,
            .exit_signal = SIGCHLD,
            .stack = (uint64_t)(uintptr_t)stack,
            .stack_size = stack_size,
            .cgroup = (uint64_t)cgroup,
        };
        long result = clone3_call(&request, main, argument);
        if (result < 0) {
            errno = (int)-result;
            return -1;
        }
        return (pid_t)result;
    }
    return clone(main, (char *)stack + stack_size, CLONE_VM | CLONE_VFORK | SIGCHLD, argument);
}

int64_t monotonic_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}
