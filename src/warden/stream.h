/* Output streams under credit, and inputs with what waits to be written. */
#ifndef WARDEN_STREAM_H
#define WARDEN_STREAM_H

#include "handles.h"
#include "loop.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum stream_kind { STREAM_PIPE, STREAM_TERMINAL, STREAM_SOCKET, STREAM_WATCH };
enum stream_place { PLACE_NONE, PLACE_READY, PLACE_STARVED };

struct stream {
    struct source source;
    struct handle *owner;
    enum stream_kind kind;
    uint8_t number;
    int fd; /* -1: there is none */
    bool readable;
    bool hung_up;  /* the last writer is gone: read on until the end */
    bool ended;    /* END was sent, or would have been */
    bool end_asked; /* a terminal whose leader ended: END behind `pending` */
    bool discard;  /* nobody wants it any more */
    int64_t credit;
    uint64_t total; /* bytes read from the descriptor */
    uint8_t *pending; /* of a terminal: what lay in it when the leader ended */
    size_t pending_at;
    size_t pending_size;
    enum stream_place place;
    struct stream *next;
    struct stream *previous;
};

void streams_configure(uint32_t credit, uint32_t floor, uint32_t window);
void stream_start(struct stream *stream, struct handle *owner, enum stream_kind kind, uint8_t number, int fd);
void stream_stop(struct stream *stream);
void stream_discard(struct stream *stream);
/* False on overflow. */
bool stream_give(struct stream *stream, uint32_t bytes);
bool window_give(uint32_t bytes);
/* The leader of a terminal ended: takes what lies in it and puts END behind. Returns the length of the stream. */
uint64_t stream_finish_terminal(struct stream *stream);
/* Moves data to the link while there is room. True when it could not move all that it may. */
bool streams_serve(void);

struct pending_send {
    struct pending_send *next;
    uint64_t id;
    bool close;     /* CLOSE_INPUT */
    bool cancelled;
    size_t at;
    size_t size;
    uint8_t data[];
};

struct input {
    struct source source;
    struct handle *owner;
    int fd; /* -1: closed, or never there */
    bool exists; /* there is an input, perhaps closed */
    bool is_terminal;
    bool is_socket;
    bool reader_gone;
    size_t queued; /* bytes without an answer */
    struct pending_send *first;
    struct pending_send **last;
};

void input_start(struct input *input, struct handle *owner, int fd, bool is_terminal, bool is_socket);
void input_stop(struct input *input);
/* False: more than the window. */
bool input_send(struct input *input, uint64_t id, const uint8_t *data, size_t size);
void input_close(struct input *input, uint64_t id);
bool input_cancel(struct input *input, uint64_t id);
/* The reader is gone: everything that waits fails. */
void input_broken(struct input *input, bool tell);

#endif
