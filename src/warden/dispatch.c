#include "dispatch.h"

#include "cell.h"
#include "cgroup.h"
#include "facts.h"
#include "link.h"
#include "lockdown.h"
#include "plan.h"
#include "process.h"
#include "reply.h"
#include "supervisors.h"
#include "sys.h"
#include "terminal.h"
#include "watch.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define CANCEL_AGAIN_MS 100

static struct batch *unanswered; /* all batches */
static size_t unanswered_bytes;
static bool greeted;

/* ---- batches ---- */

static void forget_batch(struct batch *batch) {
    *(batch->previous ? &batch->previous->next : &unanswered) = batch->next;
    if (batch->next)
        batch->next->previous = batch->previous;
    unanswered_bytes -= batch->message_size;
    batch_free(batch);
}

static void answer_batch(struct batch *batch) {
    struct buffer *body = &batch->reply;
    link_reply(batch->id, body, batch->bulk_allowed);
    forget_batch(batch);
}

static void on_killed(void *argument) {
    struct batch *batch = argument;
    if (--batch->kills_pending == 0)
        answer_batch(batch);
}

/* A connection or a watch may have been closed, by a batch that guessed its number too, before the one that opened it was
 * done: then it is not attached, and will not be. */
static void release(struct handle *handle) {
    struct connection *connection = (struct connection *)handle;
    switch (handle->kind) {
    case HANDLE_PROCESS: process_release((struct process *)handle); break;
    case HANDLE_CONNECTION:
        if (connection->attached || connection->passed)
            connection_release(connection);
        if (connection->cell)
            cell_released(connection->cell);
        break;
    case HANDLE_WATCH:
        if (((struct watch *)handle)->attached)
            watch_release((struct watch *)handle);
        break;
    case HANDLE_FILE:
    case HANDLE_WALK: break;
    }
    loop_drop_later(handle);
}

static void attach(struct handle *handle) {
    struct handle *known = handle_get(handle->number);
    if (!known)
        return;
    handle_drop(known);
    if (handle->kind == HANDLE_PROCESS)
        process_attach((struct process *)handle);
    else if (handle->kind == HANDLE_CONNECTION)
        connection_attach((struct connection *)handle);
    else if (handle->kind == HANDLE_WATCH)
        watch_attach((struct watch *)handle);
}

/* The batch is done in its worker; what it opened and closed becomes known to the loop. */
static void on_batch_done(struct job *job) {
    struct batch *batch = (struct batch *)job;
    bool failed = batch->failed;
    batch->kills_pending = 1; /* this function itself */
    for (unsigned index = 0; index < batch->opened_count; index++)
        attach(batch->opened[index]);
    for (unsigned index = 0; index < batch->detached_count; index++)
        release(batch->detached[index]);
    batch->detached_count = 0;
    for (unsigned index = 0; failed && index < batch->opened_count; index++) {
        struct handle *handle = batch->opened[index];
        if (handle->kind == HANDLE_FILE || handle->kind == HANDLE_WALK || !handle_remove(handle->number))
            continue;
        if (handle->kind == HANDLE_PROCESS) {
            batch->kills_pending++;
            process_kill((struct process *)handle, on_killed, batch);
        }
        release(handle);
    }
    on_killed(batch);
}

static void refuse_batch(uint64_t id, uint16_t status) {
    struct batch refused = {.reply = {.limit = 64}};
    batch_refuse(&refused, status);
    link_reply(id, &refused.reply, false);
    buffer_free(&refused.reply);
}

static bool on_batch(uint64_t id, uint8_t **data, size_t size, bool owned) {
    if (world_ending()) {
        refuse_batch(id, ESHUTDOWN);
        return true;
    }
    if (workers_waiting() >= MAX_QUEUED_BATCHES || unanswered_bytes + size > MAX_QUEUED_BYTES) {
        refuse_batch(id, ENOBUFS);
        return true;
    }
    uint8_t *message = *data;
    if (owned) {
        *data = NULL;
    } else {
        message = malloc(size ? size : 1);
        if (!message)
            abort();
        memcpy(message, *data, size);
    }
    uint16_t status;
    struct batch *batch = batch_decode(id, message, size, &status);
    if (!batch) {
        refuse_batch(id, status);
        return true;
    }
    batch->next = unanswered;
    if (unanswered)
        unanswered->previous = batch;
    unanswered = batch;
    unanswered_bytes += size;
    batch->job.run = batch_run;
    batch->job.done = on_batch_done;
    workers_submit(&batch->job);
    return true;
}

