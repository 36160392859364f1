/* What the warden knows of the place that it runs in. */
#ifndef WARDEN_FACTS_H
#define WARDEN_FACTS_H

#include "wire.h"

#include <sys/types.h>

void facts_begin(void);
/* Gathers everything; after facts_begin and cgroup_start. */
void facts_start(void);
/* The fields of section 5 of protocol.md. */
void facts_put(struct buffer *buffer);
mode_t facts_umask(void);
/* /dev/null for reading and writing; -1 when there is none. */
int facts_null(void);
/* Instead of opening /dev/null; for a cell. */
void facts_use_null(int fd);

/* Bits of namespaces that may be made here, found out by making them in a child, which takes a while and is begun before
 * the rest. */
void probe_namespaces_begin(void);
uint32_t probe_namespaces_end(void);

#endif
