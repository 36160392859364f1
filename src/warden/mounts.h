/* Mounts by descriptor: no path is looked up twice. */
#ifndef WARDEN_MOUNTS_H
#define WARDEN_MOUNTS_H

#include "wire.h"

#include <stdbool.h>
#include <stdint.h>

/* All of them: a descriptor or 0; -1 with errno. */
int mounts_pin(struct slice path, bool directory);
int mounts_make_private(void);
int mounts_clone_tree(int pin);
/* `tree` -1: what is mounted at `/`. With all that is mounted below. */
int mounts_set_attributes(int tree, uint64_t attributes);
int mounts_attach(int tree, int pin);
int mounts_new(struct slice kind, struct slice options, uint32_t option_count, uint64_t attributes, int pin);

#endif