static void cancel_batch(struct batch *batch) {
    if (workers_withdraw(&batch->job)) {
        batch_refuse(batch, ECANCELED);
        answer_batch(batch);
    } else {
        workers_cancel(&batch->job);
    }
}

int dispatch_tick(void) {
    int wait = -1;
    for (struct batch *batch = unanswered; batch; batch = batch->next)
        if (atomic_load(&batch->job.cancelled) && atomic_load(&batch->job.thread)) {
            workers_cancel(&batch->job);
            wait = CANCEL_AGAIN_MS;
        }
    return wait;
}

void dispatch_cancel_all(void) {
    struct batch *next;
    for (struct batch *batch = unanswered; batch; batch = next) {
        next = batch->next;
        cancel_batch(batch);
    }
}

static void cancel(uint64_t id) {
    for (struct batch *batch = unanswered; batch; batch = batch->next)
        if (batch->id == id) {
            cancel_batch(batch);
            return;
        }
    for (struct process *process = process_first; process; process = process->next)
        if (input_cancel(&process->input, id))
            return;
    connection_cancel(id);
}

/* ---- foreground: reads /proc, so in a worker ---- */

struct foreground {
    struct job job; /* first */
    uint64_t id;
    struct handle *process;
    pid_t supervisor;
    pid_t group;
    bool waits;
};

static void find_foreground(struct job *job) {
    struct foreground *request = (struct foreground *)job;
    struct process *process = (struct process *)request->process;
    request->group = terminal_foreground(process->master);
    request->waits = waits_for_input(request->group, request->supervisor, terminal_device(process->master));
}

static void on_foreground_found(struct job *job) {
    struct foreground *request = (struct foreground *)job;
    struct process *process = (struct process *)request->process;
    bool present = request->group > 0 && !process->exited;
    struct buffer *body = reply_begin(0);
    put_u8(body, present);
    put_u32(body, present ? (uint32_t)request->group : 0);
    put_u8(body, present && request->waits);
    reply_end(request->id);
    handle_drop(request->process);
    free(request);
}

static void on_foreground(uint64_t id, struct process *process) {
    struct foreground *request = calloc(1, sizeof *request);
    if (!request)
        abort();
    request->id = id;
    request->process = &process->handle;
    request->supervisor = process->supervisor;
    handle_hold(&process->handle);
    request->job.run = find_foreground;
    request->job.done = on_foreground_found;
    workers_submit(&request->job);
}

/* ---- processes and connections ---- */

static struct input *input_of(struct handle *handle) {
    if (handle->kind == HANDLE_PROCESS && ((struct process *)handle)->attached)
        return &((struct process *)handle)->input;
    if (handle->kind == HANDLE_CONNECTION && ((struct connection *)handle)->attached)
        return &((struct connection *)handle)->input;
    return NULL;
}

static struct stream *stream_of(struct handle *handle, uint8_t number) {
    if (handle->kind == HANDLE_PROCESS && ((struct process *)handle)->attached && (number == 1 || number == 2))
        return &((struct process *)handle)->output[number - 1];
    if (handle->kind == HANDLE_CONNECTION && ((struct connection *)handle)->attached && number == 1)
        return &((struct connection *)handle)->output;
    if (handle->kind == HANDLE_WATCH && ((struct watch *)handle)->attached && number == 1)
        return &((struct watch *)handle)->output;
    return NULL;
}

