#include "link.h"

#include "loop.h"
#include "protocol.h"
#include "sys.h"

#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define READ_SIZE (64u * 1024u)
#define BULK_MOST (256u * 1024u)
#define DATA_HEADER 12u
#define CHUNK_SIZE (64u * 1024u + HEADER_SIZE + DATA_HEADER)
#define SMALL_CHUNK (8u * 1024u)
#define MOST_PARTS 16
#define READ_TURNS 8
#define WRITE_TURNS 2
#define WRITE_SIZE (256u * 1024u) /* of bulk in one turn: the kernel takes more from a host that reads meanwhile */
#define PASS_AT_ONCE 64 /* the kernel takes up to 253 */

/* Whole frames; `sent` may lie inside one. */
struct chunk {
    struct chunk *next;
    size_t size;
    size_t capacity;
    size_t sent;
    uint8_t data[];
};

struct queue {
    struct chunk *first;
    struct chunk *last;
    size_t bytes;
    size_t frame_left; /* of the frame that is being written */
};

struct partial {
    struct partial *next;
    uint8_t type;
    uint64_t id;
    struct buffer body;
};

static struct source in_source, out_source;
static int in_fd = -1, out_fd = -1;
static message_handler *handle_message;
static struct queue control, bulk;
static struct chunk *spares[2]; /* of CHUNK_SIZE and SMALL_CHUNK, so that neither a flood nor small talk allocates */
static struct partial *partials;
static unsigned partial_count;
static bool writable = true, readable, reading, ended, violated, heard;

/* Descriptors that go with the next bytes. */
static struct {
    bool wanted;
    int *fds;
    size_t count;
    size_t capacity;
} passing;

/* The frame that is being received. */
static struct {
    uint8_t preamble_size;
    uint8_t header[HEADER_SIZE];
    size_t header_size;
    uint32_t left; /* of the body */
    uint8_t type;
    bool more;
    uint64_t id;
    struct buffer body;
    struct partial *partial;
} incoming;

bool link_ended(void) { return ended; }
bool link_violated(void) { return violated; }
bool link_has_room(void) { return bulk.bytes < BULK_MOST; }
bool link_pending(void) { return control.bytes + bulk.bytes > 0; }

bool link_heard(void) {
    bool before = heard;
    heard = false;
    return before;
}

/* ---- out ---- */

static struct chunk *chunk_for(struct queue *queue, size_t size, size_t capacity) {
    struct chunk *last = queue->last;
    if (last && last->capacity - last->size >= size)
        return last;
    struct chunk *chunk = NULL;
    if (capacity < size)
        capacity = size;
    struct chunk **spare = &spares[capacity == SMALL_CHUNK];
    if (*spare && (*spare)->capacity == capacity) {
        chunk = *spare;
        *spare = NULL;
    } else {
        chunk = malloc(sizeof *chunk + capacity);
    }
    if (!chunk)
        abort();
    chunk->next = NULL;
    chunk->size = chunk->sent = 0;
    chunk->capacity = capacity;
    if (last)
        last->next = chunk;
    else
        queue->first = chunk;
    queue->last = chunk;
    return chunk;
}

static void put_header(uint8_t *at, size_t length, uint8_t type, uint8_t flags, uint64_t id) {
    store_u32(at, (uint32_t)length);
    at[4] = type;
    at[5] = flags;
    at[6] = at[7] = 0;
    store_u64(at + 8, id);
}

static void put_frame(struct queue *queue, uint8_t type, uint8_t flags, uint64_t id, const uint8_t *body, size_t size) {
    struct chunk *chunk = chunk_for(queue, HEADER_SIZE + size, queue == &control ? SMALL_CHUNK : CHUNK_SIZE);
    uint8_t *at = chunk->data + chunk->size;
    put_header(at, size, type, flags, id);
    if (size)
        memcpy(at + HEADER_SIZE, body, size);
    chunk->size += HEADER_SIZE + size;
    queue->bytes += HEADER_SIZE + size;
}

void link_send(uint8_t type, uint64_t id, const struct buffer *body) {
    if (body->failed || body->size > MAX_BODY)
        abort();
    put_frame(&control, type, 0, id, body->data, body->size);
}

