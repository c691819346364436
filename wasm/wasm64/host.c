/* What wasi-libc calls of its host, for the command line as a 64-bit module.
 *
 * WASI preview 1 has 32-bit addresses only.  So what passes between the module and its host is copied through
 * variables and buffers below 4 GiB, where static data and the stack lie; the heap may be above.  Reads and writes that
 * are larger than the buffer are done in part, as POSIX allows; the C library repeats them.
 *
 * The functions are those of <wasi/api.h>, whose comments say what they do. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <wasi/api.h>

/* A function of the host. */
#define IMPORT(name, ...)                                                                             \
    __attribute__((import_module("wasi_snapshot_preview1"), import_name(#name)))                      \
    int32_t host_##name(__VA_ARGS__)

IMPORT(args_get, uint32_t list, uint32_t text);
IMPORT(args_sizes_get, uint32_t n, uint32_t n_text);
IMPORT(clock_time_get, int32_t clock, int64_t precision, uint32_t time);
IMPORT(environ_get, uint32_t list, uint32_t text);
IMPORT(environ_sizes_get, uint32_t n, uint32_t n_text);
IMPORT(fd_close, int32_t fd);
IMPORT(fd_fdstat_get, int32_t fd, uint32_t stat);
IMPORT(fd_fdstat_set_flags, int32_t fd, int32_t flags);
IMPORT(fd_filestat_get, int32_t fd, uint32_t stat);
IMPORT(fd_prestat_dir_name, int32_t fd, uint32_t path, uint32_t n_path);
IMPORT(fd_prestat_get, int32_t fd, uint32_t prestat);
IMPORT(fd_read, int32_t fd, uint32_t pieces, uint32_t n, uint32_t n_read);
IMPORT(fd_seek, int32_t fd, int64_t offset, int32_t whence, uint32_t position);
IMPORT(fd_write, int32_t fd, uint32_t pieces, uint32_t n, uint32_t n_written);
IMPORT(path_filestat_get, int32_t fd, int32_t flags, uint32_t path, uint32_t n_path, uint32_t stat);
IMPORT(path_open, int32_t fd, int32_t look_up, uint32_t path, uint32_t n_path, int32_t flags, int64_t rights,
       int64_t inherited, int32_t fd_flags, uint32_t opened);
IMPORT(path_remove_directory, int32_t fd, uint32_t path, uint32_t n_path);
IMPORT(path_rename, int32_t fd, uint32_t from, uint32_t n_from, int32_t to_fd, uint32_t to, uint32_t n_to);
IMPORT(path_unlink_file, int32_t fd, uint32_t path, uint32_t n_path);
IMPORT(random_get, uint32_t bytes, uint32_t n);
__attribute__((import_module("wasi_snapshot_preview1"), import_name("proc_exit"))) _Noreturn void
host_proc_exit(int32_t code);

/* The bytes of reads and writes, paths, arguments and the environment.  One of plumb's loads reads a whole file
 * through it, so that calls of the host must not cost more than the copies. */
static uint8_t buffer[1 << 18];
/* The two ends of a rename. */
static char paths[2][4096];
/* Addresses as the host has them: 32 bits each. */
struct piece { uint32_t at, n; };

static uint32_t low(const void *p) { return (uint32_t)(uintptr_t)p; }

/* Copies a path to one of paths; false: it is too long. */
static bool put_path(int i, const char *path, uint32_t *n) {
    size_t length = strlen(path);
    if (length >= sizeof paths[i]) return false;
    memcpy(paths[i], path, length + 1);
    *n = (uint32_t)length;
    return true;
}
static __wasi_errno_t error(int32_t code) { return (__wasi_errno_t)code; }

/* ---- arguments and the environment ------------------------------------------------------------------------------- */

/* Both are lists of texts.  The host writes the addresses of n texts, and behind them the texts. */
static __wasi_errno_t sizes(int32_t (*get)(uint32_t, uint32_t), __wasi_size_t *n, __wasi_size_t *n_text) {
    uint32_t both[2] = { 0 };
    int32_t code = get(low(&both[0]), low(&both[1]));
    *n = both[0];
    *n_text = both[1];
    return error(code);
}
/* sizes_of was called before, and list and text have the room that it said. */
static __wasi_errno_t texts(int32_t (*get)(uint32_t, uint32_t), int32_t (*sizes_of)(uint32_t, uint32_t),
                            uint8_t **list, uint8_t *text) {
    __wasi_size_t n = 0, n_text = 0;
    __wasi_errno_t failed = sizes(sizes_of, &n, &n_text);
    if (failed) return failed;
    if (n > sizeof buffer / 4 || n_text > sizeof buffer - 4 * n) return __WASI_ERRNO_2BIG;
    uint32_t *addresses = (uint32_t *)(void *)buffer;
    uint8_t *start = buffer + 4 * n;
    int32_t code = get(low(addresses), low(start));
    if (code) return error(code);
    memcpy(text, start, n_text);
    for (size_t i = 0; i < n; i++) list[i] = text + (addresses[i] - low(start));
    return 0;
}
__wasi_errno_t __wasi_args_sizes_get(__wasi_size_t *n, __wasi_size_t *n_text) {
    return sizes(host_args_sizes_get, n, n_text);
}
__wasi_errno_t __wasi_args_get(uint8_t **list, uint8_t *text) {
    return texts(host_args_get, host_args_sizes_get, list, text);
}
__wasi_errno_t __wasi_environ_sizes_get(__wasi_size_t *n, __wasi_size_t *n_text) {
    return sizes(host_environ_sizes_get, n, n_text);
}
__wasi_errno_t __wasi_environ_get(uint8_t **list, uint8_t *text) {
    return texts(host_environ_get, host_environ_sizes_get, list, text);
}

/* ---- the time, random bytes and the end -------------------------------------------------------------------------- */

__wasi_errno_t __wasi_clock_time_get(__wasi_clockid_t id, __wasi_timestamp_t precision, __wasi_timestamp_t *time) {
    static uint64_t now;
    int32_t code = host_clock_time_get((int32_t)id, (int64_t)precision, low(&now));
    *time = now;
    return error(code);
}
__wasi_errno_t __wasi_random_get(uint8_t *bytes, __wasi_size_t n) {
    for (size_t at = 0; at < n;) {
        size_t some = n - at < sizeof buffer ? n - at : sizeof buffer;
        int32_t code = host_random_get(low(buffer), (uint32_t)some);
        if (code) return error(code);
        memcpy(bytes + at, buffer, some);
        at += some;
    }
    return 0;
}
_Noreturn void __wasi_proc_exit(__wasi_exitcode_t code) { host_proc_exit((int32_t)code); }

/* ---- open files -------------------------------------------------------------------------------------------------- */

__wasi_errno_t __wasi_fd_close(__wasi_fd_t fd) { return error(host_fd_close(fd)); }
__wasi_errno_t __wasi_fd_fdstat_get(__wasi_fd_t fd, __wasi_fdstat_t *stat) {
    static __wasi_fdstat_t own;
    int32_t code = host_fd_fdstat_get(fd, low(&own));
    *stat = own;
    return error(code);
}
__wasi_errno_t __wasi_fd_fdstat_set_flags(__wasi_fd_t fd, __wasi_fdflags_t flags) {
    return error(host_fd_fdstat_set_flags(fd, flags));
}
__wasi_errno_t __wasi_fd_filestat_get(__wasi_fd_t fd, __wasi_filestat_t *stat) {
    static __wasi_filestat_t own;
    int32_t code = host_fd_filestat_get(fd, low(&own));
    *stat = own;
    return error(code);
}
__wasi_errno_t __wasi_fd_prestat_get(__wasi_fd_t fd, __wasi_prestat_t *prestat) {
    static struct { uint8_t tag; uint32_t n_name; } own;
    int32_t code = host_fd_prestat_get(fd, low(&own));
    prestat->tag = own.tag;
    prestat->u.dir.pr_name_len = own.n_name;
    return error(code);
}
__wasi_errno_t __wasi_fd_prestat_dir_name(__wasi_fd_t fd, uint8_t *path, __wasi_size_t n_path) {
    if (n_path > sizeof buffer) return __WASI_ERRNO_NAMETOOLONG;
    int32_t code = host_fd_prestat_dir_name(fd, low(buffer), (uint32_t)n_path);
    if (code == 0) memcpy(path, buffer, n_path);
    return error(code);
}
__wasi_errno_t __wasi_fd_seek(__wasi_fd_t fd, __wasi_filedelta_t offset, __wasi_whence_t whence,
                              __wasi_filesize_t *position) {
    static uint64_t own;
    int32_t code = host_fd_seek(fd, offset, whence, low(&own));
    *position = own;
    return error(code);
}
__wasi_errno_t __wasi_fd_read(__wasi_fd_t fd, const __wasi_iovec_t *pieces, size_t n, __wasi_size_t *n_read) {
    static uint32_t read;
    size_t room = 0;
    for (size_t i = 0; i < n && room < sizeof buffer; i++) {
        room += pieces[i].buf_len < sizeof buffer - room ? pieces[i].buf_len : sizeof buffer - room;
    }
    struct piece whole = { low(buffer), (uint32_t)room };
    int32_t code = host_fd_read(fd, low(&whole), 1, low(&read));
    if (code) return error(code);
    for (size_t i = 0, at = 0; i < n && at < read; i++) {
        size_t some = pieces[i].buf_len < read - at ? pieces[i].buf_len : read - at;
        memcpy(pieces[i].buf, buffer + at, some);
        at += some;
    }
    *n_read = read;
    return 0;
}
__wasi_errno_t __wasi_fd_write(__wasi_fd_t fd, const __wasi_ciovec_t *pieces, size_t n, __wasi_size_t *n_written) {
    static uint32_t written;
    size_t length = 0;
    for (size_t i = 0; i < n && length < sizeof buffer; i++) {
        size_t room = sizeof buffer - length, some = pieces[i].buf_len < room ? pieces[i].buf_len : room;
        memcpy(buffer + length, pieces[i].buf, some);
        length += some;
    }
    struct piece whole = { low(buffer), (uint32_t)length };
    int32_t code = host_fd_write(fd, low(&whole), 1, low(&written));
    *n_written = written;
    return error(code);
}

/* ---- paths ------------------------------------------------------------------------------------------------------- */

__wasi_errno_t __wasi_path_filestat_get(__wasi_fd_t fd, __wasi_lookupflags_t flags, const char *path,
                                        __wasi_filestat_t *stat) {
    static __wasi_filestat_t own;
    uint32_t n;
    if (!put_path(0, path, &n)) return __WASI_ERRNO_NAMETOOLONG;
    int32_t code = host_path_filestat_get(fd, (int32_t)flags, low(paths[0]), n, low(&own));
    *stat = own;
    return error(code);
}
__wasi_errno_t __wasi_path_open(__wasi_fd_t fd, __wasi_lookupflags_t look_up, const char *path,
                                __wasi_oflags_t flags, __wasi_rights_t rights, __wasi_rights_t inherited,
                                __wasi_fdflags_t fd_flags, __wasi_fd_t *opened) {
    static __wasi_fd_t own;
    uint32_t n;
    if (!put_path(0, path, &n)) return __WASI_ERRNO_NAMETOOLONG;
    int32_t code = host_path_open(fd, (int32_t)look_up, low(paths[0]), n, flags, (int64_t)rights, (int64_t)inherited,
                                  fd_flags, low(&own));
    *opened = own;
    return error(code);
}
__wasi_errno_t __wasi_path_remove_directory(__wasi_fd_t fd, const char *path) {
    uint32_t n;
    if (!put_path(0, path, &n)) return __WASI_ERRNO_NAMETOOLONG;
    return error(host_path_remove_directory(fd, low(paths[0]), n));
}
__wasi_errno_t __wasi_path_unlink_file(__wasi_fd_t fd, const char *path) {
    uint32_t n;
    if (!put_path(0, path, &n)) return __WASI_ERRNO_NAMETOOLONG;
    return error(host_path_unlink_file(fd, low(paths[0]), n));
}
__wasi_errno_t __wasi_path_rename(__wasi_fd_t fd, const char *from, __wasi_fd_t to_fd, const char *to) {
    uint32_t n_from, n_to;
    if (!put_path(0, from, &n_from) || !put_path(1, to, &n_to)) return __WASI_ERRNO_NAMETOOLONG;
    return error(host_path_rename(fd, low(paths[0]), n_from, to_fd, low(paths[1]), n_to));
}

/* ---- parts of the C library that its sources lack for 64 bits ---------------------------------------------------- */

void *__libc_calloc(size_t n, size_t size);
void *__libc_calloc(size_t n, size_t size) { return calloc(n, size); }

/* WASI has no time zones. */
struct tm *__localtime_r(const time_t *time, struct tm *out);
struct tm *__localtime_r(const time_t *time, struct tm *out) { return gmtime_r(time, out); }
