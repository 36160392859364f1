#include "plan.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define NAMESPACES ((uint64_t)(CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWNET))
#define MOUNT_ATTRIBUTES 0x20000Full /* read-only, nosuid, nodev, noexec, nosymfollow */
#define KIND_MOST 64u

struct decoder {
    struct cursor cursor;
    struct plan *plan;
    char *text; /* room for more */
};

static void refuse(struct decoder *decoder) { decoder->cursor.bad = true; }

static bool is_path(struct slice path) {
    return path.size > 0 && path.size < PATH_MAX && path.data[0] == '/' && !memchr(path.data, 0, path.size);
}

/* The texts are together no longer than the message, zeros instead of lengths. */
static char *keep_text(struct decoder *decoder, struct slice text) {
    char *at = decoder->text;
    if (text.size)
        memcpy(at, text.data, text.size);
    at[text.size] = 0;
    decoder->text += text.size + 1;
    return at;
}

static uint16_t take_number_below(struct decoder *decoder, uint32_t limit) {
    uint16_t number = take_u16(&decoder->cursor);
    if (number >= limit)
        refuse(decoder);
    return number;
}

static uint64_t take_mask(struct decoder *decoder, uint64_t known) {
    uint64_t mask = take_u64(&decoder->cursor);
    if (mask & ~known)
        refuse(decoder);
    return mask;
}

static void take_rules(struct decoder *decoder, struct slice *rules, uint32_t *count, uint32_t pins, uint32_t *needed) {
    struct cursor *cursor = &decoder->cursor;
    *count = take_u32(cursor);
    rules->data = cursor->at;
    for (uint32_t index = 0; index < *count && !cursor->bad; index++) {
        uint16_t number = take_u16(cursor);
        (void)take_u64(cursor);
        if (!needed)
            continue;
        if (number >= pins)
            refuse(decoder);
        else if (number >= *needed)
            *needed = number + 1u;
    }
    rules->size = (size_t)(cursor->at - rules->data);
}

static struct ruleset take_ruleset(struct decoder *decoder) {
    struct ruleset ruleset = {
        .handled_fs = take_u64(&decoder->cursor),
    };
    ruleset.handled_net = take_u64(&decoder->cursor);
    ruleset.scoped = take_u64(&decoder->cursor);
    take_rules(decoder, &ruleset.paths, &ruleset.path_count, decoder->plan->pin_count, &ruleset.pins_needed);
    take_rules(decoder, &ruleset.ports, &ruleset.port_count, 0, NULL);
    return ruleset;
}

static struct slice take_filter(struct decoder *decoder) {
    struct slice filter = take_bytes(&decoder->cursor);
    if (filter.size % INSTRUCTION_SIZE || filter.size / INSTRUCTION_SIZE > PLAN_MOST_FILTER)
        refuse(decoder);
    return filter;
}

static void take_file_system(struct decoder *decoder, struct cell_step *step) {
    struct cursor *cursor = &decoder->cursor;
    step->text = take_bytes(cursor);
    if (step->text.size == 0 || step->text.size > KIND_MOST || memchr(step->text.data, 0, step->text.size))
        refuse(decoder);
    step->pin = take_number_below(decoder, decoder->plan->pin_count);
    step->option_count = take_u32(cursor);
    step->options.data = cursor->at;
    for (uint32_t index = 0; index < step->option_count && !cursor->bad; index++) {
        struct slice key = take_bytes(cursor), value = take_bytes(cursor);
        if (key.size == 0 || key.size > KIND_MOST || memchr(key.data, 0, key.size) || value.size >= PATH_MAX ||
            (value.size && memchr(value.data, 0, value.size)))
            refuse(decoder);
    }
    step->options.size = (size_t)(cursor->at - step->options.data);
    step->number = take_mask(decoder, MOUNT_ATTRIBUTES);
}

static void take_step(struct decoder *decoder, struct cell_step *step, bool *has_pids) {
    struct cursor *cursor = &decoder->cursor;
    struct plan *plan = decoder->plan;
    step->opcode = take_u8(cursor);
    switch (step->opcode) {
    case STEP_UNSHARE:
        step->number = take_u32(cursor);
        if (step->number == 0 || (step->number & ~NAMESPACES))
            refuse(decoder);
        break;
    case STEP_PID_NAMESPACE:
        if (*has_pids)
            refuse(decoder);
        *has_pids = true;
        break;
    case STEP_MAP_IDS:
    case STEP_PRIVATE_MOUNTS:
    case STEP_LOOPBACK_UP: break;
    case STEP_PIN: {
        step->text = take_bytes(cursor);
        uint8_t directory = take_u8(cursor);
        if (!is_path(step->text) || directory > 1)
            refuse(decoder);
        step->directory = directory;
        plan->pin_count++;
        break;
    }
    case STEP_CLONE_TREE:
        step->pin = take_number_below(decoder, plan->pin_count);
        plan->tree_count++;
        break;
    case STEP_SET_MOUNT_ATTRIBUTES: step->number = take_mask(decoder, MOUNT_ATTRIBUTES); break;
    case STEP_ATTACH_TREE:
        step->tree = take_number_below(decoder, plan->tree_count);
        step->pin = take_number_below(decoder, plan->pin_count);
        step->number = take_mask(decoder, MOUNT_ATTRIBUTES);
        break;
    case STEP_NEW_FILE_SYSTEM: take_file_system(decoder, step); break;
    case STEP_RESTRICT: step->ruleset = take_ruleset(decoder); break;
    case STEP_KEEP_CAPABILITIES: step->number = take_u64(cursor); break;
    case STEP_FILTER:
        step->text = take_filter(decoder);
        if (step->text.size == 0)
            refuse(decoder);
        break;
    default: refuse(decoder);
    }
}

