#include "reply.h"

#include "link.h"
#include "protocol.h"

static struct buffer space = {.limit = MAX_BODY};

struct buffer *reply_begin(uint16_t status) {
    space.size = 0;
    put_u16(&space, status);
    return &space;
}

void reply_end(uint64_t id) { link_reply(id, &space, false); }

void reply_status(uint64_t id, uint16_t status) {
    reply_begin(status);
    reply_end(id);
}
