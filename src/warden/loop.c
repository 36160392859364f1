#include "loop.h"

#include "sys.h"

#include <stdlib.h>
#include <unistd.h>

static int epoll_fd = -1;
static struct handle **later;
static size_t later_count;
static size_t later_capacity;

int loop_start(void) { return epoll_fd = epoll_create1(EPOLL_CLOEXEC); }

void loop_add(int fd, uint32_t events, struct source *source) {
    struct epoll_event event = {.events = events | EPOLLET, .data.ptr = source};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 && errno != EPERM)
        abort();
}

void loop_remove(int fd) { (void)epoll_ctl(epoll_fd, EPOLL_CTL_DEL, fd, NULL); }

void loop_drop_later(struct handle *handle) {
    if (later_count == later_capacity) {
        later_capacity = later_capacity ? later_capacity * 2 : 64;
        later = realloc(later, later_capacity * sizeof *later);
        if (!later)
            abort();
    }
    later[later_count++] = handle;
}

void loop_round(int timeout_ms) {
    struct epoll_event events[128];
    int count = epoll_wait(epoll_fd, events, 128, timeout_ms);
    for (int index = 0; index < count; index++) {
        struct source *source = events[index].data.ptr;
        source->ready(source, events[index].events);
    }
    while (later_count > 0)
        handle_drop(later[--later_count]);
}