/* A count that the message can hold, each item being at least so long. */
static bool take_count(struct decoder *decoder, uint32_t most, size_t encoded, uint32_t *count) {
    *count = take_u32(&decoder->cursor);
    size_t left = (size_t)(decoder->cursor.end - decoder->cursor.at);
    return !decoder->cursor.bad && *count <= most && *count <= left / encoded;
}

static int take_steps(struct decoder *decoder, struct plan *plan) {
    bool has_pids = false;
    uint32_t count;
    if (!take_count(decoder, PLAN_MOST_STEPS, 1, &count))
        return EINVAL;
    plan->steps = calloc((size_t)count + 1, sizeof *plan->steps);
    if (!plan->steps)
        return ENOMEM;
    for (; plan->step_count < count && !decoder->cursor.bad; plan->step_count++)
        take_step(decoder, &plan->steps[plan->step_count], &has_pids);
    return 0;
}

static int take_lock(struct decoder *decoder) {
    struct plan *plan = decoder->plan;
    struct cursor *cursor = &decoder->cursor;
    uint32_t count;
    uint8_t has = take_u8(cursor);
    if (has > 3)
        refuse(decoder);
    plan->has_ruleset = has & 1;
    plan->has_capabilities = has & 2;
    if (plan->has_ruleset)
        plan->ruleset = take_ruleset(decoder);
    if (plan->has_capabilities)
        plan->capabilities = take_u64(cursor);
    plan->filter = take_filter(decoder);
    if (!take_count(decoder, PLAN_MOST_LIMITS, 20, &count))
        return EINVAL;
    for (; plan->limit_count < count; plan->limit_count++) {
        struct limit *limit = &plan->limits[plan->limit_count];
        limit->resource = take_u32(cursor);
        limit->soft = take_u64(cursor);
        limit->hard = take_u64(cursor);
    }
    return 0;
}

static bool is_port(struct slice text) {
    for (size_t index = 0; index < text.size; index++)
        if (text.data[index] < '0' || text.data[index] > '9')
            return false;
    return text.size > 0 && text.size <= 5;
}

static bool is_target(uint8_t kind, struct slice target) {
    switch (kind) {
    case PROBE_READ:
    case PROBE_WRITE_BELOW: return is_path(target);
    case PROBE_GRANTED_PORT: return is_port(target);
    default: return target.size == 0;
    }
}

static int take_probes(struct decoder *decoder) {
    struct plan *plan = decoder->plan;
    uint32_t count;
    if (!take_count(decoder, PLAN_MOST_PROBES, 5, &count))
        return EINVAL;
    for (; plan->probe_count < count && !decoder->cursor.bad; plan->probe_count++) {
        struct probe *probe = &plan->probes[plan->probe_count];
        probe->kind = take_u8(&decoder->cursor);
        struct slice path = take_bytes(&decoder->cursor);
        if (probe->kind == 0 || probe->kind >= PROBE_END || !is_target(probe->kind, path))
            refuse(decoder);
        else
            probe->path = keep_text(decoder, path);
    }
    return 0;
}

int plan_decode(struct plan *plan, const uint8_t *message, size_t size) {
    struct decoder decoder = {.cursor = {message, message + size, false}, .plan = plan};
    struct cursor *cursor = &decoder.cursor;
    memset(plan, 0, sizeof *plan);
    plan->text = decoder.text = malloc(size + 1);
    if (!plan->text)
        return ENOMEM;
    plan->timeout_ms = take_u32(cursor);
    plan->processes = take_u64(cursor);
    plan->memory_bytes = take_u64(cursor);
    struct slice scratch = take_bytes(cursor);
    if (cursor->bad || plan->timeout_ms == 0 || plan->timeout_ms > PLAN_MOST_TIMEOUT_MS ||
        (scratch.size && !is_path(scratch)))
        return EINVAL;
    plan->scratch = keep_text(&decoder, scratch);
    int error = take_steps(&decoder, plan);
    if (error == 0)
        error = take_lock(&decoder);
    if (error == 0)
        error = take_probes(&decoder);
    if (error == 0 && (!cursor_done(cursor) || (plan->probe_count && !scratch.size)))
        error = EINVAL;
    return error;
}

void plan_free(struct plan *plan) {
    free(plan->steps);
    free(plan->text);
    memset(plan, 0, sizeof *plan);
}
