/* Records every change that a process makes below one directory, so that a power cut can be played afterwards, and
 * makes such calls fail on demand. To be preloaded (LD_PRELOAD); x86-64 Linux.
 *
 * How. Library functions are not interposed: a program may have 64-bit variants of them, or call the kernel itself, as
 * Rust's rustix does. Instead a seccomp filter traps the system calls that change files, wherever they come from, except
 * from the one instruction below by which this file makes them. The handler of SIGSYS does the call and writes what
 * happened to the log. A call and its record are made under one lock, so the order of the log is the order of events; for
 * fsync the beginning and the end are recorded, and other threads go on meanwhile.
 *
 * What cannot be recorded is refused, with an error that its callers must expect, and reported in the log (REFUSED):
 * shared writable mappings, O_TMPFILE, O_SYNC, symbolic links, exchange of names. Copies inside the kernel and io_uring
 * are refused without a report, because programs fall back to read and write. Not seen: mprotect that makes a shared
 * mapping writable later, times, owners and permissions of files, and what children do that the process starts.
 *
 * POWERCUT_ROOT     directory to watch: absolute, without symbolic links
 * POWERCUT_LOG      file to append to: records of `struct record` and their text or data
 * POWERCUT_CONTROL  directory whose files make calls fail:
 *   no-room     content N (0 if empty): after N more bytes, writes and everything else that needs room fail with ENOSPC
 *   none-free   statfs says that nothing is free
 *   fsync-eio   fsync and fdatasync fail with EIO, and nothing becomes durable
 *   read-eio    reads fail with EIO
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>

/* ---------------------------------------------------------------------------------- system calls that are not trapped */

long powercut_syscall(long number, long a, long b, long c, long d, long e, long f);
extern const char powercut_syscall_end[];
__asm__(".text\n"
        ".globl powercut_syscall\n"
        "powercut_syscall:\n"
        "  movq %rdi, %rax\n  movq %rsi, %rdi\n  movq %rdx, %rsi\n  movq %rcx, %rdx\n"
        "  movq %r8, %r10\n  movq %r9, %r8\n  movq 8(%rsp), %r9\n"
        "  syscall\n"
        ".globl powercut_syscall_end\n"
        "powercut_syscall_end:\n"
        "  ret\n");
#define CALL4(number, a, b, c, d) powercut_syscall(number, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)
#define CALL3(number, a, b, c) CALL4(number, a, b, c, 0)

/* ------------------------------------------------------------------------------------------------------------- the log */

enum kind {
    STARTED = 1, OPENED, CLOSED, DUPLICATED, WROTE, TRUNCATED, ALLOCATED, RENAMED, LINKED, UNLINKED, MADE_DIRECTORY,
    SYNC_BEGAN, SYNC_DONE, ALL_SYNCED, REFUSED
};
struct record {
    uint32_t kind, length; /* of the text or data that follows */
    int64_t a, b, c;
};

#define MOST_DESCRIPTORS 65536
#define MOST_PARTS 1024
static char root[PATH_MAX], control[PATH_MAX];
static size_t root_length;
static int log_descriptor = -1;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile uint8_t watched[MOST_DESCRIPTORS];
static int64_t syncs;

static void log_parts(enum kind kind, int64_t a, int64_t b, int64_t c, const struct iovec *parts, int count, size_t length) {
    struct record record = {kind, (uint32_t)length, a, b, c};
    struct iovec all[MOST_PARTS + 1];
    all[0] = (struct iovec){&record, sizeof record};
    int used = 1;
    for (int at = 0; at < count && length; at++) {
        size_t taken = parts[at].iov_len < length ? parts[at].iov_len : length;
        all[used++] = (struct iovec){parts[at].iov_base, taken};
        length -= taken;
    }
    CALL3(SYS_writev, log_descriptor, all, used);
}

static void log_text(enum kind kind, int64_t a, int64_t b, int64_t c, const char *text) {
    struct iovec part = {(void *)text, strlen(text)};
    log_parts(kind, a, b, c, &part, 1, part.iov_len);
}

static long refused(const char *what, long error) {
    log_text(REFUSED, 0, 0, 0, what);
    return -error;
}

/* ----------------------------------------------------------------------------------------------- errors on demand */

