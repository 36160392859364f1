/* Decoding a batch. Everything is checked here, so that what runs meets only well-formed fields. */
#include "batch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Fields in order: p path, h handle, b handle or none, x bytes, 1 2 4 8 numbers, s step with a stat, S such a step or
 * none, B list of bytes, P list of pairs of bytes, U list of u32, R list of limits. */
static const char *const field_types[OP_END] = {
    [OP_OPEN] = "p24b",
    [OP_CLOSE] = "h",
    [OP_READ] = "h41",
    [OP_READ_AT] = "h84",
    [OP_WRITE] = "hx",
    [OP_SEEK] = "h81",
    [OP_SYNC] = "h",
    [OP_TRUNCATE] = "h8",
    [OP_STAT] = "p1b",
    [OP_STAT_HANDLE] = "h",
    [OP_CHECK] = "s218888888",
    [OP_REAL_PATH] = "p1",
    [OP_READ_LINK] = "pb",
    [OP_MAKE_SYMLINK] = "xpb",
    [OP_LINK] = "ppbb",
    [OP_RENAME] = "pp1bb",
    [OP_UNLINK] = "pb",
    [OP_MAKE_DIRECTORY] = "p4b",
    [OP_REMOVE_DIRECTORY] = "pb",
    [OP_SET_MODE] = "h4S1",
    [OP_SET_TIMES] = "h188",
    [OP_SET_OWNER] = "h44S",
    [OP_LIST_DIRECTORY] = "h4",
    [OP_OPEN_WALK] = "pB4b",
    [OP_READ_WALK] = "h4",
    [OP_LOCK] = "h1",
    [OP_COPY_RANGE] = "hh8",
    [OP_STAT_FILE_SYSTEM] = "pb",
    [OP_OPEN_WATCH] = "",
    [OP_ADD_WATCH] = "hpb",
    [OP_REMOVE_WATCH] = "h4",
    [OP_FIND_EXECUTABLE] = "xB",
    [OP_SPAWN] = "pBPp111122444UR",
    [OP_CONNECT] = "1x2",
};

static bool gives_handle(uint8_t opcode) {
    return opcode == OP_OPEN || opcode == OP_OPEN_WALK || opcode == OP_OPEN_WATCH || opcode == OP_SPAWN ||
           opcode == OP_CONNECT;
}

static bool gives_path(uint8_t opcode) {
    return opcode == OP_REAL_PATH || opcode == OP_READ_LINK || opcode == OP_FIND_EXECUTABLE;
}

static bool gives_stat(uint8_t opcode) { return opcode == OP_STAT || opcode == OP_STAT_HANDLE; }

/* Steps before `limit` may be referred to. */
struct decoder {
    struct cursor cursor;
    const struct step *steps;
    unsigned limit;
};

static uint16_t take_step(struct decoder *decoder, bool (*gives)(uint8_t), bool or_none) {
    uint16_t step = take_u16(&decoder->cursor);
    if (or_none && step == NO_STEP)
        return step;
    if (step >= decoder->limit || !gives(decoder->steps[step].operation.opcode)) {
        decoder->cursor.bad = true;
        return 0;
    }
    return step;
}

static struct handle_field take_handle(struct decoder *decoder, bool or_none) {
    struct handle_field field = {.tag = take_u8(&decoder->cursor)};
    if (field.tag == TAG_NUMBER)
        field.number = take_u64(&decoder->cursor);
    else if (field.tag == TAG_STEP)
        field.step = take_step(decoder, gives_handle, false);
    else if (field.tag != TAG_NONE || !or_none)
        decoder->cursor.bad = true;
    return field;
}

static struct path_field take_path(struct decoder *decoder) {
    struct path_field field = {.tag = take_u8(&decoder->cursor)};
    if (field.tag == PATH_BYTES)
        field.bytes = take_bytes(&decoder->cursor);
    else if (field.tag <= PATH_NAME)
        field.step = take_step(decoder, gives_path, false);
    else
        decoder->cursor.bad = true;
    return field;
}

