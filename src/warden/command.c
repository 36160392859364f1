/* A command as one packet, for a supervisor that exists already. Both ends are the same program. */
#include "spawn.h"

#include <string.h>

struct packed {
    uint32_t argument_count;
    uint32_t variable_count;
    uint32_t group_count;
    uint32_t limit_count;
    uid_t uid;
    gid_t gid;
    mode_t umask;
    uint8_t terminal;
    uint8_t has_uid;
    uint8_t has_gid;
    uint8_t has_groups;
    uint8_t has_umask;
    uint8_t standard[3]; /* index among the descriptors; NO_DESCRIPTOR: nothing, /dev/null */
};

#define NO_DESCRIPTOR 0xFFu

struct writer {
    uint8_t *at;
    uint8_t *end;
};

static bool write_some(struct writer *writer, const void *data, size_t size) {
    if ((size_t)(writer->end - writer->at) < size)
        return false;
    if (size)
        memcpy(writer->at, data, size);
    writer->at += size;
    return true;
}

static bool write_strings(struct writer *writer, char *const *strings, uint32_t *count) {
    for (*count = 0; strings[*count]; ++*count)
        if (!write_some(writer, strings[*count], strlen(strings[*count]) + 1))
            return false;
    return true;
}

size_t command_pack(const struct command *command, uint8_t *into, size_t room, int fds[3], int *fd_count) {
    struct packed packed = {
        .group_count = command->group_count,
        .limit_count = command->limit_count,
        .uid = command->uid,
        .gid = command->gid,
        .umask = command->umask,
        .terminal = command->terminal,
        .has_uid = command->has_uid,
        .has_gid = command->has_gid,
        .has_groups = command->has_groups,
        .has_umask = command->has_umask,
    };
    *fd_count = 0;
    for (int index = 0; index < 3; index++) {
        int known = 0;
        while (known < *fd_count && fds[known] != command->standard[index])
            known++;
        packed.standard[index] = command->standard[index] == command->null ? NO_DESCRIPTOR : (uint8_t)known;
        if (command->standard[index] != command->null && known == *fd_count)
            fds[(*fd_count)++] = command->standard[index];
    }
    if (room < sizeof packed)
        return 0;
    struct writer writer = {into + sizeof packed, into + room};
    if (!write_some(&writer, command->limits, command->limit_count * sizeof *command->limits) ||
        !write_some(&writer, command->groups, command->group_count * sizeof *command->groups) ||
        !write_some(&writer, command->program, strlen(command->program) + 1) ||
        !write_some(&writer, command->directory, strlen(command->directory) + 1) ||
        !write_strings(&writer, command->argv, &packed.argument_count) ||
        !write_strings(&writer, command->environment, &packed.variable_count))
        return 0;
    if (packed.argument_count + packed.variable_count + 2 > COMMAND_MOST_STRINGS)
        return 0;
    memcpy(into, &packed, sizeof packed);
    return (size_t)(writer.at - into);
}

/* The next text, or NULL. */
static char *next_text(uint8_t **at, const uint8_t *end) {
    uint8_t *start = *at, *zero = memchr(start, 0, (size_t)(end - start));
    if (!zero)
        return NULL;
    *at = zero + 1;
    return (char *)start;
}

bool command_unpack(uint8_t *from, size_t size, const int *fds, int fd_count, char **strings, struct command *command) {
    struct packed packed;
    if (size < sizeof packed)
        return false;
    memcpy(&packed, from, sizeof packed);
    uint8_t *at = from + sizeof packed;
    const uint8_t *end = from + size;
    size_t limits = packed.limit_count * sizeof *command->limits, groups = packed.group_count * sizeof *command->groups;
    if ((size_t)(end - at) < limits + groups ||
        (uint64_t)packed.argument_count + packed.variable_count + 2 > COMMAND_MOST_STRINGS)
        return false;
    command->limits = (struct limit *)(void *)at;
    command->groups = (gid_t *)(void *)(at + limits);
    at += limits + groups;
    command->limit_count = packed.limit_count;
    command->group_count = packed.group_count;
    command->terminal = packed.terminal;
    command->has_uid = packed.has_uid;
    command->has_gid = packed.has_gid;
    command->has_groups = packed.has_groups;
    command->has_umask = packed.has_umask;
    command->uid = packed.uid;
    command->gid = packed.gid;
    command->umask = packed.umask;
    for (int index = 0; index < 3; index++) {
        uint8_t which = packed.standard[index];
        if (which != NO_DESCRIPTOR && which >= fd_count)
            return false;
        command->standard[index] = which == NO_DESCRIPTOR ? command->null : fds[which];
    }
    command->program = next_text(&at, end);
    command->directory = command->program ? next_text(&at, end) : NULL;
    if (!command->directory)
        return false;
    command->argv = strings;
    for (uint32_t index = 0; index < packed.argument_count; index++)
        if (!(*strings++ = next_text(&at, end)))
            return false;
    *strings++ = NULL;
    command->environment = strings;
    for (uint32_t index = 0; index < packed.variable_count; index++)
        if (!(*strings++ = next_text(&at, end)))
            return false;
    *strings = NULL;
    return true;
}