static int ordered(const char *name) {
    char path[PATH_MAX + 32];
    if (!control[0])
        return 0;
    snprintf(path, sizeof path, "%s/%s", control, name);
    return CALL3(SYS_access, path, F_OK, 0) == 0;
}

/* Whether the disk has no room for `wanted` more bytes. */
static int full(size_t wanted) {
    static int64_t room = -1; /* known while the order stands */
    if (!ordered("no-room")) {
        room = -1;
        return 0;
    }
    if (room < 0) {
        char path[PATH_MAX + 32], text[32] = {0};
        snprintf(path, sizeof path, "%s/no-room", control);
        long file = CALL3(SYS_open, path, O_RDONLY, 0);
        CALL3(SYS_read, file, text, sizeof text - 1);
        CALL3(SYS_close, file, 0, 0);
        room = atoll(text);
    }
    if ((int64_t)wanted > room || wanted == 0)
        return 1;
    room -= (int64_t)wanted;
    return 0;
}

/* --------------------------------------------------------------------------------------------------- names and files */

static int is_watched(long descriptor) {
    return descriptor >= 0 && descriptor < MOST_DESCRIPTORS && watched[descriptor];
}

/* The path relative to the root, in `out`; NULL if it lies elsewhere. */
static const char *below_root(long directory, const char *path, char out[PATH_MAX * 2]) {
    out[0] = 0;
    if (path[0] != '/') {
        char link[64];
        if ((int)directory == AT_FDCWD)
            strcpy(link, "/proc/self/cwd");
        else
            snprintf(link, sizeof link, "/proc/self/fd/%d", (int)directory);
        long length = CALL3(SYS_readlink, link, out, PATH_MAX);
        if (length < 0)
            return NULL;
        out[length] = '/';
        out[length + 1] = 0;
    }
    strncat(out, path, PATH_MAX - 1);
    if (strncmp(out, root, root_length) != 0 || (out[root_length] != '/' && out[root_length] != 0))
        return NULL;
    return out + root_length;
}

static long open_file(long directory, const char *path, long flags, long mode) {
    char buffer[PATH_MAX * 2];
    const char *name = below_root(directory, path, buffer);
    if (!name)
        return CALL4(SYS_openat, directory, path, flags, mode);
    if ((flags & O_TMPFILE) == O_TMPFILE)
        return refused("O_TMPFILE", EOPNOTSUPP);
    if (flags & (O_SYNC | O_DSYNC))
        return refused("O_SYNC", EINVAL);
    if (flags & O_CREAT && CALL4(SYS_faccessat, directory, path, F_OK, 0) != 0 && full(0))
        return -ENOSPC;
    long descriptor = CALL4(SYS_openat, directory, path, flags, mode);
    if (descriptor >= MOST_DESCRIPTORS) {
        CALL3(SYS_close, descriptor, 0, 0);
        return refused("too many open files", EMFILE);
    }
    if (descriptor >= 0) {
        watched[descriptor] = 1;
        log_text(OPENED, descriptor, flags & O_CREAT ? 1 : 0, flags & O_TRUNC ? 1 : 0, name);
    }
    return descriptor;
}

static void forget(long descriptor) {
    if (is_watched(descriptor)) {
        watched[descriptor] = 0;
        log_text(CLOSED, descriptor, 0, 0, "");
    }
}

static long duplicated(long from, long to) {
    if (to >= MOST_DESCRIPTORS || to < 0 || from == to)
        return to;
    forget(to);
    if (is_watched(from)) {
        watched[to] = 1;
        log_text(DUPLICATED, from, to, 0, "");
    }
    return to;
}

static long change_name(enum kind kind, long number, long from_directory, const char *from, long to_directory,
                        const char *to, long flags) {
    char from_buffer[PATH_MAX * 2], to_buffer[PATH_MAX * 2], both[PATH_MAX * 4];
    const char *old = below_root(from_directory, from, from_buffer), *new = below_root(to_directory, to, to_buffer);
    if (!old && !new)
        return powercut_syscall(number, from_directory, (long)from, to_directory, (long)to, flags, 0);
    if (!old || !new)
        return refused("a name moved into or out of the directory", EXDEV);
    if (kind == RENAMED && flags & ~RENAME_NOREPLACE)
        return refused("exchange of names", EINVAL);
    if (full(0))
        return -ENOSPC;
    long result = powercut_syscall(number, from_directory, (long)from, to_directory, (long)to, flags, 0);
    if (result == 0) {
        int length = snprintf(both, sizeof both, "%s%c%s", old, 0, new);
        struct iovec part = {both, (size_t)length};
        log_parts(kind, 0, 0, 0, &part, 1, part.iov_len);
    }
    return result;
}

