/* Tries every system call in a child of its own, with arguments that can do no harm, and writes one line for each:
 * interface, number, name of the arguments, and the errno, `ok`, or how the child ended. Freestanding but for the start. */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST 512
#define NOTHING (-1L)

struct attempt {
    long number;
    long arguments[6];
};

static volatile long *result; /* shared with the children */

#if defined(__x86_64__)
#define INTERFACES 3
static const char *const names[INTERFACES] = {"x86_64", "x32", "i386"};

/* Without a stack frame in between: the call may be vfork(2). A child that it made ends at once. */
static void attempt_native(const struct attempt *attempt) {
    register long r10 __asm__("r10") = attempt->arguments[3];
    register long r8 __asm__("r8") = attempt->arguments[4];
    register long r9 __asm__("r9") = attempt->arguments[5];
    long outcome;
    pid_t self = getpid();
    __asm__ volatile("syscall"
                     : "=a"(outcome)
                     : "a"(attempt->number), "D"(attempt->arguments[0]), "S"(attempt->arguments[1]),
                       "d"(attempt->arguments[2]), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    if (getpid() == self)
        *result = outcome;
    __asm__ volatile("syscall" : : "a"(SYS_exit), "D"(0) : "memory");
}

static void attempt_32(const struct attempt *attempt) {
    long outcome;
    pid_t self = getpid();
    __asm__ volatile("push %%rbp\n\tmov %[sixth], %%ebp\n\tint $0x80\n\tpop %%rbp"
                     : "=a"(outcome)
                     : "a"(attempt->number), "b"(attempt->arguments[0]), "c"(attempt->arguments[1]),
                       "d"(attempt->arguments[2]), "S"(attempt->arguments[3]), "D"(attempt->arguments[4]),
                       [sixth] "r"((int)attempt->arguments[5])
                     : "r8", "r9", "r10", "r11", "memory");
    if (getpid() == self)
        *result = (int)outcome;
    __asm__ volatile("syscall" : : "a"(SYS_exit), "D"(0) : "memory");
}

static void make(int interface, struct attempt *attempt) {
    if (interface == 1)
        attempt->number |= 0x40000000;
    if (interface == 2)
        attempt_32(attempt);
    attempt_native(attempt);
}
#elif defined(__aarch64__)
#define INTERFACES 1
static const char *const names[INTERFACES] = {"aarch64"};

static void make(int interface, struct attempt *attempt) {
    (void)interface;
    pid_t self = getpid();
    register long x8 __asm__("x8") = attempt->number;
    register long x0 __asm__("x0") = attempt->arguments[0];
    register long x1 __asm__("x1") = attempt->arguments[1];
    register long x2 __asm__("x2") = attempt->arguments[2];
    register long x3 __asm__("x3") = attempt->arguments[3];
    register long x4 __asm__("x4") = attempt->arguments[4];
    register long x5 __asm__("x5") = attempt->arguments[5];
    __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    if (getpid() == self)
        *result = x0;
    register long out __asm__("x8") = SYS_exit;
    __asm__ volatile("svc #0" : : "r"(out), "r"(x0) : "memory");
}
#endif

static void say(int interface, const char *what, const struct attempt *attempt, int status) {
    printf("%s %ld %s ", names[interface], attempt->number, what);
    if (WIFSIGNALED(status))
        printf("killed by %d\n", WTERMSIG(status));
    else if (*result == NOTHING - 4096)
        printf("ended\n");
    else if (*result < 0 && *result > -4096)
        printf("%ld\n", -*result);
    else
        printf("ok\n");
}

static void try(int interface, const char *what, struct attempt attempt) {
    *result = NOTHING - 4096;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        struct itimerval limit = {.it_value = {.tv_usec = 300000}};
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        setitimer(ITIMER_REAL, &limit, NULL);
        close(0);
        make(interface, &attempt);
        _exit(1);
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    say(interface, what, &attempt, status);
}

static struct attempt with(long number, long first, long second, long third, long fourth) {
    struct attempt attempt = {number, {first, second, third, fourth, 0, 0}};
    return attempt;
}

/* What filters look at: families, flags. */
static void try_arguments(void) {
    char text[32];
    for (int family = 0; family < 50; family++) {
        snprintf(text, sizeof text, "family-%d", family);
        try(0, text, with(SYS_socket, family, 2, 0, 0));
    }
    for (int bit = 0; bit < 64; bit++) {
        snprintf(text, sizeof text, "bit-%d", bit);
        try(0, text, with(SYS_unshare, (long)(1ul << bit), 0, 0, 0));
        /* The lowest byte is the signal at the end, and the next bit CLONE_VM, which would need a stack. */
        if (bit > 8)
            try(0, text, with(SYS_clone, (long)(1ul << bit), 0, 0, 0));
        try(0, text, with(SYS_setns, -1, (long)(1ul << bit), 0, 0));
    }
    static const long personalities[] = {0, 8, 0x20000, 0x20008, 0xffffffff, 0x40000, 4};
    for (size_t index = 0; index < sizeof personalities / sizeof personalities[0]; index++) {
        snprintf(text, sizeof text, "value-%lx", personalities[index]);
        try(0, text, with(SYS_personality, personalities[index], 0, 0, 0));
    }
    static const char root[] = "/", kind[] = "tmpfs";
    try(0, "private", with(SYS_mount, 0, (long)root, 0, 0x44000));
    try(0, "tmpfs", with(SYS_mount, (long)kind, (long)root, (long)kind, 0));
    try(0, "tmpfs", with(430, (long)kind, 0, 0, 0));
    try(0, "clone", with(428, -100, (long)root, 1, 0));
    try(0, "ask", with(444, 0, 0, 1, 0));
}

int main(void) {
    result = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int interface = 0; interface < INTERFACES; interface++)
        for (long number = 0; number < MOST; number++) {
            struct attempt attempt = {number, {-1, -1, -1, -1, -1, -1}};
            try(interface, "ones", attempt);
        }
    try_arguments();
    return 0;
}
