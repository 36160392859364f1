#include "process.h"

#include "cell.h"
#include "cgroup.h"
#include "link.h"
#include "protocol.h"
#include "reply.h"
#include "supervisors.h"
#include "sys.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define SUPERVISOR_PATIENCE_MS 8000 /* it reports after 5 s at the latest, unless it was stopped */

struct process *process_first;

static void process_destroy(struct handle *handle) {
    struct process *process = (struct process *)handle;
    if (process->master >= 0)
        close(process->master);
    cgroup_release(process->cgroup, true);
    limits_close(&process->limits);
    free(process);
}

struct handle *process_register(const struct spawned *spawned) {
    struct process *process = calloc(1, sizeof *process);
    if (!process)
        abort();
    process->supervisor = spawned->supervisor;
    process->leader = spawned->leader;
    process->control = spawned->control;
    process->cgroup = spawned->cgroup;
    process->master = spawned->master;
    process->terminal = spawned->master >= 0;
    /* Not started yet: only remembered for process_attach. */
    process->input.fd = spawned->input;
    process->output[0].fd = spawned->output[0];
    process->output[1].fd = spawned->output[1];
    for (int kind = 0; kind < LIMIT_COUNT; kind++)
        process->limits.directories[kind] = -1;
    process->memory_kills = cgroup_memory_kills();
    return handle_register(&process->handle, HANDLE_PROCESS, process_destroy);
}

static void unlink_process(struct process *process) {
    *(process->previous ? &process->previous->next : &process_first) = process->next;
    if (process->next)
        process->next->previous = process->previous;
    loop_drop_later(&process->handle);
}

/* The loop's reference ends when nothing can happen any more. */
static void maybe_forget(struct process *process) {
    if (!process->released || !process->gone)
        return;
    stream_stop(&process->output[0]);
    stream_stop(&process->output[1]);
    unlink_process(process);
}

static void answer_killers(struct process *process, bool gone) {
    while (process->killers) {
        struct waiter *waiter = process->killers;
        process->killers = waiter->next;
        struct buffer *body = reply_begin(0);
        put_u8(body, gone);
        put_u8(body, process->method);
        put_u32(body, gone ? 0 : process->survivor_count);
        for (uint32_t index = 0; !gone && index < process->survivor_count; index++)
            put_u32(body, (uint32_t)process->survivors[index]);
        reply_end(waiter->id);
        free(waiter);
    }
    process->kill_deadline_ms = 0;
    if (process->on_killed) {
        void (*on_killed)(void *) = process->on_killed;
        process->on_killed = NULL;
        on_killed(process->on_killed_argument);
    }
}

static uint64_t written(const struct stream *stream) {
    int left = 0;
    if (stream->fd >= 0)
        (void)ioctl(stream->fd, FIONREAD, &left);
    return stream->total + (uint64_t)(left > 0 ? left : 0);
}

static void tell_exit(struct process *process, const struct note *note, bool usage_known) {
    uint64_t sizes[2];
    process->exited = true;
    process->raw = note->raw;
    if (process->terminal) {
        sizes[0] = stream_finish_terminal(&process->output[0]);
        sizes[1] = 0;
        input_broken(&process->input, false);
    } else {
        sizes[0] = written(&process->output[0]);
        sizes[1] = written(&process->output[1]);
    }
    if (process->released)
        return;
    uint8_t has = usage_known ? EXIT_USAGE : 0;
    int64_t kills = cgroup_memory_kills();
    if (kills >= 0 && process->memory_kills >= 0) {
        /* The counter is shared with other commands, so without a KILL it proves nothing about this one. */
        if (kills == process->memory_kills)
            has |= EXIT_OOM_KNOWN;
        else if ((note->raw & 0x7f) == SIGKILL && process->method == KILL_NOT_NEEDED)
            has |= EXIT_OOM_KNOWN | EXIT_OOM;
    }
    if (!note->gone)
        has |= EXIT_TREE_ALIVE;
    struct buffer body = {.limit = 128};
    put_u64(&body, process->handle.number);
    put_u32(&body, (uint32_t)note->raw);
    put_u8(&body, has);
    put_u64(&body, note->user_us);
    put_u64(&body, note->system_us);
    put_u64(&body, note->peak_bytes);
    put_u64(&body, sizes[0]);
    put_u64(&body, sizes[1]);
    link_send(MESSAGE_EXIT, 0, &body);
    buffer_free(&body);
}

