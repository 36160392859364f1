/* A seeded mutator over whole sessions of the host, guided by coverage. Each session runs in a process of its own, in an
 * empty root, to its end; a sanitizer that ends it otherwise is a find.
 *
 *     fuzz CORPUS SECONDS SEED [PROGRAM]
 *
 * PROGRAM is a static executable that the sessions may start as /program. Exit status: 0 nothing found and every opcode
 * reached, 1 something found (the session is written to ./find.bin), 3 an opcode was never reached. */
#include "fuzz.h"

#include "dispatch.h"
#include "link.h"
#include "protocol.h"
#include "sys.h"
#include "world.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST_INPUTS 4096
#define MOST_BYTES 65536u
#define SESSION_MS 30000

struct input_bytes {
    uint8_t *data;
    size_t size;
};

volatile uint8_t *fuzz_reached;
static struct input_bytes inputs[MOST_INPUTS];
static unsigned input_count;
static uint64_t random_state;

/* A status of its own for what the sanitizers find. The stack of a vforked child is none that they know of. */
const char *__asan_default_options(void);
const char *__ubsan_default_options(void);
const char *__asan_default_options(void) { return "exitcode=99:detect_leaks=0:verbosity=0"; }
const char *__ubsan_default_options(void) { return "exitcode=99:print_stacktrace=1"; }

static uint64_t next_random(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static size_t below(size_t most) { return most ? (size_t)(next_random() % most) : 0; }

static void add_input(const uint8_t *data, size_t size) {
    if (input_count == MOST_INPUTS || size == 0 || size > MOST_BYTES)
        return;
    uint8_t *copy = malloc(size);
    if (!copy)
        abort();
    memcpy(copy, data, size);
    inputs[input_count++] = (struct input_bytes){copy, size};
}

static void read_corpus(const char *path) {
    static uint8_t space[MOST_BYTES];
    DIR *folder = opendir(path);
    if (!folder || chdir(path) < 0) {
        perror(path);
        exit(2);
    }
    for (struct dirent *entry; (entry = readdir(folder));) {
        int fd = entry->d_name[0] == '.' ? -1 : open(entry->d_name, O_RDONLY | O_CLOEXEC);
        ssize_t size = fd >= 0 ? read(fd, space, sizeof space) : 0;
        if (size > 0)
            add_input(space, (size_t)size);
        if (fd >= 0)
            close(fd);
    }
    closedir(folder);
}

/* Start of a frame at random, walking the lengths. */
static size_t some_frame(const uint8_t *data, size_t size, size_t *length) {
    size_t starts[256], lengths[256], count = 0, at = PREAMBLE_SIZE;
    while (at + HEADER_SIZE <= size && count < 256) {
        size_t whole = HEADER_SIZE + load_u32(data + at);
        if (whole > size - at)
            break;
        starts[count] = at;
        lengths[count++] = whole;
        at += whole;
    }
    size_t chosen = below(count);
    *length = count ? lengths[chosen] : 0;
    return count ? starts[chosen] : 0;
}

static size_t mutate(uint8_t *data, size_t size) {
    static const uint64_t odd[] = {0, 1, 2, 15, 16, 127, 128, 255, 256, 1023, 1024, 1025, 4096, 32767, 32768, 65535,
                                   65536, 1048575, 1048576, 1048577, 16777216, 0x7FFFFFFF, 0x80000000u, 0xFFFFFFFFu};
    for (size_t rounds = 1 + below(6); rounds > 0; rounds--) {
        size_t at = below(size), length;
        switch (below(9)) {
        case 0: data[at] ^= (uint8_t)(1u << below(8)); break;
        case 1: data[at] = (uint8_t)next_random(); break;
        case 2: data[at] = (uint8_t)(data[at] + below(7) - 3); break;
        case 3: /* a number at its edge */
            if (size - at >= 4)
                store_u32(data + at, (uint32_t)odd[below(sizeof odd / sizeof odd[0])]);
            break;
        case 4: /* a body made longer or shorter, its length kept right */
            at = some_frame(data, size, &length);
            if (length > HEADER_SIZE + 1 && below(2)) {
                size_t cut = HEADER_SIZE + below(length - HEADER_SIZE);
                memmove(data + at + cut, data + at + cut + 1, size - at - cut - 1);
                store_u32(data + at, (uint32_t)(length - HEADER_SIZE - 1));
                size--;
            } else if (length && size < MOST_BYTES) {
                size_t put = HEADER_SIZE + below(length - HEADER_SIZE + 1);
                memmove(data + at + put + 1, data + at + put, size - at - put);
                data[at + put] = (uint8_t)next_random();
                store_u32(data + at, (uint32_t)(length - HEADER_SIZE + 1));
                size++;
            }
            break;
        case 5: /* a frame of another session */
        case 6: {
            const struct input_bytes *other = &inputs[below(input_count)];
            size_t from = some_frame(other->data, other->size, &length), own;
            at = some_frame(data, size, &own);
            if (length && own && size + length <= MOST_BYTES) {
                memmove(data + at + length, data + at, size - at);
                memcpy(data + at, other->data + from, length);
                size += length;
            }
            break;
        }
        case 7: /* one frame less */
            at = some_frame(data, size, &length);
            if (length && size > length) {
                memmove(data + at, data + at + length, size - at - length);
                size -= length;
            }
            break;
        default: size = below(8) ? size : 1 + below(size); break;
        }
    }
    return size;
}

static void write_text(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        (void)!write(fd, text, strlen(text));
        close(fd);
    }
}

static int remove_one(const char *path, const struct stat *found, int kind, struct FTW *where) {
    (void)found, (void)kind, (void)where;
    (void)remove(path);
    return 0;
}

