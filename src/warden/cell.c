#include "cell.h"

#include "batch.h"
#include "facts.h"
#include "limits.h"
#include "lock.h"
#include "link.h"
#include "lockdown.h"
#include "protocol.h"
#include "reply.h"
#include "supervisors.h"
#include "sys.h"
#include "targets.h"
#include "workers.h"
#include "world.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define DROP_MOST_MS 10000

extern char **environ;

struct cell {
    struct process *process;       /* a reference */
    struct connection *connection; /* NULL when it was let go */
    uint64_t drop_id;
    int64_t deadline_ms;           /* 0: it may live */
    bool gone;
    struct cell *next;
    struct cell *previous;
};

/* A MAKE_CELL that is under way; belongs to a worker until it is done. */
struct making {
    struct job job; /* first */
    uint64_t id;
    uint8_t *message;
    size_t size;
    struct plan plan;
    int64_t deadline_ms;
    struct target_set set;
    struct limit_groups limits;
    struct handle *process; /* NULL: it was not started */
    int stream;             /* our end; -1 */
    struct cell_report report;
    struct attempt attempts[PLAN_MOST_PROBES];
    uint16_t unconfined[PLAN_MOST_PROBES];
    uint16_t confined[PLAN_MOST_PROBES];
};

static struct cell *cells;
static int program = -1;
static int program_error = ENOSYS;
static char *environment[3];

/* What its facts are made of, and nothing else: it can be asked to read its own /proc/self/environ. */
static void choose_environment(void) {
    static const char *const names[] = {"HOME=", "TMPDIR="};
    size_t count = 0;
    for (size_t index = 0; index < sizeof names / sizeof names[0]; index++)
        for (char **entry = environ; *entry; entry++)
            if (strncmp(*entry, names[index], strlen(names[index])) == 0) {
                environment[count++] = *entry;
                break;
            }
}

void cells_start(void) {
    choose_environment();
    program = open("/proc/self/exe", O_PATH | O_CLOEXEC);
    program_error = program < 0 ? errno : 0;
}

/* ---- making one, in a worker ---- */

static int time_left(const struct making *making) {
    int64_t left = making->deadline_ms - monotonic_ms();
    return left < 0 ? 0 : (int)left;
}

static bool fail(struct making *making, enum cell_outcome outcome, int error) {
    making->report.outcome = (uint8_t)outcome;
    making->report.step = 0;
    making->report.error = (uint16_t)error;
    return false;
}

/* 0 when the descriptor, which does not block, is ready; else an errno. */
static int await(const struct making *making, int fd, short events) {
    struct pollfd poll_fd = {.fd = fd, .events = events};
    int ready = RETRY(poll(&poll_fd, 1, time_left(making)));
    return ready > 0 ? 0 : ready == 0 ? ETIMEDOUT : errno;
}

/* 0, or an errno; likewise below, where ECONNRESET is the end. */
static int give(const struct making *making, const void *data, size_t size) {
    const uint8_t *at = data;
    while (size > 0) {
        ssize_t count = RETRY(send(making->stream, at, size, MSG_NOSIGNAL | MSG_DONTWAIT));
        if (count < 0 && errno != EAGAIN)
            return errno;
        int error = count < 0 ? await(making, making->stream, POLLOUT) : 0;
        if (error != 0)
            return error;
        at += count < 0 ? 0 : count;
        size -= count < 0 ? 0 : (size_t)count;
    }
    return 0;
}

static int take(const struct making *making, int fd, void *data, size_t size) {
    uint8_t *at = data;
    while (size > 0) {
        ssize_t count = RETRY(read(fd, at, size));
        if (count == 0 || (count < 0 && errno != EAGAIN))
            return count == 0 ? ECONNRESET : errno;
        int error = count < 0 ? await(making, fd, POLLIN) : 0;
        if (error != 0)
            return error;
        at += count < 0 ? 0 : count;
        size -= count < 0 ? 0 : (size_t)count;
    }
    return 0;
}

