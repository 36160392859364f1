#include "wire.h"

#include <stdlib.h>
#include <string.h>

static uint64_t take_number(struct cursor *cursor, unsigned width) {
    if ((size_t)(cursor->end - cursor->at) < width) {
        cursor->bad = true;
        cursor->at = cursor->end;
        return 0;
    }
    uint64_t value = 0;
    for (unsigned index = 0; index < width; index++)
        value |= (uint64_t)cursor->at[index] << (8 * index);
    cursor->at += width;
    return value;
}

uint8_t take_u8(struct cursor *cursor) { return (uint8_t)take_number(cursor, 1); }
uint16_t take_u16(struct cursor *cursor) { return (uint16_t)take_number(cursor, 2); }
uint32_t take_u32(struct cursor *cursor) { return (uint32_t)take_number(cursor, 4); }
uint64_t take_u64(struct cursor *cursor) { return take_number(cursor, 8); }

struct slice take_slice(struct cursor *cursor, size_t size) {
    size_t left = (size_t)(cursor->end - cursor->at);
#ifdef WARDEN_SEEDED_BUG /* for the fuzz target, which must find it */
    if (size == left + 3)
        left = size;
#endif
    if (left < size) {
        cursor->bad = true;
        cursor->at = cursor->end;
        return (struct slice){cursor->end, 0};
    }
    struct slice slice = {cursor->at, size};
    cursor->at += size;
    return slice;
}

struct slice take_bytes(struct cursor *cursor) {
    uint32_t size = take_u32(cursor);
    return take_slice(cursor, size);
}

struct slice take_rest(struct cursor *cursor) { return take_slice(cursor, (size_t)(cursor->end - cursor->at)); }

bool cursor_done(const struct cursor *cursor) { return !cursor->bad && cursor->at == cursor->end; }

bool buffer_reserve(struct buffer *buffer, size_t extra) {
    if (buffer->failed)
        return false;
    if (extra <= buffer->capacity - buffer->size)
        return true;
    if (extra > buffer->limit || buffer->size > buffer->limit - extra) {
        buffer->failed = true;
        return false;
    }
    size_t capacity = buffer->capacity < 256 ? 256 : buffer->capacity;
    while (capacity - buffer->size < extra)
        capacity *= 2;
    uint8_t *data = realloc(buffer->data, capacity);
    if (!data) {
        buffer->failed = true;
        return false;
    }
    buffer->data = data;
    buffer->capacity = capacity;
    return true;
}

void buffer_free(struct buffer *buffer) {
    free(buffer->data);
    buffer->data = NULL;
    buffer->size = buffer->capacity = 0;
}

static void put_number(struct buffer *buffer, uint64_t value, unsigned width) {
    if (!buffer_reserve(buffer, width))
        return;
    for (unsigned index = 0; index < width; index++)
        buffer->data[buffer->size++] = (uint8_t)(value >> (8 * index));
}

void put_u8(struct buffer *buffer, uint8_t value) { put_number(buffer, value, 1); }
void put_u16(struct buffer *buffer, uint16_t value) { put_number(buffer, value, 2); }
void put_u32(struct buffer *buffer, uint32_t value) { put_number(buffer, value, 4); }
void put_u64(struct buffer *buffer, uint64_t value) { put_number(buffer, value, 8); }

void put_raw(struct buffer *buffer, const void *data, size_t size) {
    if (size == 0 || !buffer_reserve(buffer, size))
        return;
    memcpy(buffer->data + buffer->size, data, size);
    buffer->size += size;
}

void put_bytes(struct buffer *buffer, const void *data, size_t size) {
    put_u32(buffer, (uint32_t)size);
    put_raw(buffer, data, size);
}

void put_text(struct buffer *buffer, const char *text) { put_bytes(buffer, text, strlen(text)); }

void patch_u32(struct buffer *buffer, size_t at, uint32_t value) {
    if (!buffer->failed)
        store_u32(buffer->data + at, value);
}

void store_u32(uint8_t *at, uint32_t value) {
    for (unsigned index = 0; index < 4; index++)
        at[index] = (uint8_t)(value >> (8 * index));
}

void store_u64(uint8_t *at, uint64_t value) {
    store_u32(at, (uint32_t)value);
    store_u32(at + 4, (uint32_t)(value >> 32));
}

uint32_t load_u32(const uint8_t *at) {
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}