/* Also those that the supervisor did not get to: it told the end of the tree before. */
static void answer_signallers(struct process *process) {
    while (process->signallers) {
        struct waiter *waiter = process->signallers;
        process->signallers = waiter->next;
        put_u32(reply_begin(0), 0);
        reply_end(waiter->id);
        free(waiter);
    }
}

static void tell_gone(struct process *process, uint8_t method) {
    if (process->gone)
        return;
    process->gone = true;
    process->method = method;
    if (!process->released) {
        struct buffer body = {.limit = 32};
        put_u64(&body, process->handle.number);
        put_u8(&body, method);
        link_send(MESSAGE_TREE_GONE, 0, &body);
        buffer_free(&body);
    }
    if (process->control >= 0)
        loop_remove(process->control);
    if (process->control >= 0 && method == KILL_NOT_NEEDED && !process->once) {
        supervisor_keep(process->supervisor, process->control, process->cgroup);
    } else {
        if (process->control >= 0)
            close(process->control);
        cgroup_release(process->cgroup, true);
        limits_remove(&process->limits); /* its supervisor does, unless it was killed */
    }
    process->supervisor = 0;
    process->control = -1;
    process->cgroup = NULL;
    answer_signallers(process);
    answer_killers(process, true);
    if (process->cell)
        cell_gone(process->cell);
    maybe_forget(process);
}

static void take_signalled(struct process *process, const struct note *note) {
    struct waiter **link = &process->signallers;
    while (*link && (*link)->id != note->token)
        link = &(*link)->next;
    if (!*link)
        return;
    struct waiter *waiter = *link;
    *link = waiter->next;
    free(waiter);
    if (note->count < 0) {
        reply_status(note->token, (uint16_t)-note->count);
        return;
    }
    put_u32(reply_begin(0), (uint32_t)note->count);
    reply_end(note->token);
}

static void on_control(struct source *source, uint32_t events) {
    (void)events;
    struct process *process = CONTAINER(source, struct process, control_source);
    while (process->control >= 0) {
        struct note note;
        ssize_t size = RETRY(recv(process->control, &note, sizeof note, MSG_DONTWAIT));
        if (size < 0 && errno == EAGAIN)
            return;
        if (size < (ssize_t)offsetof(struct note, survivors)) {
            /* Ended without having said that the tree is gone: somebody killed it. What is left is ours now. */
            loop_remove(process->control);
            close(process->control);
            process->control = -1;
            process->control_lost = true;
            answer_signallers(process);
            process->kill_deadline_ms = monotonic_ms() + SUPERVISOR_PATIENCE_MS;
            return;
        }
        if (note.type == NOTE_EXITED) {
            tell_exit(process, &note, true);
            if (note.gone)
                tell_gone(process, note.method);
        } else if (note.type == NOTE_GONE) {
            tell_gone(process, note.method);
        } else if (note.type == NOTE_SIGNALLED) {
            take_signalled(process, &note);
        } else if (note.type == NOTE_REPORT && !process->gone) {
            process->method = note.method;
            process->survivor_count = note.survivor_count < MOST_SURVIVORS ? note.survivor_count : MOST_SURVIVORS;
            memcpy(process->survivors, note.survivors, process->survivor_count * sizeof process->survivors[0]);
            answer_killers(process, note.gone);
        }
    }
}

void process_attach(struct process *process) {
    int input = process->input.fd, first = process->output[0].fd, second = process->output[1].fd;
    process->attached = true;
    process->next = process_first;
    if (process_first)
        process_first->previous = process;
    process_first = process;
    handle_hold(&process->handle);
    /* It may have been reaped, by us, before its process was here to be told. */
    supervisors_lock();
    if (!supervisor_known(process->supervisor))
        process->supervisor = 0;
    supervisors_unlock();
    if (process->terminal) {
        /* One registration for each direction needs one descriptor for each. */
        first = fcntl(process->master, F_DUPFD_CLOEXEC, 3);
        input = fcntl(process->master, F_DUPFD_CLOEXEC, 3);
        if (first < 0 || input < 0)
            abort();
    }
    /* First: a reader that is gone is as a rule told before what was written after that. */
    input_start(&process->input, &process->handle, input, process->terminal, false);
    stream_start(&process->output[0], &process->handle, process->terminal ? STREAM_TERMINAL : STREAM_PIPE, 1, first);
    stream_start(&process->output[1], &process->handle, STREAM_PIPE, 2, second);
    process->control_source.ready = on_control;
    loop_add(process->control, EPOLLIN | EPOLLRDHUP, &process->control_source);
}