static void try_unconfined(void *argument, const int *report) {
    const struct making *making = argument;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    probes_try(&making->plan, &making->set.where, 0, *report);
    _exit(0);
}

/* The twin of every probe, without which a failure in the cell would prove nothing. */
static int probe_unconfined(struct making *making) {
    size_t size = making->plan.probe_count * sizeof making->attempts[0];
    int ends[2];
    if (size == 0)
        return 0;
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
        return errno;
    pid_t child = helper_fork(&ends[1], 1, try_unconfined, making);
    int error = child < 0 ? errno : 0;
    close(ends[1]);
    if (error == 0)
        error = take(making, ends[0], making->attempts, size);
    close(ends[0]);
    if (error != 0) {
        if (child > 0)
            helper_kill(child);
        return error;
    }
    for (uint32_t index = 0; index < making->plan.probe_count; index++) {
        if (making->plan.probes[index].kind != PROBE_READ || making->attempts[index].error != 0)
            continue;
        making->set.where.read[index].known = true;
        making->set.where.read[index].device = making->attempts[index].device;
        making->set.where.read[index].inode = making->attempts[index].inode;
    }
    targets_judge(&making->set, making->attempts, making->unconfined);
    return 0;
}

/* The supervisor's first note: whether the program was executed. */
static int await_note(struct making *making, struct spawned *spawned) {
    struct note note;
    int error = await(making, spawned->control, POLLIN);
    if (error != 0)
        return error;
    ssize_t size = RETRY(recv(spawned->control, &note, sizeof note, MSG_DONTWAIT));
    if (size < (ssize_t)offsetof(struct note, survivors) || note.type != NOTE_STARTED)
        return ECHILD;
    spawned->leader = note.pid;
    return note.error;
}

static int start_process(struct making *making, int theirs) {
    char name[] = "warden", what[] = "cell", *arguments[] = {name, what, NULL};
    struct spawned spawned = {.control = -1, .input = -1, .output = {-1, -1}, .master = -1};
    struct command command = {
        .argv = arguments,
        .environment = environment,
        .null = facts_null(),
        .standard = {theirs, theirs, facts_null()},
        .executable = program,
        .limits_of_cell = &making->limits,
    };
    spawned.cgroup = limits_make(&making->limits, making->plan.processes, making->plan.memory_bytes);
    int error = supervisor_fork(&command, &spawned);
    if (error == 0)
        error = await_note(making, &spawned);
    if (error == 0) {
        struct process *process = (struct process *)process_register(&spawned);
        if (!handle_remove(process->handle.number))
            abort();
        handle_drop(&process->handle); /* what the table had; ours stays */
        process->released = process->once = true; /* the host knows the connection alone */
        process->limits = making->limits;
        making->process = &process->handle;
        return 0;
    }
    /* It has ended, or ends with its control socket; what it left in the groups ends with it. */
    if (spawned.control >= 0)
        close(spawned.control);
    if (spawned.supervisor > 0)
        helper_kill(spawned.supervisor);
    limits_remove(&making->limits);
    limits_close(&making->limits);
    cgroup_release(spawned.cgroup, true);
    return error;
}

static bool start(struct making *making) {
    if (facts_null() < 0)
        return fail(making, CELL_START, ENOENT);
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return fail(making, CELL_START, errno);
    making->stream = ends[0];
    int error = fcntl(ends[0], F_SETFL, O_NONBLOCK) < 0 ? errno : start_process(making, ends[1]);
    close(ends[1]);
    return error == 0 || fail(making, CELL_START, error);
}

/* What goes wrong here is heard of in `converse`. */
static int send_plan(struct making *making) {
    struct restriction restriction = lock_restriction();
    struct cell_order order = {
        (uint32_t)making->size, (uint32_t)restriction.filter.size, restriction.capabilities};
    int error = give(making, &order, sizeof order);
    if (error == 0)
        error = give(making, making->message, making->size);
    return error ? error : give(making, restriction.filter.data, restriction.filter.size);
}

static int make_targets(struct making *making) {
    int error = targets_make(&making->set, &making->plan, program, making->deadline_ms);
    return error ? error : probe_unconfined(making);
}