static long remove_name(long directory, const char *path, long flags) {
    char buffer[PATH_MAX * 2];
    const char *name = below_root(directory, path, buffer);
    long result = CALL3(SYS_unlinkat, directory, path, flags);
    if (name && result == 0)
        log_text(UNLINKED, 0, 0, 0, name);
    return result;
}

static long make_directory(long directory, const char *path, long mode) {
    char buffer[PATH_MAX * 2];
    const char *name = below_root(directory, path, buffer);
    if (name && full(0))
        return -ENOSPC;
    long result = CALL3(SYS_mkdirat, directory, path, mode);
    if (name && result == 0)
        log_text(MADE_DIRECTORY, 0, 0, 0, name);
    return result;
}

/* ------------------------------------------------------------------------------------------------- content of files */

static long write_file(long number, const long a[6]) {
    struct iovec one = {(void *)a[1], (size_t)a[2]}, *parts = &one;
    int count = 1;
    if (number != SYS_write && number != SYS_pwrite64) {
        parts = (struct iovec *)a[1];
        count = (int)a[2];
    }
    size_t wanted = 0;
    for (int at = 0; at < count; at++)
        wanted += parts[at].iov_len;
    if (wanted && full(wanted))
        return -ENOSPC;
    long written = powercut_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    if (written > 0) {
        int at_position = number == SYS_write || number == SYS_writev || (number == SYS_pwritev2 && a[3] == -1);
        int64_t offset = at_position ? CALL3(SYS_lseek, a[0], 0, SEEK_CUR) - written : a[3];
        log_parts(WROTE, a[0], offset, 0, parts, count, (size_t)written);
    }
    return written;
}

static long allocate(const long a[6]) {
    if (a[1] & ~FALLOC_FL_KEEP_SIZE)
        return -EOPNOTSUPP;
    if (full((size_t)a[3]))
        return -ENOSPC;
    long result = CALL4(SYS_fallocate, a[0], a[1], a[2], a[3]);
    if (result == 0 && a[1] == 0)
        log_text(ALLOCATED, a[0], a[2] + a[3], 0, "");
    return result;
}

/* Called with the lock held, which is not held while the disk works. */
static long synchronise(long number, long descriptor) {
    int64_t sync = ++syncs;
    log_text(SYNC_BEGAN, descriptor, sync, 0, "");
    pthread_mutex_unlock(&lock);
    long result = ordered("fsync-eio") ? -EIO : CALL3(number, descriptor, 0, 0);
    pthread_mutex_lock(&lock);
    if (result == 0)
        log_text(SYNC_DONE, descriptor, sync, 0, "");
    return result;
}

static long space(long number, const long a[6]) {
    char buffer[PATH_MAX * 2];
    int ours = number == SYS_statfs ? below_root(AT_FDCWD, (const char *)a[0], buffer) != NULL : is_watched(a[0]);
    long result = CALL3(number, a[0], a[1], 0);
    if (result == 0 && ours && ordered("none-free"))
        ((struct statfs *)a[1])->f_bavail = ((struct statfs *)a[1])->f_bfree = 0;
    return result;
}

/* --------------------------------------------------------------------------------------------------------- dispatch */

/* Calls on one descriptor: those on others than ours pass without the lock. */
static int concerns_descriptor(long number) {
    switch (number) {
    case SYS_read: case SYS_pread64: case SYS_readv: case SYS_preadv: case SYS_preadv2:
    case SYS_write: case SYS_pwrite64: case SYS_writev: case SYS_pwritev: case SYS_pwritev2:
    case SYS_close: case SYS_ftruncate: case SYS_fallocate: case SYS_fsync: case SYS_fdatasync:
    case SYS_sendfile: case SYS_ioctl: case SYS_dup: case SYS_fcntl:
        return 1;
    }
    return 0;
}

