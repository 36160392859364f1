/* Steps on what is known of a file: stat, checks, mode, times, owner, file system. */
#include "batch.h"
#include "facts.h"
#include "sys.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define STAT_SIZE 74u

uint16_t kind_of(mode_t mode) {
    switch (mode & S_IFMT) {
    case S_IFREG: return KIND_FILE;
    case S_IFDIR: return KIND_DIRECTORY;
    case S_IFLNK: return KIND_SYMLINK;
    case S_IFIFO: return KIND_FIFO;
    case S_IFSOCK: return KIND_SOCKET;
    case S_IFCHR: return KIND_CHARACTER_DEVICE;
    case S_IFBLK: return KIND_BLOCK_DEVICE;
    default: return KIND_OTHER;
    }
}

static int64_t nanoseconds(struct timespec time) {
    int64_t result;
    if (__builtin_mul_overflow((int64_t)time.tv_sec, INT64_C(1000000000), &result) ||
        __builtin_add_overflow(result, (int64_t)time.tv_nsec, &result))
        return time.tv_sec < 0 ? INT64_MIN : INT64_MAX;
    return result;
}

void put_stat(struct buffer *buffer, const struct stat *stat) {
    put_u16(buffer, kind_of(stat->st_mode));
    put_u32(buffer, stat->st_mode);
    put_u32(buffer, stat->st_uid);
    put_u32(buffer, stat->st_gid);
    put_u64(buffer, stat->st_nlink);
    put_u64(buffer, (uint64_t)stat->st_size);
    put_u64(buffer, stat->st_dev);
    put_u64(buffer, stat->st_ino);
    put_u64(buffer, (uint64_t)nanoseconds(stat->st_atim));
    put_u64(buffer, (uint64_t)nanoseconds(stat->st_mtim));
    put_u64(buffer, (uint64_t)nanoseconds(stat->st_ctim));
}

/* What an earlier step put. */
struct earlier_stat {
    uint16_t kind;
    uint32_t mode, uid, gid;
    uint64_t links, size, device, inode, accessed, modified, changed;
};

static struct earlier_stat earlier(const struct batch *batch, uint64_t step) {
    const uint8_t *at = batch->reply.data + batch->results[step].at;
    struct cursor cursor = {at, at + STAT_SIZE, false};
    struct earlier_stat stat;
    stat.kind = take_u16(&cursor);
    stat.mode = take_u32(&cursor);
    stat.uid = take_u32(&cursor);
    stat.gid = take_u32(&cursor);
    stat.links = take_u64(&cursor);
    stat.size = take_u64(&cursor);
    stat.device = take_u64(&cursor);
    stat.inode = take_u64(&cursor);
    stat.accessed = take_u64(&cursor);
    stat.modified = take_u64(&cursor);
    stat.changed = take_u64(&cursor);
    return stat;
}

int step_stat(struct batch *batch, const struct operation *operation) {
    struct path_text path;
    struct file *base;
    struct stat stat;
    int base_fd;
    int status = resolve_path(batch, &operation->paths[0], &path);
    if (status == 0)
        status = resolve_base(batch, &operation->handles[0], &base, &base_fd);
    if (status != 0)
        return status;
    if (fstatat(base_fd, path.text, &stat, operation->numbers[0] ? 0 : AT_SYMLINK_NOFOLLOW) < 0)
        status = errno;
    else
        put_stat(&batch->reply, &stat);
    drop_file(base);
    return status;
}

int step_stat_handle(struct batch *batch, const struct operation *operation) {
    struct file *file;
    struct stat stat;
    int status = resolve_file(batch, &operation->handles[0], &file);
    if (status != 0)
        return status;
    if (fstat(file->fd, &stat) < 0)
        status = errno;
    else
        put_stat(&batch->reply, &stat);
    drop_file(file);
    return status;
}

