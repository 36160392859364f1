/* Inputs of processes, terminals and connections: one write in flight, the rest in order behind it. */
#include "link.h"
#include "protocol.h"
#include "reply.h"
#include "stream.h"
#include "sys.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void pop(struct input *input, uint16_t status) {
    struct pending_send *send = input->first;
    input->first = send->next;
    if (!input->first)
        input->last = &input->first;
    input->queued -= send->size;
    reply_status(send->id, status);
    free(send);
}

static void shut(struct input *input) {
    if (input->fd < 0)
        return;
    loop_remove(input->fd);
    if (input->is_socket)
        shutdown(input->fd, SHUT_WR);
    close(input->fd);
    input->fd = -1;
}

void input_broken(struct input *input, bool tell) {
    if (tell && !input->reader_gone && input->fd >= 0) {
        struct buffer body = {.limit = 64};
        put_u64(&body, input->owner->number);
        put_u16(&body, EPIPE);
        link_send(MESSAGE_INPUT_CLOSED, 0, &body);
        buffer_free(&body);
    }
    input->reader_gone = true;
    if (!input->is_terminal)
        shut(input);
    while (input->first)
        pop(input, input->first->close ? 0 : input->first->cancelled ? ECANCELED : EPIPE);
}

static void work_off(struct input *input) {
    while (input->first) {
        struct pending_send *send = input->first;
        if (send->close) {
            if (!input->is_terminal)
                shut(input);
            pop(input, 0);
            continue;
        }
        if (input->fd < 0) {
            pop(input, EPIPE);
            continue;
        }
        while (send->at < send->size && !send->cancelled) {
            ssize_t count = RETRY(write(input->fd, send->data + send->at, send->size - send->at));
            if (count < 0 && errno == EAGAIN)
                return;
            if (count < 0) {
                input_broken(input, true);
                return;
            }
            send->at += (size_t)count;
        }
        pop(input, send->at == send->size ? 0 : ECANCELED);
    }
}

static void on_ready(struct source *source, uint32_t events) {
    struct input *input = CONTAINER(source, struct input, source);
    if (input->fd < 0)
        return;
    if (events & EPOLLERR) {
        input_broken(input, true);
        return;
    }
    work_off(input);
}

void input_start(struct input *input, struct handle *owner, int fd, bool is_terminal, bool is_socket) {
    memset(input, 0, sizeof *input);
    input->owner = owner;
    input->fd = fd;
    input->exists = fd >= 0;
    input->is_terminal = is_terminal;
    input->is_socket = is_socket;
    input->last = &input->first;
    input->source.ready = on_ready;
    if (fd >= 0)
        loop_add(fd, EPOLLOUT, &input->source);
}

void input_stop(struct input *input) {
    shut(input);
    while (input->first)
        pop(input, input->first->close ? 0 : EPIPE);
}

static struct pending_send *append(struct input *input, uint64_t id, const uint8_t *data, size_t size) {
    struct pending_send *send = malloc(sizeof *send + size);
    if (!send)
        abort();
    send->next = NULL;
    send->id = id;
    send->close = send->cancelled = false;
    send->at = 0;
    send->size = size;
    if (size)
        memcpy(send->data, data, size);
    *input->last = send;
    input->last = &send->next;
    input->queued += size;
    return send;
}

bool input_send(struct input *input, uint64_t id, const uint8_t *data, size_t size) {
    if (size > INPUT_WINDOW - input->queued)
        return false;
    if (input->fd < 0 || input->reader_gone) {
        reply_status(id, EPIPE);
        return true;
    }
    size_t at = 0;
    if (!input->first) {
        /* Usually the pipe takes it all, and nothing is copied. */
        while (at < size) {
            ssize_t count = RETRY(write(input->fd, data + at, size - at));
            if (count < 0 && errno == EAGAIN)
                break;
            if (count < 0) {
                input_broken(input, true);
                reply_status(id, EPIPE);
                return true;
            }
            at += (size_t)count;
        }
        if (at == size) {
            reply_status(id, 0);
            return true;
        }
    }
    struct pending_send *send = append(input, id, data, size);
    send->at = at;
    return true;
}

void input_close(struct input *input, uint64_t id) {
    if (!input->first) {
        if (!input->is_terminal)
            shut(input);
        reply_status(id, 0);
        return;
    }
    append(input, id, NULL, 0)->close = true;
}

bool input_cancel(struct input *input, uint64_t id) {
    for (struct pending_send *send = input->first; send; send = send->next)
        if (send->id == id && !send->close) {
            send->cancelled = true;
            work_off(input);
            return true;
        }
    return false;
}