static struct list_field take_list(struct cursor *cursor, char type) {
    struct list_field list = {.count = take_u32(cursor)};
    list.raw.data = cursor->at;
    for (uint32_t index = 0; index < list.count && !cursor->bad; index++) {
        if (type == 'U') {
            take_slice(cursor, 4);
        } else if (type == 'R') {
            take_slice(cursor, 20);
        } else {
            take_bytes(cursor);
            if (type == 'P')
                take_bytes(cursor);
        }
    }
    list.raw.size = (size_t)(cursor->at - list.raw.data);
    return list;
}

static void take_operation(struct decoder *decoder, uint8_t opcode, struct operation *operation) {
    struct cursor *cursor = &decoder->cursor;
    operation->opcode = opcode;
    if (operation->opcode == 0 || operation->opcode >= OP_END) {
        cursor->bad = true;
        return;
    }
    unsigned paths = 0, handles = 0, numbers = 0, lists = 0;
    for (const char *type = field_types[operation->opcode]; *type && !cursor->bad; type++) {
        switch (*type) {
        case 'p': operation->paths[paths++] = take_path(decoder); break;
        case 'h': operation->handles[handles++] = take_handle(decoder, false); break;
        case 'b': operation->handles[handles++] = take_handle(decoder, true); break;
        case 'x': operation->data = take_bytes(cursor); break;
        case '1': operation->numbers[numbers++] = take_u8(cursor); break;
        case '2': operation->numbers[numbers++] = take_u16(cursor); break;
        case '4': operation->numbers[numbers++] = take_u32(cursor); break;
        case '8': operation->numbers[numbers++] = take_u64(cursor); break;
        case 's': operation->numbers[numbers++] = take_step(decoder, gives_stat, false); break;
        case 'S': operation->numbers[numbers++] = take_step(decoder, gives_stat, true); break;
        default: operation->lists[lists++] = take_list(cursor, *type); break;
        }
    }
}

static bool take_one_step(struct decoder *decoder, struct batch *batch, unsigned index, size_t *undos) {
    struct cursor *cursor = &decoder->cursor;
    struct step *step = &batch->steps[index];
    uint8_t opcode = take_u8(cursor);
    uint8_t flags = take_u8(cursor);
    uint16_t tolerated = take_u16(cursor);
    step->tolerated = take_slice(cursor, (size_t)tolerated * 2);
    if (flags > 1)
        return false;
    decoder->limit = index;
    take_operation(decoder, opcode, &step->operation);
    if (flags == 1 && !cursor->bad) {
        step->undo = &batch->undos[(*undos)++];
        decoder->limit = index + 1;
        take_operation(decoder, take_u8(cursor), step->undo);
        if (gives_handle(step->undo->opcode))
            return false;
    }
    return !cursor->bad;
}

struct batch *batch_decode(uint64_t id, uint8_t *message, size_t size, uint16_t *status) {
    struct decoder decoder = {.cursor = {message, message + size, false}};
    uint16_t flags = take_u16(&decoder.cursor);
    uint16_t count = take_u16(&decoder.cursor);
    *status = EPROTO;
    /* A step takes at least 4 bytes, so that the count promises no more memory than the message is long. */
    if (decoder.cursor.bad || flags != 0 || count == 0 || count > MAX_STEPS || size < (size_t)count * 4) {
        free(message);
        return NULL;
    }
    struct batch *batch = calloc(1, sizeof *batch);
    if (batch) {
        batch->message = message;
        batch->message_size = size;
        batch->id = id;
        batch->count = count;
        batch->reply.limit = MAX_MESSAGE;
        batch->steps = calloc(count, sizeof *batch->steps);
        batch->undos = calloc(count, sizeof *batch->undos);
        batch->results = calloc(count, sizeof *batch->results);
    }
    if (!batch || !batch->steps || !batch->undos || !batch->results) {
        *status = ENOMEM;
        if (batch)
            batch_free(batch);
        else
            free(message);
        return NULL;
    }
    decoder.steps = batch->steps;
    size_t undos = 0;
    for (unsigned index = 0; index < count; index++)
        if (!take_one_step(&decoder, batch, index, &undos)) {
            batch_free(batch);
            return NULL;
        }
    if (!cursor_done(&decoder.cursor)) {
        batch_free(batch);
        return NULL;
    }
    return batch;
}