void process_release(struct process *process) {
    process->released = true;
    input_stop(&process->input);
    stream_discard(&process->output[0]);
    stream_discard(&process->output[1]);
    maybe_forget(process);
}

static bool order(struct process *process, const struct order *order) {
    return process->control >= 0 &&
           RETRY(send(process->control, order, sizeof *order, MSG_NOSIGNAL | MSG_DONTWAIT)) == (ssize_t)sizeof *order;
}

static void begin_kill(struct process *process) {
    struct order kill_order = {.type = ORDER_KILL};
    (void)order(process, &kill_order);
    /* A program may have stopped it. */
    if (process->supervisor > 0)
        kill(process->supervisor, SIGCONT);
    if (process->kill_deadline_ms == 0)
        process->kill_deadline_ms = monotonic_ms() + SUPERVISOR_PATIENCE_MS;
}

void process_kill(struct process *process, void (*on_killed)(void *), void *argument) {
    if (process->gone) {
        on_killed(argument);
        return;
    }
    process->on_killed = on_killed;
    process->on_killed_argument = argument;
    begin_kill(process);
}

static void add_waiter(struct waiter **list, uint64_t id) {
    struct waiter *waiter = malloc(sizeof *waiter);
    if (!waiter)
        abort();
    waiter->id = id;
    waiter->next = *list;
    *list = waiter;
}

void process_request_kill(struct process *process, uint64_t id) {
    if (process->gone) {
        struct buffer *body = reply_begin(0);
        put_u8(body, 1);
        put_u8(body, KILL_NOT_NEEDED);
        put_u32(body, 0);
        reply_end(id);
        return;
    }
    add_waiter(&process->killers, id);
    begin_kill(process);
}

void process_request_signal(struct process *process, uint64_t id, uint32_t number, uint32_t target) {
    struct order signal_order = {.type = ORDER_SIGNAL, .number = (int32_t)number, .target = target, .token = id};
    if (process->supervisor > 0 && process->control >= 0)
        kill(process->supervisor, SIGCONT);
    if (process->gone || !order(process, &signal_order)) {
        put_u32(reply_begin(0), 0);
        reply_end(id);
        return;
    }
    add_waiter(&process->signallers, id);
}

/* The supervisor is gone, its tree has become ours. There may be several such trees; they go together. */
static void take_over(struct process *process) {
    if (!sweep_orphans() && monotonic_ms() < process->kill_deadline_ms)
        return;
    if (!process->exited) {
        struct note note = {.raw = SIGKILL, .gone = 1};
        tell_exit(process, &note, false);
    }
    if (sweep_orphans()) {
        tell_gone(process, KILL_SUBREAPER);
    } else {
        process->method = KILL_SUBREAPER;
        process->survivor_count = 0;
        answer_killers(process, false);
        process->kill_deadline_ms = monotonic_ms() + SUPERVISOR_PATIENCE_MS;
    }
}

void process_reaped(pid_t pid, int raw) {
    supervisors_lock();
    /* One that ended in order has proven its tree empty. */
    if (supervisor_forget(pid) && raw != 0)
        suspect_orphans();
    supervisors_unlock();
    for (struct process *process = process_first; process; process = process->next) {
        if (process->supervisor == pid)
            process->supervisor = 0;
        if (process->leader == pid && process->control_lost && !process->exited) {
            struct note note = {.raw = raw};
            tell_exit(process, &note, false);
        }
    }
}

int process_tick(void) {
    int wait = -1;
    int64_t now = monotonic_ms();
    struct process *next;
    if (orphans_suspected())
        wait = sweep_orphans() ? -1 : 5;
    for (struct process *process = process_first; process; process = next) {
        next = process->next;
        if (process->gone || process->kill_deadline_ms == 0)
            continue;
        if (process->control_lost && process->supervisor == 0) {
            take_over(process);
            wait = 5;
            continue;
        }
        int left = (int)(process->kill_deadline_ms - now);
        if (left <= 0 && process->supervisor > 0) {
            /* It does not answer: it is stopped again and again, or broken. Its tree falls to us. */
            kill(process->supervisor, SIGKILL);
            left = 100;
        }
        if (wait < 0 || left < wait)
            wait = left < 1 ? 1 : left;
    }
    return wait;
}
