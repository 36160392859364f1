/* The step that starts a command, in a worker: builds everything, gives it to a supervisor, waits for its first note. */
#include "spawn.h"

#include "batch.h"
#include "cgroup.h"
#include "facts.h"
#include "process.h"
#include "supervisors.h"
#include "sys.h"
#include "terminal.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOOK_MS 250 /* between two looks whether it was cancelled */
#define HANG_MS 500 /* that a start may still take when it was cancelled */

/* Memory of one spawn: the text of all arguments, and the command. */
struct request {
    struct command command;
    char *text;
    size_t text_size;
    struct path_text program;
    struct path_text directory;
    int child_ends[3]; /* of the pipes: they become the command's */
};

static void request_free(struct request *request) {
    free(request->command.argv);
    free(request->command.environment);
    free(request->command.groups);
    free(request->command.limits);
    free(request->text);
    free(request);
}

static char *keep(struct request *request, struct slice slice) {
    char *at = request->text + request->text_size;
    if (slice.size) {
        if (memchr(slice.data, 0, slice.size))
            return NULL;
        memcpy(at, slice.data, slice.size);
    }
    at[slice.size] = 0;
    request->text_size += slice.size + 1;
    return at;
}

static int read_strings(struct request *request, const struct list_field *argv, const struct list_field *environment) {
    struct command *command = &request->command;
    request->text = malloc(argv->raw.size + environment->raw.size + argv->count + 2 * (size_t)environment->count + 1);
    command->argv = calloc((size_t)argv->count + 1, sizeof(char *));
    command->environment = calloc((size_t)environment->count + 1, sizeof(char *));
    if (!request->text || !command->argv || !command->environment)
        return ENOMEM;
    struct cursor cursor = {argv->raw.data, argv->raw.data + argv->raw.size, false};
    for (uint32_t index = 0; index < argv->count; index++)
        if (!(command->argv[index] = keep(request, take_bytes(&cursor))))
            return EINVAL;
    cursor = (struct cursor){environment->raw.data, environment->raw.data + environment->raw.size, false};
    for (uint32_t index = 0; index < environment->count; index++) {
        struct slice name = take_bytes(&cursor), value = take_bytes(&cursor);
        if (name.size == 0 || memchr(name.data, '=', name.size))
            return EINVAL;
        char *pair = keep(request, name);
        if (!pair)
            return EINVAL;
        pair[name.size] = '=';
        if (!keep(request, value))
            return EINVAL;
        command->environment[index] = pair;
    }
    return argv->count ? 0 : EINVAL;
}

static int read_lists(struct command *command, const struct list_field *groups, const struct list_field *limits) {
    command->groups = calloc((size_t)groups->count + 1, sizeof *command->groups);
    command->limits = calloc((size_t)limits->count + 1, sizeof *command->limits);
    if (!command->groups || !command->limits)
        return ENOMEM;
    struct cursor cursor = {groups->raw.data, groups->raw.data + groups->raw.size, false};
    for (; command->group_count < groups->count; command->group_count++)
        command->groups[command->group_count] = take_u32(&cursor);
    cursor = (struct cursor){limits->raw.data, limits->raw.data + limits->raw.size, false};
    for (; command->limit_count < limits->count; command->limit_count++) {
        struct limit *limit = &command->limits[command->limit_count];
        limit->resource = take_u32(&cursor);
        limit->soft = take_u64(&cursor);
        limit->hard = take_u64(&cursor);
    }
    return 0;
}

static int read_request(struct batch *batch, const struct operation *operation, struct request *request) {
    struct command *command = &request->command;
    const uint64_t *numbers = operation->numbers;
    uint64_t has = numbers[3];
    if (numbers[0] > REDIRECT_PIPE || numbers[1] > REDIRECT_PIPE || numbers[2] > REDIRECT_MERGE || has > 31)
        return EINVAL;
    int status = resolve_path(batch, &operation->paths[0], &request->program);
    if (status == 0)
        status = resolve_path(batch, &operation->paths[1], &request->directory);
    if (status == 0)
        status = read_strings(request, &operation->lists[0], &operation->lists[1]);
    if (status == 0)
        status = read_lists(command, &operation->lists[2], &operation->lists[3]);
    if (status != 0)
        return status;
    command->program = request->program.text;
    command->directory = request->directory.text;
    command->terminal = has & HAS_TERMINAL;
    command->has_uid = has & HAS_UID;
    command->has_gid = has & HAS_GID;
    command->has_groups = has & HAS_GROUPS;
    command->has_umask = has & HAS_UMASK;
    command->uid = (uid_t)numbers[6];
    command->gid = (gid_t)numbers[7];
    command->umask = (mode_t)(numbers[8] & 0777);
    return command->program[0] == '/' && command->directory[0] == '/' ? 0 : EINVAL;
}

