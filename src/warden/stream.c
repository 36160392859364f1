#include "stream.h"

#include "link.h"
#include "protocol.h"
#include "sys.h"

#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define PIECE (64u * 1024u)
#define SMALLEST_ROOM 4096u
#define TERMINAL_MOST (192u * 1024u) /* more than the kernel keeps of a terminal */
#define ROUND_MOST 64                /* turns in one round, so that control is looked at in between */

static struct {
    uint32_t credit;
    uint32_t floor;
    int64_t window;
} limits;

struct list {
    struct stream *first;
    struct stream *last;
};
static struct list ready, starved;

void streams_configure(uint32_t credit, uint32_t floor, uint32_t window) {
    limits.credit = credit;
    limits.floor = floor;
    limits.window = window;
}

static struct list *list_of(enum stream_place place) { return place == PLACE_READY ? &ready : &starved; }

static void put_in(struct stream *stream, enum stream_place place) {
    if (stream->place == place)
        return;
    if (stream->place != PLACE_NONE) {
        struct list *list = list_of(stream->place);
        *(stream->previous ? &stream->previous->next : &list->first) = stream->next;
        *(stream->next ? &stream->next->previous : &list->last) = stream->previous;
    }
    stream->next = stream->previous = NULL;
    stream->place = place;
    if (place == PLACE_NONE)
        return;
    struct list *list = list_of(place);
    stream->previous = list->last;
    *(list->last ? &list->last->next : &list->first) = stream;
    list->last = stream;
}

static bool has_something(const struct stream *stream) {
    return !stream->ended && (stream->readable || stream->pending || stream->end_asked);
}

static void consider(struct stream *stream) {
    bool may = stream->credit > 0 || stream->discard || stream->end_asked || stream->hung_up;
    put_in(stream, has_something(stream) && may ? PLACE_READY : PLACE_NONE);
}

static void on_ready(struct source *source, uint32_t events) {
    struct stream *stream = CONTAINER(source, struct stream, source);
    stream->readable = true;
    if (events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP))
        stream->hung_up = true;
    if (stream->place != PLACE_STARVED)
        consider(stream);
}

void stream_start(struct stream *stream, struct handle *owner, enum stream_kind kind, uint8_t number, int fd) {
    memset(stream, 0, sizeof *stream);
    stream->owner = owner;
    stream->kind = kind;
    stream->number = number;
    stream->fd = fd;
    stream->credit = limits.credit;
    stream->source.ready = on_ready;
    if (fd >= 0)
        loop_add(fd, EPOLLIN | EPOLLRDHUP, &stream->source);
    else
        stream->ended = true;
}

void stream_stop(struct stream *stream) {
    put_in(stream, PLACE_NONE);
    free(stream->pending);
    stream->pending = NULL;
    stream->ended = true;
    if (stream->fd >= 0) {
        loop_remove(stream->fd);
        close(stream->fd);
        stream->fd = -1;
    }
}

void stream_discard(struct stream *stream) {
    if (stream->fd < 0)
        return;
    stream->discard = true;
    stream->ended = false;
    stream->end_asked = false;
    free(stream->pending);
    stream->pending = NULL;
    /* What became readable while nobody wanted it gives no new event. */
    stream->readable = true;
    consider(stream);
}

bool stream_give(struct stream *stream, uint32_t bytes) {
    if (stream->ended)
        return true;
    stream->credit += bytes;
    if (stream->credit > INT32_MAX)
        return false;
    consider(stream);
    return true;
}

bool window_give(uint32_t bytes) {
    limits.window += bytes;
    if (limits.window > INT32_MAX)
        return false;
    while (limits.window > 0 && starved.first)
        put_in(starved.first, PLACE_READY);
    return true;
}

static void send_end(struct stream *stream, int status) {
    size_t room;
    if (!stream->discard) {
        if (!link_data_room(0, &room))
            return; /* comes back */
        link_data_commit(stream->owner->number, stream->number, DATA_END, (uint16_t)status, 0);
    }
    stream->ended = true;
    stream->end_asked = false;
    put_in(stream, PLACE_NONE);
    /* The descriptor of a terminal is kept: closing it would hang up what still runs there. */
    if (stream->kind == STREAM_TERMINAL)
        return;
    loop_remove(stream->fd);
    if (stream->kind == STREAM_PIPE) {
        close(stream->fd);
        stream->fd = -1;
    }
}

/* Records without their padding, in place: they become shorter. */
static size_t pack_records(uint8_t *data, size_t size) {
    size_t from = 0, to = 0;
    while (size - from >= sizeof(struct inotify_event)) {
        struct inotify_event event;
        memcpy(&event, data + from, sizeof event);
        const uint8_t *name = data + from + sizeof event;
        size_t length = strnlen((const char *)name, event.len);
        from += sizeof event + event.len;
        store_u32(data + to, (uint32_t)event.wd);
        store_u32(data + to + 4, event.mask);
        store_u32(data + to + 8, (uint32_t)length);
        memmove(data + to + 12, name, length);
        to += 12 + length;
    }
    return to;
}

