/* Reading and building records. A cursor never passes its end; a buffer never passes its limit. */
#ifndef WARDEN_WIRE_H
#define WARDEN_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct slice {
    const uint8_t *data;
    size_t size;
};

/* Reads beyond the end give zeros and set `bad`. */
struct cursor {
    const uint8_t *at;
    const uint8_t *end;
    bool bad;
};

uint8_t take_u8(struct cursor *cursor);
uint16_t take_u16(struct cursor *cursor);
uint32_t take_u32(struct cursor *cursor);
uint64_t take_u64(struct cursor *cursor);
struct slice take_slice(struct cursor *cursor, size_t size);
struct slice take_bytes(struct cursor *cursor);
struct slice take_rest(struct cursor *cursor);

/* Nothing was missing and nothing is left. */
bool cursor_done(const struct cursor *cursor);

/* Growable; `failed` is sticky and means that memory or `limit` ran out. */
struct buffer {
    uint8_t *data;
    size_t size;
    size_t capacity;
    size_t limit;
    bool failed;
};

bool buffer_reserve(struct buffer *buffer, size_t extra);
void buffer_free(struct buffer *buffer);
void put_u8(struct buffer *buffer, uint8_t value);
void put_u16(struct buffer *buffer, uint16_t value);
void put_u32(struct buffer *buffer, uint32_t value);
void put_u64(struct buffer *buffer, uint64_t value);
void put_raw(struct buffer *buffer, const void *data, size_t size);
void put_bytes(struct buffer *buffer, const void *data, size_t size);
void put_text(struct buffer *buffer, const char *text);
/* Overwrites what was put before. */
void patch_u32(struct buffer *buffer, size_t at, uint32_t value);

void store_u32(uint8_t *at, uint32_t value);
void store_u64(uint8_t *at, uint64_t value);
uint32_t load_u32(const uint8_t *at);

#endif