void link_reply(uint64_t id, const struct buffer *body, bool bulk_allowed) {
    struct queue *queue = bulk_allowed && body->size > CONTROL_REPLY ? &bulk : &control;
    size_t at = 0;
    do {
        size_t size = body->size - at < REPLY_PIECE ? body->size - at : REPLY_PIECE;
        bool more = at + size < body->size;
        put_frame(queue, MESSAGE_REPLY, more ? FLAG_MORE : 0, id, body->data + at, size);
        at += size;
    } while (at < body->size);
}

uint8_t *link_data_room(size_t want_at_least, size_t *room) {
    if (bulk.bytes >= BULK_MOST || out_fd < 0)
        return NULL;
    struct chunk *chunk = chunk_for(&bulk, HEADER_SIZE + DATA_HEADER + want_at_least, CHUNK_SIZE);
    *room = chunk->capacity - chunk->size - HEADER_SIZE - DATA_HEADER;
    return chunk->data + chunk->size + HEADER_SIZE + DATA_HEADER;
}

void link_data_commit(uint64_t handle, uint8_t stream, uint8_t flags, uint16_t status, size_t size) {
    struct chunk *chunk = bulk.last;
    uint8_t *at = chunk->data + chunk->size;
    put_header(at, DATA_HEADER + size, MESSAGE_DATA, 0, 0);
    at += HEADER_SIZE;
    store_u64(at, handle);
    at[8] = stream;
    at[9] = flags;
    at[10] = (uint8_t)status;
    at[11] = (uint8_t)(status >> 8);
    chunk->size += HEADER_SIZE + DATA_HEADER + size;
    bulk.bytes += HEADER_SIZE + DATA_HEADER + size;
}

/* Parts of a queue to write, at most `most` bytes. */
static int gather(const struct queue *queue, struct iovec *parts, int count, size_t most) {
    for (struct chunk *chunk = queue->first; chunk && count < MOST_PARTS && most > 0; chunk = chunk->next) {
        size_t size = chunk->size - chunk->sent;
        if (size > most)
            size = most;
        if (size == 0)
            continue;
        parts[count].iov_base = chunk->data + chunk->sent;
        parts[count].iov_len = size;
        count++;
        most -= size;
    }
    return count;
}

/* The queue's part of what was written. */
static size_t advance(struct queue *queue, size_t written, size_t most) {
    size_t taken = written < most ? written : most;
    if (taken > queue->bytes)
        taken = queue->bytes;
    size_t left = taken;
    while (left > 0) {
        struct chunk *chunk = queue->first;
        if (queue->frame_left == 0 && chunk->sent < chunk->size)
            queue->frame_left = HEADER_SIZE + load_u32(chunk->data + chunk->sent);
        size_t step = chunk->size - chunk->sent;
        if (step > left)
            step = left;
        if (step > queue->frame_left)
            step = queue->frame_left;
        chunk->sent += step;
        queue->frame_left -= step;
        queue->bytes -= step;
        left -= step;
        if (chunk->sent == chunk->size) {
            queue->first = chunk->next;
            if (!queue->first)
                queue->last = NULL;
            struct chunk **spare = &spares[chunk->capacity == SMALL_CHUNK];
            if (!*spare && (chunk->capacity == CHUNK_SIZE || chunk->capacity == SMALL_CHUNK))
                *spare = chunk;
            else
                free(chunk);
        }
    }
    return written - taken;
}