static long handle(long number, const long a[6]) {
    long result;
    switch (number) {
    case SYS_read: case SYS_pread64: case SYS_readv: case SYS_preadv: case SYS_preadv2:
        if (ordered("read-eio"))
            return -EIO;
        break;
    case SYS_write: case SYS_pwrite64: case SYS_writev: case SYS_pwritev: case SYS_pwritev2:
        return write_file(number, a);
    case SYS_open:
        return open_file(AT_FDCWD, (const char *)a[0], a[1], a[2]);
    case SYS_openat:
        return open_file(a[0], (const char *)a[1], a[2], a[3]);
    case SYS_creat:
        return open_file(AT_FDCWD, (const char *)a[0], O_CREAT | O_WRONLY | O_TRUNC, a[1]);
    case SYS_close:
        forget(a[0]);
        break;
    case SYS_close_range:
        for (long one = a[0]; one < MOST_DESCRIPTORS && one <= (long)(unsigned)a[1]; one++)
            forget(one);
        break;
    case SYS_dup:
    case SYS_fcntl: /* only F_DUPFD and F_DUPFD_CLOEXEC come here */
        result = CALL3(number, a[0], a[1], a[2]);
        return result < 0 ? result : duplicated(a[0], result);
    case SYS_dup2: case SYS_dup3:
        result = CALL3(number, a[0], a[1], a[2]);
        return result < 0 ? result : duplicated(a[0], result);
    case SYS_ftruncate:
        if (full(0))
            return -ENOSPC;
        result = CALL3(number, a[0], a[1], 0);
        if (result == 0)
            log_text(TRUNCATED, a[0], a[1], 0, "");
        return result;
    case SYS_truncate:
        return refused("truncate by name", EINVAL);
    case SYS_fallocate:
        return allocate(a);
    case SYS_rename:
        return change_name(RENAMED, SYS_renameat2, AT_FDCWD, (const char *)a[0], AT_FDCWD, (const char *)a[1], 0);
    case SYS_renameat:
        return change_name(RENAMED, SYS_renameat2, a[0], (const char *)a[1], a[2], (const char *)a[3], 0);
    case SYS_renameat2:
        return change_name(RENAMED, SYS_renameat2, a[0], (const char *)a[1], a[2], (const char *)a[3], a[4]);
    case SYS_link:
        return change_name(LINKED, SYS_linkat, AT_FDCWD, (const char *)a[0], AT_FDCWD, (const char *)a[1], 0);
    case SYS_linkat:
        return change_name(LINKED, SYS_linkat, a[0], (const char *)a[1], a[2], (const char *)a[3], a[4]);
    case SYS_symlink: case SYS_symlinkat:
        return refused("a symbolic link", EPERM);
    case SYS_unlink:
        return remove_name(AT_FDCWD, (const char *)a[0], 0);
    case SYS_unlinkat:
        return remove_name(a[0], (const char *)a[1], a[2]);
    case SYS_rmdir:
        return remove_name(AT_FDCWD, (const char *)a[0], AT_REMOVEDIR);
    case SYS_mkdir:
        return make_directory(AT_FDCWD, (const char *)a[0], a[1]);
    case SYS_mkdirat:
        return make_directory(a[0], (const char *)a[1], a[2]);
    case SYS_fsync: case SYS_fdatasync:
        return synchronise(number, a[0]);
    case SYS_sync: case SYS_syncfs:
        result = CALL3(number, a[0], 0, 0);
        log_text(ALL_SYNCED, 0, 0, 0, "");
        return result;
    case SYS_statfs: case SYS_fstatfs:
        return space(number, a);
    case SYS_mmap: /* only shared and writable ones come here */
        if (is_watched(a[4]))
            return refused("a shared writable mapping", EACCES);
        break;
    case SYS_copy_file_range: case SYS_splice:
        if (is_watched(a[2]))
            return -EINVAL;
        break;
    case SYS_sendfile: case SYS_ioctl: /* of the latter only clones */
        return -EOPNOTSUPP;
    case SYS_io_uring_setup: case SYS_openat2:
        return -ENOSYS;
    }
    return powercut_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

static void on_sigsys(int signal, siginfo_t *info, void *context) {
    (void)signal;
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    const long a[6] = {registers[REG_RDI], registers[REG_RSI], registers[REG_RDX],
                       registers[REG_R10], registers[REG_R8],  registers[REG_R9]};
    long number = info->si_syscall;
    int error = errno;
    if (concerns_descriptor(number) && !is_watched(a[0])) {
        registers[REG_RAX] = powercut_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    } else {
        pthread_mutex_lock(&lock);
        registers[REG_RAX] = handle(number, a);
        pthread_mutex_unlock(&lock);
    }
    errno = error;
}

/* ------------------------------------------------------------------------------------------------------- the filter */

static const int TRAPPED[] = {
    SYS_read, SYS_pread64, SYS_readv, SYS_preadv, SYS_preadv2, SYS_write, SYS_pwrite64, SYS_writev, SYS_pwritev,
    SYS_pwritev2, SYS_open, SYS_openat, SYS_openat2, SYS_creat, SYS_close, SYS_close_range, SYS_dup, SYS_dup2, SYS_dup3,
    SYS_ftruncate, SYS_truncate, SYS_fallocate, SYS_rename, SYS_renameat, SYS_renameat2, SYS_link, SYS_linkat,
    SYS_symlink, SYS_symlinkat, SYS_unlink, SYS_unlinkat, SYS_rmdir, SYS_mkdir, SYS_mkdirat, SYS_fsync, SYS_fdatasync,
    SYS_sync, SYS_syncfs, SYS_statfs, SYS_fstatfs, SYS_copy_file_range, SYS_splice, SYS_sendfile, SYS_io_uring_setup,
};
#define MOST_INSTRUCTIONS 128

static struct sock_filter program[MOST_INSTRUCTIONS];
static unsigned short instructions;

static void emit(struct sock_filter instruction) { program[instructions++] = instruction; }
static void load(size_t offset) { emit((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset)); }
static void answer(uint32_t action) { emit((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action)); }
/* Goes on with the next instruction if equal, else skips `otherwise`. */
static void if_equal(uint32_t value, uint8_t otherwise) {
    emit((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, otherwise));
}
static void if_any_bit(uint32_t bits, uint8_t otherwise) {
    emit((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bits, 0, otherwise));
}

static void write_filter(void) {
    uint64_t here = (uint64_t)(uintptr_t)powercut_syscall_end;
    load(offsetof(struct seccomp_data, instruction_pointer));
    if_equal((uint32_t)here, 3);
    load(offsetof(struct seccomp_data, instruction_pointer) + 4);
    if_equal((uint32_t)(here >> 32), 1);
    answer(SECCOMP_RET_ALLOW);
    load(offsetof(struct seccomp_data, nr));
    for (size_t at = 0; at < sizeof TRAPPED / sizeof *TRAPPED; at++) {
        if_equal((uint32_t)TRAPPED[at], 1);
        answer(SECCOMP_RET_TRAP);
    }
    if_equal(SYS_mmap, 6);
    load(offsetof(struct seccomp_data, args[3]));
    if_any_bit(MAP_SHARED, 3);
    load(offsetof(struct seccomp_data, args[2]));
    if_any_bit(PROT_WRITE, 1);
    answer(SECCOMP_RET_TRAP);
    answer(SECCOMP_RET_ALLOW);
    if_equal(SYS_fcntl, 5);
    load(offsetof(struct seccomp_data, args[1]));
    if_equal(F_DUPFD, 1);
    answer(SECCOMP_RET_TRAP);
    if_equal(F_DUPFD_CLOEXEC, 5);
    answer(SECCOMP_RET_TRAP);
    if_equal(SYS_ioctl, 3);
    load(offsetof(struct seccomp_data, args[1]));
    if_equal((uint32_t)FICLONE, 1);
    answer(SECCOMP_RET_TRAP);
    answer(SECCOMP_RET_ALLOW);
}

__attribute__((constructor)) static void begin(void) {
    const char *directory = getenv("POWERCUT_ROOT"), *log = getenv("POWERCUT_LOG"), *orders = getenv("POWERCUT_CONTROL");
    if (!directory || !log)
        return;
    snprintf(root, sizeof root, "%s", directory);
    root_length = strlen(root);
    snprintf(control, sizeof control, "%s", orders ? orders : "");
    log_descriptor = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    log_text(STARTED, 0, 0, 0, "");

    struct sigaction action = {.sa_sigaction = on_sigsys, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigfillset(&action.sa_mask); /* no other handler may come in between and wait for the lock */
    sigaction(SIGSYS, &action, NULL);
    write_filter();
    struct sock_fprog filter = {instructions, program};
    if (log_descriptor < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) {
        perror("powercut");
        _exit(70);
    }
}