static void leave_for_good(const char *root, const char *program) {
    char path[256];
    mkdir(root, 0700);
    if (program) {
        snprintf(path, sizeof path, "%s/program", root);
        int from = open(program, O_RDONLY | O_CLOEXEC), to = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
        if (from < 0 || to < 0 || sys_copy_file_range(from, to, 1u << 28) <= 0)
            perror("no program to start");
        close(from);
        close(to);
    }
    /* Not as root of the system, not where anything of value is, and with no process in sight but its own. */
    uid_t uid = geteuid();
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWPID) < 0) {
        perror("no namespaces to be safe in");
        exit(2);
    }
    snprintf(path, sizeof path, "0 %u 1", (unsigned)uid);
    write_text("/proc/self/uid_map", path);
    pid_t inner = fork();
    if (inner != 0) {
        int status = 0;
        while (waitpid(inner, &status, 0) < 0) {
        }
        snprintf(path, sizeof path, "%s/proc", root);
        (void)umount2(path, MNT_DETACH);
        (void)nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
        exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
    }
    snprintf(path, sizeof path, "%s/proc", root);
    mkdir(path, 0755);
    if (mount("proc", path, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
        perror("no /proc in there");
    if (chdir(root) < 0 || chroot(".") < 0) {
        perror("chroot");
        exit(2);
    }
    mkdir("/dev", 0755);
    mkdir("/d", 0755);
    mkdir("/d/e", 0755);
    mkdir("/tmp", 0777);
    int fd = open("/d/f", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    (void)!write(fd, "content of a file\n", 18);
    close(fd);
    (void)!symlink("../d/e", "/d/link");
    (void)!symlink("loop", "/d/loop");
    struct rlimit size = {1 << 20, 1 << 20}, core = {0, 0};
    setrlimit(RLIMIT_FSIZE, &size);
    setrlimit(RLIMIT_CORE, &core);
}

/* The whole life of one warden. */
static _Noreturn void session(const uint8_t *data, size_t size, int out) {
    struct rlimit cpu = {20, 20}; /* not for the one that goes through all sessions */
    setrlimit(RLIMIT_CPU, &cpu);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    signal(SIGXFSZ, SIG_IGN);
    alarm(SESSION_MS / 1000);
    if (world_start() < 0)
        _exit(0);
    link_start(-1, out, dispatch);
    world_greet();
    for (size_t at = 0; at < size && !link_violated();) {
        size_t step = below(3) ? 1 + below(size - at) : 1 + below(32);
        if (step > size - at)
            step = size - at;
        /* A copy of exactly that size, so that reading beyond it is seen. */
        uint8_t *piece = malloc(step);
        if (!piece)
            abort();
        memcpy(piece, data + at, step);
        link_feed(piece, step);
        free(piece);
        at += step;
        world_round(below(4) ? 0 : 2);
    }
    for (int round = 0; round < 8 && !link_violated(); round++)
        world_round(1);
    link_end();
    world_run();
}

/* True when it ended as it should. */
static bool try_input(const uint8_t *data, size_t size, int out) {
    pid_t child = fork();
    if (child == 0)
        session(data, size, out);
    int status = 0;
    while (waitpid(child, &status, 0) < 0) {
    }
    /* 0, 1 and 2 are ends of a warden; the sanitizers end with others or with a signal. */
    if (WIFEXITED(status) && WEXITSTATUS(status) <= 2)
        return true;
    fprintf(stderr, "a session ended with status %#x\n", (unsigned)status);
    return false;
}

static bool new_coverage(uint8_t *seen) {
    bool found = false;
    for (size_t index = 0; index < COVERAGE_SIZE; index++)
        if (coverage_map[index] && !seen[index])
            seen[index] = found = true;
    return found;
}

static void *shared(size_t size) {
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        abort();
    return memory;
}

int main(int argc, char **argv) {
    static uint8_t seen[COVERAGE_SIZE], current[MOST_BYTES];
    if (argc < 4)
        return 2;
    int find = open("find.bin", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    int here = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int out = open("/dev/null", O_RDWR | O_CLOEXEC);
    char program[4096], root[] = "/tmp/warden-fuzz-XXXXXX";
    bool has_program = argc > 4 && realpath(argv[4], program);
    random_state = strtoull(argv[3], NULL, 10) * 2654435761u + 88172645463325252u;
    read_corpus(argv[1]);
    coverage_map = shared(COVERAGE_SIZE);
    fuzz_reached = shared(256);
    if (!mkdtemp(root))
        return 2;
    leave_for_good(root, has_program ? program : NULL);
    int64_t end_ms = monotonic_ms() + strtoll(argv[2], NULL, 10) * 1000;
    unsigned sessions = 0, seeds = input_count, failed = 0;
    while (!failed && (sessions < seeds || monotonic_ms() < end_ms)) {
        size_t size;
        if (sessions < seeds) {
            size = inputs[sessions].size;
            memcpy(current, inputs[sessions].data, size);
        } else {
            const struct input_bytes *chosen = &inputs[below(input_count)];
            memcpy(current, chosen->data, chosen->size);
            size = mutate(current, chosen->size);
        }
        failed = !try_input(current, size, out);
        if (new_coverage(seen) && sessions >= seeds)
            add_input(current, size);
        if (failed)
            (void)!write(find, current, size);
        sessions++;
    }
    unsigned missing = 0;
    for (unsigned opcode = 1; opcode < OP_END; opcode++)
        if (!fuzz_reached[opcode]) {
            fprintf(stderr, "opcode %u was never reached\n", opcode);
            missing++;
        }
    fprintf(stderr, "%u sessions, %u inputs kept\n", sessions, input_count);
    if (!failed)
        (void)unlinkat(here, "find.bin", 0);
    return failed ? 1 : missing ? 3 : 0;
}