static bool on_input(uint8_t type, uint64_t id, struct cursor *body) {
    struct handle *handle = handle_get(take_u64(body));
    struct slice data = take_rest(body);
    struct input *input = handle ? input_of(handle) : NULL;
    bool good = !body->bad && (type == MESSAGE_SEND || data.size == 0);
    if (good && (!input || !input->exists))
        reply_status(id, EBADF);
    else if (good && type == MESSAGE_CLOSE_INPUT)
        input_close(input, id);
    else if (good)
        good = input_send(input, id, data.data, data.size);
    if (handle)
        handle_drop(handle);
    return good;
}

static void signal_foreground(uint64_t id, struct process *process, uint32_t number) {
    pid_t group = process->exited ? 0 : terminal_foreground(process->master);
    if (group <= 1) {
        reply_status(id, ESRCH);
    } else if (group == process->leader && number == SIGKILL) {
        reply_status(id, EPERM); /* it would end what the terminal was opened for */
    } else if (kill(-group, (int)number) < 0) {
        reply_status(id, (uint16_t)errno);
    } else {
        put_u32(reply_begin(0), (uint32_t)group);
        reply_end(id);
    }
}

static bool on_signal(uint64_t id, struct process *process, struct cursor *body) {
    uint32_t number = take_u32(body);
    uint8_t target = take_u8(body);
    if (!cursor_done(body) || target > TARGET_FOREGROUND)
        return false;
    if (number > 64)
        reply_status(id, EINVAL);
    else if (target == TARGET_FOREGROUND && !process->terminal)
        reply_status(id, ENOTTY);
    else if (target == TARGET_FOREGROUND)
        signal_foreground(id, process, number);
    else
        process_request_signal(process, id, number, target);
    return true;
}

static size_t size_of_request(uint8_t type) {
    switch (type) {
    case MESSAGE_SIGNAL: return 13;
    case MESSAGE_RESIZE: return 12;
    default: return 8;
    }
}

static bool on_process_request(uint8_t type, uint64_t id, struct cursor *body) {
    if ((size_t)(body->end - body->at) != size_of_request(type))
        return false;
    struct handle *handle = handle_get_kind(take_u64(body), HANDLE_PROCESS);
    struct process *process = (struct process *)handle;
    bool good = !body->bad;
    if (!good) {
        /* below */
    } else if (!process || !process->attached) {
        reply_status(id, EBADF);
    } else if (type == MESSAGE_SIGNAL) {
        good = on_signal(id, process, body);
    } else if (type == MESSAGE_RESIZE) {
        uint16_t rows = take_u16(body), columns = take_u16(body);
        good = cursor_done(body);
        if (good)
            reply_status(id, (uint16_t)(process->terminal ? terminal_resize(process->master, rows, columns) : ENOTTY));
    } else if (!cursor_done(body)) {
        good = false;
    } else if (type == MESSAGE_KILL_TREE) {
        process_request_kill(process, id);
    } else if (!process->terminal) {
        reply_status(id, ENOTTY);
    } else {
        on_foreground(id, process);
    }
    if (handle)
        handle_drop(handle);
    return good;
}

static void reply_released(uint64_t id) { reply_status(id, 0); }

static bool is_passed(const struct handle *handle) {
    return handle->kind == HANDLE_CONNECTION && ((const struct connection *)handle)->passed;
}

static bool on_release(uint64_t id, struct cursor *body) {
    uint64_t number = take_u64(body);
    if (!cursor_done(body))
        return false;
    struct handle *handle = handle_get(number);
    /* One that no reply has named yet cannot be meant. */
    bool mine = handle && (handle->kind == HANDLE_FILE || handle->kind == HANDLE_WALK || input_of(handle) ||
                           stream_of(handle, 1) || is_passed(handle));
    bool removed = mine && handle_remove(number);
    bool may_hang = removed && handle_may_hang(handle);
    if (removed && !may_hang)
        release(handle);
    if (handle)
        handle_drop(handle); /* ours; the table's reference is left */
    if (may_hang)
        handle_drop_in_worker(handle, reply_released, id);
    else
        reply_released(id);
    return true;
}