static bool converse(struct making *making, int error) {
    if (error == 0)
        error = give(making, &making->set.where, sizeof making->set.where);
    /* One that fails says so although it has not read everything. */
    if (error == 0 || error == EPIPE || error == ECONNRESET)
        error = take(making, making->stream, &making->report, sizeof making->report);
    if (error != 0)
        return fail(making, CELL_START, error);
    if (making->report.outcome != CELL_RUNNING)
        return false;
    error = take(making, making->stream, making->attempts, making->plan.probe_count * sizeof making->attempts[0]);
    return error == 0 || fail(making, CELL_START, error);
}

static void make(struct job *job) {
    struct making *making = (struct making *)job;
    if (program < 0) {
        (void)fail(making, CELL_START, program_error);
        return;
    }
    if (!start(making))
        return;
    /* It applies the plan meanwhile. */
    int sent = send_plan(making), error = make_targets(making);
    if (error != 0) {
        (void)fail(making, CELL_TARGETS, error);
    } else if (converse(making, sent)) {
        struct process *process = (struct process *)making->process;
        limits_verify(&process->limits, process->cgroup);
        making->limits = process->limits;
        if (making->plan.probe_count)
            targets_judge(&making->set, making->attempts, making->confined);
    }
    targets_remove(&making->set);
}

/* ---- in the loop ---- */

static void making_free(struct making *making) {
    if (making->stream >= 0)
        close(making->stream);
    plan_free(&making->plan);
    free(making->message);
    free(making);
}

static void answer_failure(void *argument) {
    struct making *making = argument;
    struct buffer *body = reply_begin(0);
    put_u8(body, making->report.outcome);
    put_u16(body, making->report.step);
    put_u16(body, making->report.error);
    reply_end(making->id);
    making_free(making);
}

static void answer_running(struct making *making, uint64_t number) {
    struct buffer *body = reply_begin(0);
    put_u8(body, CELL_RUNNING);
    put_u16(body, 0);
    put_u16(body, 0);
    put_u64(body, number);
    put_u8(body, making->limits.method[LIMIT_PROCESSES]);
    put_u8(body, making->limits.method[LIMIT_MEMORY]);
    put_u16(body, making->limits.error[LIMIT_PROCESSES]);
    put_u16(body, making->limits.error[LIMIT_MEMORY]);
    put_u32(body, making->plan.probe_count);
    for (uint32_t index = 0; index < making->plan.probe_count; index++) {
        put_u16(body, making->unconfined[index]);
        put_u16(body, making->confined[index]);
    }
    reply_end(making->id);
    making_free(making);
}

static void add_cell(struct making *making) {
    struct cell *cell = calloc(1, sizeof *cell);
    if (!cell)
        abort();
    struct handle *handle = connection_register(making->stream);
    uint64_t number = handle->number;
    making->stream = -1;
    cell->process = (struct process *)making->process;
    cell->connection = (struct connection *)handle;
    handle_drop(handle); /* the table's is enough: it is told when that goes */
    cell->process->cell = cell->connection->cell = cell;
    cell->next = cells;
    if (cells)
        cells->previous = cell;
    cells = cell;
    process_attach(cell->process);
    /* Ahead of the answer, or with its first byte: whoever has read that has the descriptor too. */
    cell->connection->passed = link_pass(cell->connection->fd);
    answer_running(making, number);
    if (!cell->connection->passed)
        connection_attach(cell->connection);
    if (world_ending())
        cells_end();
}

static void on_made(struct job *job) {
    struct making *making = (struct making *)job;
    if (making->report.outcome == CELL_RUNNING) {
        add_cell(making);
    } else if (making->process) {
        struct process *process = (struct process *)making->process;
        process_attach(process);
        process_kill(process, answer_failure, making);
        loop_drop_later(&process->handle);
    } else {
        answer_failure(making);
    }
}