static void close_fd(int *fd) {
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* `ours` does not block, the child's end does. */
static int make_pipe(bool to_child, int *ours, int *theirs) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return errno;
    *ours = ends[to_child ? 1 : 0];
    *theirs = ends[to_child ? 0 : 1];
    return fcntl(*ours, F_SETFL, O_NONBLOCK) < 0 ? errno : 0;
}

static int make_streams(const uint64_t *numbers, struct command *command, struct spawned *spawned, int child_ends[3]) {
    int status = 0;
    command->null = facts_null();
    if (command->terminal) {
        status = terminal_open((uint16_t)numbers[4], (uint16_t)numbers[5], &spawned->master, &child_ends[0]);
        for (int index = 0; index < 3; index++)
            command->standard[index] = child_ends[0];
        return status;
    }
    for (int index = 0; index < 3; index++)
        command->standard[index] = command->null;
    if (numbers[0] == REDIRECT_PIPE) {
        status = make_pipe(true, &spawned->input, &child_ends[0]);
        command->standard[0] = child_ends[0];
    }
    if (status == 0 && numbers[1] == REDIRECT_PIPE) {
        status = make_pipe(false, &spawned->output[0], &child_ends[1]);
        command->standard[1] = child_ends[1];
    }
    if (status == 0 && numbers[2] == REDIRECT_PIPE) {
        status = make_pipe(false, &spawned->output[1], &child_ends[2]);
        command->standard[2] = child_ends[2];
    }
    if (numbers[2] == REDIRECT_MERGE)
        command->standard[2] = command->standard[1];
    return status == 0 && command->standard[0] < 0 ? ENOENT : status;
}

/* -1: nothing came in that time. */
static ssize_t receive_note(const struct spawned *spawned, struct note *note, int timeout_ms) {
    struct pollfd poll_fd = {.fd = spawned->control, .events = POLLIN};
    if (poll(&poll_fd, 1, timeout_ms) <= 0)
        return -1;
    ssize_t size = recv(spawned->control, note, sizeof *note, MSG_DONTWAIT);
    return size < 0 ? (errno == EAGAIN || errno == EINTR ? -1 : 0) : size;
}

static int await_start(struct batch *batch, struct spawned *spawned) {
    struct note note;
    ssize_t size;
    bool cancelled = false;
    while ((size = receive_note(spawned, &note, cancelled ? HANG_MS : LOOK_MS)) < 0) {
        if (cancelled) {
            /* The directory or the program hangs. What is to become the command has the parent-death signal already. */
            kill(spawned->supervisor, SIGKILL);
            return ECANCELED;
        }
        cancelled = batch_cancelled(batch);
    }
    if (size < (ssize_t)offsetof(struct note, survivors) || note.type != NOTE_STARTED) {
        /* Somebody killed it, which may be the program that it has just started; or it is not what it was. */
        kill(spawned->supervisor, SIGKILL);
        batch->detail = STAGE_UNKNOWN;
        return EAGAIN;
    }
    if (note.error != 0) {
        batch->detail = note.stage;
        return note.error;
    }
    /* Also when it was cancelled meanwhile: then the batch fails with the next step and ends the tree in order. */
    spawned->leader = note.pid;
    return 0;
}

int step_spawn(struct batch *batch, const struct operation *operation) {
    struct request *request = calloc(1, sizeof *request);
    if (!request)
        return ENOMEM;
    struct spawned spawned = {.control = -1, .input = -1, .output = {-1, -1}, .master = -1};
    batch->detail = STAGE_SETUP;
    for (int index = 0; index < 3; index++)
        request->child_ends[index] = -1;
    int status = read_request(batch, operation, request);
    if (status == 0)
        status = make_streams(operation->numbers, &request->command, &spawned, request->child_ends);
    if (status == 0)
        status = supervisor_start(&request->command, &spawned);
    for (int index = 0; index < 3; index++)
        close_fd(&request->child_ends[index]);
    if (status == 0)
        status = await_start(batch, &spawned);
    request_free(request);
    if (status == 0) {
        put_opened(batch, process_register(&spawned));
        put_u32(&batch->reply, (uint32_t)spawned.leader);
        return 0;
    }
    close_fd(&spawned.control);
    close_fd(&spawned.input);
    close_fd(&spawned.output[0]);
    close_fd(&spawned.output[1]);
    close_fd(&spawned.master);
    cgroup_release(spawned.cgroup, false);
    return status;
}