int step_check(struct batch *batch, const struct operation *operation) {
    const uint64_t *demand = operation->numbers;
    uint64_t kinds = demand[1], has = demand[2];
    uint16_t failed = batch->results[demand[0]].status;
    if (failed == ENOENT || failed == ENOTDIR)
        return kinds & KIND_ABSENT ? 0 : CHECK_KIND;
    if (failed != 0)
        return failed;
    struct earlier_stat stat = earlier(batch, demand[0]);
    if (!(kinds & stat.kind))
        return CHECK_KIND;
    if (has & CHECK_HAS_VERSION) {
        if (stat.device != demand[3] || stat.inode != demand[4] || stat.size != demand[5] || stat.modified != demand[6])
            return CHECK_VERSION;
        if ((has & CHECK_HAS_CHANGED) && stat.changed != demand[7])
            return CHECK_VERSION;
    }
    if (demand[8] != 0 && stat.kind != KIND_DIRECTORY && stat.links > demand[8])
        return CHECK_LINKS;
    if ((has & CHECK_HAS_MAX_SIZE) && stat.size > demand[9])
        return CHECK_SIZE;
    return 0;
}

int step_set_mode(struct batch *batch, const struct operation *operation) {
    struct file *file;
    mode_t mode = (mode_t)operation->numbers[0];
    uint64_t mode_of = operation->numbers[1];
    if (mode & ~07777u)
        return EINVAL;
    if (operation->numbers[2])
        mode &= ~(mode_t)facts_umask();
    if (mode_of != NO_STEP && batch->results[mode_of].status == 0)
        mode = earlier(batch, mode_of).mode & 0777;
    int status = resolve_file(batch, &operation->handles[0], &file);
    if (status != 0)
        return status;
    if (fchmod(file->fd, mode) < 0)
        status = errno;
    drop_file(file);
    return status;
}

static struct timespec time_field(bool has, uint64_t value) {
    if (!has)
        return (struct timespec){.tv_nsec = UTIME_OMIT};
    int64_t total = (int64_t)value, seconds = total / 1000000000, rest = total % 1000000000;
    if (rest < 0) {
        rest += 1000000000;
        seconds--;
    }
    return (struct timespec){.tv_sec = (time_t)seconds, .tv_nsec = (long)rest};
}

int step_set_times(struct batch *batch, const struct operation *operation) {
    struct file *file;
    uint64_t has = operation->numbers[0];
    if (has > 3)
        return EINVAL;
    int status = resolve_file(batch, &operation->handles[0], &file);
    if (status != 0)
        return status;
    struct timespec times[2] = {time_field(has & 1, operation->numbers[1]), time_field(has & 2, operation->numbers[2])};
    if (futimens(file->fd, times) < 0)
        status = errno;
    drop_file(file);
    return status;
}

int step_set_owner(struct batch *batch, const struct operation *operation) {
    struct file *file;
    uid_t uid = (uid_t)operation->numbers[0];
    gid_t gid = (gid_t)operation->numbers[1];
    uint64_t owner_of = operation->numbers[2];
    if (owner_of != NO_STEP) {
        uid = gid = UINT32_MAX;
        if (batch->results[owner_of].status == 0) {
            struct earlier_stat stat = earlier(batch, owner_of);
            uid = stat.uid;
            gid = stat.gid;
        }
    }
    int status = resolve_file(batch, &operation->handles[0], &file);
    if (status != 0)
        return status;
    if ((uid != UINT32_MAX || gid != UINT32_MAX) && fchown(file->fd, uid, gid) < 0)
        status = errno;
    drop_file(file);
    return status;
}

int step_stat_file_system(struct batch *batch, const struct operation *operation) {
    struct path_text path;
    struct file *base;
    struct statvfs stat;
    int base_fd;
    int status = resolve_path(batch, &operation->paths[0], &path);
    if (status == 0)
        status = resolve_base(batch, &operation->handles[0], &base, &base_fd);
    if (status != 0)
        return status;
    int fd = openat(base_fd, path.text, O_PATH | O_CLOEXEC);
    if (fd < 0 || fstatvfs(fd, &stat) < 0)
        status = errno;
    if (fd >= 0)
        close(fd);
    drop_file(base);
    if (status == 0) {
        put_u64(&batch->reply, (uint64_t)stat.f_blocks * stat.f_frsize);
        put_u64(&batch->reply, (uint64_t)stat.f_bavail * stat.f_frsize);
    }
    return status;
}
