/* Watching directories with inotify(7). */
#ifndef WARDEN_WATCH_H
#define WARDEN_WATCH_H

#include "handles.h"
#include "stream.h"

struct watch {
    struct handle handle; /* first */
    int fd;               /* also the stream's, which closes it */
    bool attached;
    struct stream output;
};

void watch_attach(struct watch *watch);
void watch_release(struct watch *watch);

#endif