static bool on_credit(struct cursor *body) {
    uint32_t window = take_u32(body), count = take_u32(body);
    bool good = window_give(window);
    for (uint32_t index = 0; index < count && !body->bad && good; index++) {
        uint64_t number = take_u64(body);
        uint8_t stream_number = take_u8(body);
        uint32_t bytes = take_u32(body);
        struct handle *handle = body->bad ? NULL : handle_get(number);
        struct stream *stream = handle ? stream_of(handle, stream_number) : NULL;
        if (stream)
            good = stream_give(stream, bytes);
        if (handle)
            handle_drop(handle);
    }
    return good && cursor_done(body);
}

static bool on_hello(struct cursor *body) {
    uint16_t version = take_u16(body), flags = take_u16(body);
    uint32_t credit = take_u32(body), floor = take_u32(body), window = take_u32(body), lease = take_u32(body);
    if (body->bad)
        return false;
    if (version != PROTOCOL_VERSION) {
        world_end(ENDING_VERSION, "the host speaks another version of the protocol", 0);
        return true;
    }
    if (flags > (HELLO_NO_CGROUPS | HELLO_TAKES_DESCRIPTORS) || floor > credit || credit > INT32_MAX || window > INT32_MAX ||
        (lease != 0 && (lease < 1000 || lease > 86400000)))
        return false;
    if ((flags & HELLO_TAKES_DESCRIPTORS) && !link_pass_descriptors())
        return false;
    streams_configure(credit, floor, window);
    greeted = true;
    if (flags & HELLO_NO_CGROUPS)
        cgroup_disable();
    world_begin(lease);
    return true;
}

static bool on_restrict(uint64_t id, struct cursor *body) {
    struct restriction restriction;
    restriction.capabilities = take_u64(body);
    restriction.filter = take_bytes(body);
    size_t size = restriction.filter.size;
    if (!cursor_done(body))
        return false;
    if (cell_inside())
        reply_status(id, EPERM);
    else if (size % INSTRUCTION_SIZE || size / INSTRUCTION_SIZE > PLAN_MOST_FILTER)
        reply_status(id, EINVAL);
    else
        reply_status(id, (uint16_t)supervisors_restrict(restriction));
    return true;
}

static bool on_request(uint8_t type, uint64_t id, struct cursor *body) {
    switch (type) {
    case MESSAGE_SEND:
    case MESSAGE_CLOSE_INPUT: return on_input(type, id, body);
    case MESSAGE_SIGNAL:
    case MESSAGE_KILL_TREE:
    case MESSAGE_RESIZE:
    case MESSAGE_FOREGROUND: return on_process_request(type, id, body);
    case MESSAGE_RELEASE: return on_release(id, body);
    case MESSAGE_RESTRICT: return on_restrict(id, body);
    case MESSAGE_MAKE_CELL: return cell_on_make(id, body->at, (size_t)(body->end - body->at));
    case MESSAGE_DROP_CELL: return cell_on_drop(id, body);
    default: break;
    }
    if (!cursor_done(body))
        return false;
    switch (type) {
    case MESSAGE_PING: reply_status(id, 0); return true;
    case MESSAGE_FACTS:
        facts_put(reply_begin(0));
        reply_end(id);
        return true;
    case MESSAGE_CLOSE:
        if (world_ending())
            reply_status(id, ESHUTDOWN);
        else
            world_end(0, NULL, id);
        return true;
    default: return false;
    }
}

bool dispatch(uint8_t type, uint64_t id, uint8_t **data, size_t size, bool owned) {
    struct cursor body = {*data, *data + size, false};
    bool numbered = type != MESSAGE_HELLO && type != MESSAGE_CREDIT && type != MESSAGE_CANCEL;
    if ((id != 0) != numbered || (type == MESSAGE_HELLO) == greeted)
        return false;
    switch (type) {
    case MESSAGE_HELLO: return on_hello(&body);
    case MESSAGE_BATCH: return on_batch(id, data, size, owned);
    case MESSAGE_CREDIT: return on_credit(&body);
    case MESSAGE_CANCEL: {
        uint64_t meant = take_u64(&body);
        if (!cursor_done(&body))
            return false;
        cancel(meant);
        return true;
    }
    default: return on_request(type, id, &body);
    }
}