static ssize_t take(struct stream *stream, uint8_t *into, size_t size) {
    if (stream->pending) {
        size_t left = stream->pending_size - stream->pending_at;
        if (size > left)
            size = left;
        memcpy(into, stream->pending + stream->pending_at, size);
        stream->pending_at += size;
        if (stream->pending_at == stream->pending_size) {
            free(stream->pending);
            stream->pending = NULL;
        }
        return (ssize_t)size;
    }
    ssize_t count = RETRY(read(stream->fd, into, size));
    if (count > 0)
        stream->total += (uint64_t)count;
    if (count > 0 && stream->kind == STREAM_WATCH)
        count = (ssize_t)pack_records(into, (size_t)count);
    return count;
}

static void discard_some(struct stream *stream) {
    static uint8_t nowhere[PIECE];
    put_in(stream, PLACE_NONE); /* and behind the others again */
    for (int turn = 0; turn < 4; turn++) {
        ssize_t count = RETRY(read(stream->fd, nowhere, sizeof nowhere));
        if (count > 0) {
            stream->total += (uint64_t)count;
            continue;
        }
        stream->readable = false;
        if ((count == 0 || errno != EAGAIN) && stream->kind != STREAM_TERMINAL)
            send_end(stream, 0);
        return;
    }
    consider(stream);
}

/* How much may be sent now, and whether it counts against the window. */
static size_t allowance(const struct stream *stream, bool *windowed) {
    int64_t most = stream->credit < (int64_t)PIECE ? stream->credit : (int64_t)PIECE;
    *windowed = limits.window > 0;
    if (*windowed)
        return (size_t)(most < limits.window ? most : limits.window);
    int64_t room = (int64_t)limits.floor - ((int64_t)limits.credit - stream->credit);
    if (room <= 0)
        return 0;
    return (size_t)(most < room ? most : room);
}

/* One turn of one stream. False when the link is full. */
static bool serve(struct stream *stream) {
    if (stream->discard) {
        discard_some(stream);
        return true;
    }
    if (stream->end_asked && !stream->pending) {
        send_end(stream, 0);
        return stream->ended;
    }
    bool windowed;
    size_t most = stream->credit > 0 ? allowance(stream, &windowed) : 0;
    size_t least = stream->kind == STREAM_WATCH ? 512 : 1;
    if (most < least) {
        /* The end can be seen all the same, where it does not hide behind data. */
        int left = 0;
        if (stream->hung_up && stream->kind == STREAM_PIPE && ioctl(stream->fd, FIONREAD, &left) == 0 && left == 0) {
            send_end(stream, 0);
            return stream->ended;
        }
        put_in(stream, stream->credit >= (int64_t)least ? PLACE_STARVED : PLACE_NONE);
        return true;
    }
    size_t room;
    uint8_t *into = link_data_room(most < SMALLEST_ROOM ? most : SMALLEST_ROOM, &room);
    if (!into)
        return false;
    if (room > most)
        room = most;
    ssize_t count = take(stream, into, room);
    if (count > 0) {
        stream->credit -= count;
        if (windowed)
            limits.window -= count;
        link_data_commit(stream->owner->number, stream->number, windowed ? DATA_WINDOWED : 0, 0, (size_t)count);
        if (stream->kind == STREAM_PIPE && (size_t)count < room && !stream->hung_up)
            stream->readable = false; /* emptied; the next write is a new event */
        /* Others first. */
        put_in(stream, PLACE_NONE);
        consider(stream);
        return true;
    }
    if (count < 0 && errno == EAGAIN) {
        stream->readable = false;
        put_in(stream, PLACE_NONE);
        return true;
    }
    if (stream->kind == STREAM_TERMINAL) {
        /* EIO: nobody holds it just now. It ends with its leader, not before. */
        stream->readable = false;
        put_in(stream, PLACE_NONE);
        return true;
    }
    stream->readable = false;
    send_end(stream, count < 0 && stream->kind == STREAM_SOCKET ? errno : 0);
    if (!stream->ended)
        stream->readable = true;
    return stream->ended;
}

bool streams_serve(void) {
    for (int turn = 0; turn < ROUND_MOST && ready.first; turn++)
        if (!serve(ready.first))
            break; /* the link is full */
    return ready.first != NULL;
}

uint64_t stream_finish_terminal(struct stream *stream) {
    if (stream->fd < 0 || stream->ended || stream->discard)
        return stream->total;
    uint8_t *tail = malloc(TERMINAL_MOST);
    size_t size = 0;
    /* A read that would block has first waited for what was on its way inside the kernel, so EAGAIN means that all is
     * here. A job in the background that goes on writing ends with the bound. */
    while (tail && size < TERMINAL_MOST) {
        ssize_t count = RETRY(read(stream->fd, tail + size, TERMINAL_MOST - size));
        if (count <= 0)
            break;
        size += (size_t)count;
    }
    stream->total += size;
    if (size > 0) {
        uint8_t *fitting = realloc(tail, size);
        stream->pending = fitting ? fitting : tail;
        stream->pending_at = 0;
        stream->pending_size = size;
    } else {
        free(tail);
    }
    stream->readable = false;
    stream->end_asked = true;
    consider(stream);
    return stream->total;
}