bool link_pass_descriptors(void) {
    int domain = 0;
    socklen_t size = sizeof domain;
    passing.wanted = getsockopt(out_fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX;
    return passing.wanted;
}

bool link_pass(int fd) {
    if (!passing.wanted)
        return false;
    if (passing.count == passing.capacity) {
        passing.capacity = passing.capacity ? passing.capacity * 2 : 8;
        passing.fds = realloc(passing.fds, passing.capacity * sizeof *passing.fds);
        if (!passing.fds)
            abort();
    }
    /* A copy: the cell may be dropped before the host reads. */
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (copy < 0)
        abort();
    passing.fds[passing.count++] = copy;
    return true;
}

/* Writes with descriptors; when there are too many for one message, one byte alone, so that the rest goes no later than
 * it has to. */
static ssize_t write_passing(struct iovec *parts, int count) {
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(PASS_AT_ONCE * sizeof(int))];
    } control_data;
    size_t passed = passing.count < PASS_AT_ONCE ? passing.count : PASS_AT_ONCE;
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = (size_t)count, .msg_control = control_data.space};
    if (passed < passing.count) {
        parts[0].iov_len = 1;
        message.msg_iovlen = 1;
    }
    message.msg_controllen = (socklen_t)CMSG_SPACE(passed * sizeof(int)); /* the type is not the same in every C library */
    memset(&control_data, 0, sizeof control_data);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = (socklen_t)CMSG_LEN(passed * sizeof(int));
    memcpy(CMSG_DATA(header), passing.fds, passed * sizeof(int));
    ssize_t written = RETRY(sendmsg(out_fd, &message, MSG_NOSIGNAL));
    if (written <= 0)
        return written;
    for (size_t index = 0; index < passed; index++)
        close(passing.fds[index]);
    passing.count -= passed;
    memmove(passing.fds, passing.fds + passed, passing.count * sizeof(int));
    return written;
}

/* A host that reads as fast as we write must not keep us from what it says meanwhile. */
bool link_flush(void) {
    for (int turn = 0; turn < WRITE_TURNS && writable && out_fd >= 0 && link_pending(); turn++) {
        struct iovec parts[MOST_PARTS];
        /* A begun bulk frame has to be finished first; then control; then bulk. */
        size_t begun = bulk.frame_left;
        int count = gather(&bulk, parts, 0, begun);
        count = gather(&control, parts, count, SIZE_MAX);
        size_t control_size = 0;
        if (count < MOST_PARTS) {
            control_size = control.bytes;
            if (begun == 0)
                count = gather(&bulk, parts, count, WRITE_SIZE);
        } else {
            control_size = SIZE_MAX; /* nothing of bulk stands behind it */
        }
        ssize_t written = passing.count > 0 ? write_passing(parts, count) : RETRY(writev(out_fd, parts, count));
        if (written < 0) {
            writable = false;
            if (errno != EAGAIN)
                ended = true;
            break;
        }
        size_t rest = advance(&bulk, (size_t)written, begun);
        rest = advance(&control, rest, control_size);
        (void)advance(&bulk, rest, SIZE_MAX);
    }
    return writable && out_fd >= 0 && link_pending() && !ended;
}

static void on_writable(struct source *source, uint32_t events) {
    (void)source;
    writable = true;
    /* A pipe without a reader, a socket that was reset. */
    if ((events & EPOLLERR) && !(events & EPOLLOUT))
        ended = true;
}

void link_finish(int timeout_ms) {
    int64_t deadline = monotonic_ms() + timeout_ms;
    while (link_pending() && !ended) {
        writable = true;
        bool more = link_flush();
        int64_t left = deadline - monotonic_ms();
        if (!link_pending() || left <= 0)
            break;
        if (more)
            continue;
        struct pollfd poll_fd = {.fd = out_fd, .events = POLLOUT};
        if (poll(&poll_fd, 1, (int)left) < 0 && errno != EINTR)
            break;
    }
    /* Explicitly: a thread that hangs in the kernel would keep them open behind us. */
    close(in_fd);
    close(out_fd);
    in_fd = out_fd = -1;
}

/* ---- in ---- */

static bool may_continue(uint8_t type) { return type == MESSAGE_BATCH; }

static struct partial **find_partial(uint8_t type, uint64_t id) {
    struct partial **link = &partials;
    while (*link && ((*link)->type != type || (*link)->id != id))
        link = &(*link)->next;
    return link;
}