bool cell_on_make(uint64_t id, const uint8_t *body, size_t size) {
    if (cell_inside() || world_ending()) {
        reply_status(id, cell_inside() ? EPERM : ESHUTDOWN);
        return true;
    }
    struct making *making = calloc(1, sizeof *making);
    uint8_t *message = malloc(size ? size : 1);
    if (!making || !message)
        abort();
    if (size)
        memcpy(message, body, size);
    making->id = id;
    making->message = message;
    making->size = size;
    making->stream = -1;
    int status = plan_decode(&making->plan, message, size);
    if (status != 0) {
        reply_status(id, (uint16_t)status);
        making_free(making);
        return true;
    }
    making->deadline_ms = monotonic_ms() + making->plan.timeout_ms;
    making->job.run = make;
    making->job.done = on_made;
    workers_submit(&making->job);
    return true;
}

static void cell_free(struct cell *cell) {
    *(cell->previous ? &cell->previous->next : &cells) = cell->next;
    if (cell->next)
        cell->next->previous = cell->previous;
    cell->process->cell = NULL;
    loop_drop_later(&cell->process->handle);
    free(cell);
}

static void answer_drop(struct cell *cell) {
    const struct process *process = cell->process;
    if (cell->drop_id == 0)
        return;
    struct buffer *body = reply_begin(0);
    put_u8(body, cell->gone);
    put_u8(body, process->method);
    put_u32(body, cell->gone ? 0 : process->survivor_count);
    for (uint32_t index = 0; !cell->gone && index < process->survivor_count; index++)
        put_u32(body, (uint32_t)process->survivors[index]);
    reply_end(cell->drop_id);
    cell->drop_id = 0;
}

static void maybe_free(struct cell *cell) {
    if (cell->gone && !cell->connection)
        cell_free(cell);
}

void cell_gone(struct cell *cell) {
    cell->gone = true;
    answer_drop(cell);
    maybe_free(cell);
}

void cell_released(struct cell *cell) {
    cell->connection->cell = NULL;
    cell->connection = NULL;
    if (cell->deadline_ms == 0)
        cell->deadline_ms = monotonic_ms() + DROP_MOST_MS;
    if (cell->gone)
        answer_drop(cell);
    maybe_free(cell);
}

static struct cell *find_cell(uint64_t number) {
    for (struct cell *cell = cells; cell; cell = cell->next)
        if (cell->connection && cell->connection->handle.number == number)
            return cell;
    return NULL;
}

static void let_go(struct cell *cell) {
    struct connection *connection = cell->connection;
    if (!connection || !handle_remove(connection->handle.number))
        return;
    connection_release(connection);
    loop_drop_later(&connection->handle);
    cell_released(cell);
}

bool cell_on_drop(uint64_t id, struct cursor *body) {
    uint64_t number = take_u64(body);
    if (!cursor_done(body))
        return false;
    struct cell *cell = find_cell(number);
    if (cell_inside()) {
        reply_status(id, EPERM);
    } else if (!cell) {
        reply_status(id, EBADF);
    } else {
        cell->drop_id = id;
        let_go(cell);
    }
    return true;
}

/* Killed and given up: some of it could not be proven dead. It is answered, and goes on being killed. */
static void on_killed(void *argument) {
    struct cell *cell = argument;
    if (!cell->process->gone) /* else cell_gone comes next */
        answer_drop(cell);
}

int cells_tick(void) {
    int wait = -1;
    int64_t now = monotonic_ms();
    struct cell *next;
    for (struct cell *cell = cells; cell; cell = next) {
        next = cell->next;
        if (cell->gone || cell->deadline_ms == 0 || cell->process->on_killed)
            continue;
        int64_t left = cell->deadline_ms - now;
        if (left <= 0) {
            cell->deadline_ms = now + DROP_MOST_MS; /* again, as long as it is not gone */
            process_kill(cell->process, on_killed, cell);
        } else if (wait < 0 || left < wait) {
            wait = (int)left;
        }
    }
    return wait;
}

void cells_end(void) {
    struct cell *next;
    for (struct cell *cell = cells; cell; cell = next) {
        next = cell->next;
        let_go(cell);
    }
}
