/* Entries of one open directory, with their metadata. */
#ifndef WARDEN_LISTING_H
#define WARDEN_LISTING_H

#include "wire.h"

#include <stddef.h>
#include <sys/stat.h>

struct listing {
    size_t at;
    size_t size;
    int end;
    _Alignas(8) uint8_t entries[16 * 1024];
};

struct listing *listing_new(void);
void listing_free(struct listing *listing);

/* 1 and a name, which lives until the next call; 0 at the end; -1 with errno. `.` and `..` are left out. */
int listing_next(struct listing *listing, int directory, const char **name, unsigned char *type);

/* Puts an entry with the given path; false when it vanished. `*mode` is 0 when it could not be looked at. */
int put_entry(struct buffer *buffer, int directory, const char *name, unsigned char type, const void *path,
              size_t path_size, mode_t *mode);

#endif