static bool start_frame(void) {
    struct cursor cursor = {incoming.header, incoming.header + HEADER_SIZE, false};
    incoming.left = take_u32(&cursor);
    incoming.type = take_u8(&cursor);
    uint8_t flags = take_u8(&cursor);
    uint16_t zero = take_u16(&cursor);
    incoming.id = take_u64(&cursor);
    incoming.more = flags & FLAG_MORE;
    if (incoming.left > MAX_BODY || (flags & ~FLAG_MORE) || zero != 0 || (incoming.more && !may_continue(incoming.type)))
        return false;
    struct partial *partial = may_continue(incoming.type) ? *find_partial(incoming.type, incoming.id) : NULL;
    if (!partial && incoming.more) {
        if (partial_count == MAX_PARTIAL || !(partial = calloc(1, sizeof *partial)))
            return false;
        partial->type = incoming.type;
        partial->id = incoming.id;
        partial->body.limit = MAX_MESSAGE;
        partial->next = partials;
        partials = partial;
        partial_count++;
    }
    incoming.partial = partial;
    incoming.body = (struct buffer){.limit = MAX_BODY};
    return true;
}

static bool finish_frame(void) {
    struct buffer *body = incoming.partial ? &incoming.partial->body : &incoming.body;
    incoming.header_size = 0;
    if (body->failed)
        return false;
    if (incoming.more)
        return true;
    bool good = handle_message(incoming.type, incoming.id, &body->data, body->size, true);
    free(body->data);
    if (incoming.partial) {
        struct partial **link = find_partial(incoming.type, incoming.id);
        *link = incoming.partial->next;
        free(incoming.partial);
        partial_count--;
    }
    return good;
}

static bool take_preamble(const uint8_t **data, size_t *size) {
    while (incoming.preamble_size < PREAMBLE_SIZE && *size > 0) {
        if (**data != (uint8_t)HOST_PREAMBLE[incoming.preamble_size])
            return false;
        incoming.preamble_size++;
        ++*data;
        --*size;
    }
    return true;
}

static bool consume(const uint8_t *data, size_t size) {
    if (!take_preamble(&data, &size))
        return false;
    while (size > 0 && reading) {
        if (incoming.header_size < HEADER_SIZE) {
            size_t step = HEADER_SIZE - incoming.header_size;
            if (step > size)
                step = size;
            memcpy(incoming.header + incoming.header_size, data, step);
            incoming.header_size += step;
            data += step;
            size -= step;
            if (incoming.header_size < HEADER_SIZE)
                break;
            if (!start_frame())
                return false;
            /* Complete and in one piece: no copy. */
            if (!incoming.partial && !incoming.more && size >= incoming.left) {
                uint8_t *body = (uint8_t *)(uintptr_t)data;
                incoming.header_size = 0;
                if (!handle_message(incoming.type, incoming.id, &body, incoming.left, false))
                    return false;
                data += incoming.left;
                size -= incoming.left;
                continue;
            }
        }
        size_t step = incoming.left < size ? incoming.left : size;
        struct buffer *body = incoming.partial ? &incoming.partial->body : &incoming.body;
        if (!incoming.partial && body->capacity == 0)
            buffer_reserve(body, incoming.left);
        put_raw(body, data, step);
        if (body->failed)
            return false;
        incoming.left -= (uint32_t)step;
        data += step;
        size -= step;
        if (incoming.left == 0 && !finish_frame())
            return false;
    }
    return true;
}

void link_end(void) { ended = true; }

void link_feed(const uint8_t *data, size_t size) {
    heard = true;
    if (!violated && !consume(data, size)) {
        violated = true;
        reading = false;
    }
}

bool link_receive(void) {
    static uint8_t space[READ_SIZE];
    for (int turn = 0; turn < READ_TURNS && readable && reading && !ended; turn++) {
        ssize_t size = RETRY(read(in_fd, space, sizeof space));
        if (size < 0 && errno == EAGAIN) {
            readable = false;
            break;
        }
        if (size <= 0) {
            ended = true;
            break;
        }
        link_feed(space, (size_t)size);
    }
    return readable && reading && !ended;
}

static void on_readable(struct source *source, uint32_t events) {
    (void)source, (void)events;
    readable = true;
}

void link_stop_reading(void) { reading = false; }

void link_start(int in, int out, message_handler *handler) {
    in_fd = in;
    out_fd = out;
    handle_message = handler;
    reading = true;
    in_source.ready = on_readable;
    out_source.ready = on_writable;
    if (in >= 0)
        loop_add(in, EPOLLIN | EPOLLRDHUP, &in_source);
    if (out >= 0)
        loop_add(out, EPOLLOUT, &out_source);
}
