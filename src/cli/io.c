/* Everything that depends on the system: files, streams, the clock, signals.  model.c reads models. */
#define _GNU_SOURCE   /* POSIX, and getentropy, which musl declares with it only */
#include "cli/cli.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#if !defined(__wasi__)   /* WASI has no signals: Ctrl-C ends its runtime */
#include <poll.h>
#include <signal.h>
#endif

int exit_failed = 1;

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* The last message: what is wrong, and of what kind it is. */
static struct { char text[1024]; plumb_status status; bool is_failure; } last;

static void keep_message(const char *text, plumb_status status, bool is_failure) {
    snprintf(last.text, sizeof last.text, "%s", text);
    last.status = status;
    last.is_failure = is_failure;
}

int print_error(int code, const char *format, ...) {
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    plumb_make_plain(line);   /* always one line */
    fprintf(stderr, "plumb: %s\n", line);
    keep_message(line, PLUMB_ERROR_ARGUMENT, code != 0);
    return code;
}

void out_json_error(bool any) {
    if (!any && !last.is_failure) return;
    out("{\"error\":{\"code\":\"%s\",\"message\":", plumb_status_name(last.status));
    out_json_string(last.text, strlen(last.text));
    out("}}\n");
    last.is_failure = false;
}

/* Whether a file may be missing because the host does not show it.  wasmtime shows a program only the folders of --dir.
 * It passes no environment, which distinguishes it from other hosts. */
static bool is_hidden(const char *message) {
#if defined(__wasi__)
    return !getenv("PWD") && (strcmp(message, strerror(ENOTCAPABLE)) == 0 || strcmp(message, strerror(EPERM)) == 0);
#else
    (void)message;
    return false;
#endif
}

int report(const char *where, plumb_status status, const char *message) {
    const char *advice = status == PLUMB_ERROR_CONTEXT ? "; use --ctx to enlarge it"
                       : is_hidden(message) ? " (start wasmtime with --dir=FOLDER)" : "";
    print_error(exit_failed, "%s: %s: %s%s", where, plumb_status_name(status), message, advice);
    keep_message(message, status, true);
    return exit_failed;
}

/* ---- standard output --------------------------------------------------------------------------------------------- */

static int out_errno;

static void check_output(bool ok) {
    if (!ok && out_errno == 0) out_errno = errno ? errno : EIO;
}

void out(const char *format, ...) {
    if (out_errno) return;
    va_list args;
    va_start(args, format);
    check_output(vprintf(format, args) >= 0);
    va_end(args);
}

void out_bytes(const void *bytes, size_t n) {
    if (!out_errno) check_output(fwrite(bytes, 1, n, stdout) == n);
}

void out_flush(void) {
    if (!out_errno) check_output(fflush(stdout) == 0);
}

bool out_failed(void) { return out_errno != 0; }

int out_close(int code) {
    out_flush();
    if (out_errno == 0) return code;
    return out_errno == EPIPE ? code : report("standard output", PLUMB_ERROR_IO, strerror(out_errno));
}

/* Writes a character that is plain, or the bytes of any other as \xNN; returns how many bytes it took. */
static size_t out_character(const char *s, size_t n) {
    uint32_t cp;
    const size_t length = plumb_character(s, n, &cp);
    if (length > 0 && plumb_is_plain(cp)) {
        out_bytes(s, length);
        return length;
    }
    out("\\x%02x", (unsigned char)*s);
    return 1;
}

void out_escaped(const char *s, size_t n) {
    for (size_t i = 0; i < n;) {
        static const char special[] = "\n\t\r\"\\", names[] = "ntr\"\\";
        const char *name = memchr(special, s[i], sizeof special - 1);
        if (name) out("\\%c", names[name - special]);
        i += name ? 1 : out_character(s + i, n - i);
    }
}

void out_shown(const char *s, size_t n) {
    if (isatty(STDOUT_FILENO) != 1) {
        out_bytes(s, n);
        return;
    }
    for (size_t i = 0; i < n;) {
        const bool is_space = s[i] == '\n' || s[i] == '\t';
        if (is_space) out_bytes(s + i, 1);
        i += is_space ? 1 : out_character(s + i, n - i);
    }
}

void out_text(const char *text) {
    for (size_t i = 0, n = strlen(text); i < n;) i += out_character(text + i, n - i);
}

void out_wrapped(const char *text, size_t column, size_t indent) {
    enum { WIDTH = 80 };
    size_t gap = 0;   /* spaces before the next word: as many as the text has, none at the start of a line */
    for (const char *at = text; *at;) {
        size_t n_space = strspn(at, " \n"), n = strcspn(at + n_space, " \n");
        bool is_paragraph = n_space > 1 && at[0] == '\n' && at[1] == '\n';
        at += n_space;
        if (n == 0) break;
        if (at != text) gap = n_space;
        if (column > indent && (is_paragraph || column + gap + n > WIDTH)) {
            out(is_paragraph ? "\n\n%*s" : "\n%*s", (int)indent, "");
            column = indent;
            gap = 0;
        }
        out("%*s", (int)gap, "");
        out_bytes(at, n);
        column += gap + n;
        at += n;
    }
    out("\n");
}

void out_json_string(const char *s, size_t n) {
    out("\"");
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        size_t length = plumb_character(s + i, n - i, &cp);
        if (length == 0) out("\xef\xbf\xbd");
        else if (cp == '"' || cp == '\\') out("\\%c", (char)cp);
        else if (!plumb_is_plain(cp)) out("\\u%04x", (unsigned)cp);
        else out_bytes(s + i, length);
        i += length ? length : 1;
    }
    out("\"");
}

void out_json_number(double value, int digits) {
    if (isfinite(value)) out("%.*g", digits, value);
    else out("null");
}

/* ---- input ------------------------------------------------------------------------------------------------------- */

void *allocate(size_t n) {
    void *p = malloc(n ? n : 1);
    if (!p) exit(print_error(exit_failed, "out of memory: %zu bytes", n));
    return p;
}

bool is_typed(void) { return isatty(STDIN_FILENO) == 1; }

bool is_terminal(void) { return is_typed() && isatty(STDOUT_FILENO) == 1; }

bool is_piped(void) {
    struct stat info;
    if (fstat(STDIN_FILENO, &info) != 0) return false;
#if defined(S_ISFIFO) && !defined(__wasi__)
    if (S_ISFIFO(info.st_mode)) return true;
#endif
    return S_ISREG(info.st_mode);
}

bool has_input(void) {
    const int c = is_typed() ? EOF : getchar();
    return c != EOF && ungetc(c, stdin) != EOF;
}

bool is_standard_input(const char *path) {
    struct stat a, b;
    if (strcmp(path, "-") == 0) return true;
    return stat(path, &a) == 0 && fstat(STDIN_FILENO, &b) == 0 && a.st_ino != 0 && a.st_ino == b.st_ino
        && a.st_dev == b.st_dev;
}

void wait_for_input(void) {
#if !defined(__wasi__)
    struct pollfd input = { .fd = STDIN_FILENO, .events = POLLIN };
    if (poll(&input, 1, 1000) == 0) {
        print_error(0, "waiting for standard input, which comes before the prompt; add < /dev/null if there is none");
    }
#endif
}

/* Reads a stream to its end.  n_known: the expected number of bytes, 0 if unknown.  Returns NULL on failure. */
static char *read_stream(FILE *stream, size_t n_known, size_t *n, plumb_status *status) {
    size_t cap = n_known < 4096 ? 4096 : n_known + 2;   /* one for the 0, one to notice the end without growing */
    char *bytes = malloc(cap);
    *n = 0;
    *status = PLUMB_ERROR_MEMORY;
    for (size_t got; bytes && (got = fread(bytes + *n, 1, cap - 1 - *n, stream)) > 0;) {
        *n += got;
        if (*n + 1 < cap) continue;
        char *larger = cap <= SIZE_MAX / 2 ? realloc(bytes, cap *= 2) : NULL;
        if (!larger) free(bytes);
        bytes = larger;
    }
    if (!bytes) return NULL;
    bytes[*n] = '\0';
    *status = ferror(stream) ? PLUMB_ERROR_IO : PLUMB_OK;
    if (*status == PLUMB_OK) return bytes;
    free(bytes);
    return NULL;
}

char *read_file(const char *path, size_t *n, int *code) {
    bool is_stdin = strcmp(path, "-") == 0;
    const char *name = is_stdin ? "standard input" : path;
    FILE *stream = is_stdin ? stdin : fopen(path, "rb");
    struct stat info;
    char *bytes = NULL;
    plumb_status status = PLUMB_ERROR_IO;
    uint64_t size = *n = 0;
    if (stream) {
        if (!is_stdin && fstat(fileno(stream), &info) == 0 && S_ISREG(info.st_mode)) size = (uint64_t)info.st_size;
        status = PLUMB_ERROR_MEMORY;
        if (size <= SIZE_MAX / 2) bytes = read_stream(stream, (size_t)size, n, &status);
    }
    *code = EXIT_OK;
    if (interrupted()) *code = EXIT_INTERRUPTED;
    else if (status == PLUMB_ERROR_IO) *code = report(name, status, strerror(errno));
    else if (status == PLUMB_ERROR_MEMORY) {
        char message[80];
        snprintf(message, sizeof message, "out of memory: the file has %.0f MB",
                 1e-6 * (double)(size > *n ? size : *n));
        *code = report(name, status, message);
    }
    if (stream && !is_stdin) fclose(stream);
    if (*code == EXIT_OK) return bytes;
    free(bytes);
    return NULL;
}

/* ---- output files ------------------------------------------------------------------------------------------------ */

bool has_gguf_suffix(const char *path) {
    size_t n = strlen(path);
    return n >= 5 && strcmp(path + n - 5, ".gguf") == 0;
}

bool same_file(const char *a, const char *b) {
    struct stat x, y;
    if (stat(a, &x) != 0 || stat(b, &y) != 0 || !S_ISREG(x.st_mode) || !S_ISREG(y.st_mode)) return false;
    return x.st_ino != 0 ? x.st_dev == y.st_dev && x.st_ino == y.st_ino : strcmp(a, b) == 0;
}

/* The path of the FILE.part that is being written, or NULL.  exit() removes the file. */
static char *part_path;

static void remove_part(void) {
    if (part_path) remove(part_path);
    free(part_path);
    part_path = NULL;
}

/* Creates FILE.part beside FILE; writer_close renames it to FILE. */
static int open_part(struct writer *w) {
    static bool is_registered;
    size_t n = strlen(w->path) + sizeof ".part";
    char *part = allocate(n);
    snprintf(part, n, "%s.part", w->path);
    int code = EXIT_OK;
    w->stream = fopen(part, "wbx");   /* x: fails if the file exists */
    if (!w->stream && errno == EEXIST) {
        code = report(part, PLUMB_ERROR_IO, "the file exists: another run is writing it, or was interrupted; in that "
                      "case remove it");
    } else if (!w->stream) {
        code = report(w->path, PLUMB_ERROR_IO, strerror(errno));
    }
    if (code != EXIT_OK) {
        free(part);
        return code;
    }
    if (!is_registered) atexit(remove_part);
    is_registered = true;
    part_path = part;
    w->is_part = true;
    return EXIT_OK;
}

int writer_open(struct writer *w, const char *path) {
    struct stat info;
    *w = (struct writer){ .path = path };
    if (strcmp(path, "-") == 0) return EXIT_OK;
    bool exists = lstat(path, &info) == 0;
    if (!exists) return open_part(w);
    /* A device, a pipe or a link is written directly.  A regular file is replaced, but only if it may be written: "r+b"
     * checks that. */
    w->stream = fopen(path, S_ISREG(info.st_mode) ? "r+b" : "wb");
    if (!w->stream) return report(path, PLUMB_ERROR_IO, strerror(errno));
    if (!S_ISREG(info.st_mode)) return EXIT_OK;
    fclose(w->stream);
    return open_part(w);
}

void writer_write(void *user, const char *bytes, size_t n) {
    struct writer *w = user;
    if (!w->stream) out_bytes(bytes, n);
    else if (!w->error && fwrite(bytes, 1, n, w->stream) != n) w->error = errno ? errno : EIO;
    if (interrupted()) exit(EXIT_INTERRUPTED);
}

int writer_close(struct writer *w, int code) {
    if (!w->stream) return code;
    if (fclose(w->stream) != 0 && !w->error) w->error = errno ? errno : EIO;
    if (code == EXIT_OK && !w->error && w->is_part && rename(part_path, w->path) != 0) w->error = errno;
    if (code == EXIT_OK && w->error) code = report(w->path, PLUMB_ERROR_IO, strerror(w->error));
    if (!w->is_part) return code;
    if (code == EXIT_OK) {
        free(part_path);
        part_path = NULL;
    } else {
        remove_part();
    }
    return code;
}

/* ---- progress ---------------------------------------------------------------------------------------------------- */

void progress_begin(struct progress *p) {
    *p = (struct progress){ .terminal = isatty(STDERR_FILENO) == 1, .start = now() };
}

void progress_show(struct progress *p, double done, const char *format, ...) {
    double t = now(), seconds = t - p->start;
    if (!p->terminal || seconds < 1 || t - p->last < 0.1) return;
    p->last = t;
    p->shown = true;
    va_list args;
    va_start(args, format);
    fputc('\r', stderr);
    vfprintf(stderr, format, args);
    va_end(args);
    if (done > 0 && done <= 1) fprintf(stderr, ", %.0f s left", seconds / done * (1 - done));
    fputs(" \x1b[K", stderr);
    fflush(stderr);
}

void progress_end(struct progress *p) {
    if (p->shown) fputs("\r\x1b[K", stderr);
    p->shown = false;
}

/* ---- time and signals -------------------------------------------------------------------------------------------- */

double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

uint64_t random_seed(void) {
    uint32_t seed;
    if (getentropy(&seed, sizeof seed) == 0) return seed;
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint32_t)t.tv_nsec ^ (uint32_t)t.tv_sec;
}

#if defined(__wasi__)
/* In wasi-libc the current directory is / until chdir.  A host that has a current directory passes it in PWD. */
void start_process(void) {
    const char *directory = getenv("PWD");
    if (directory) (void)!chdir(directory);
}

bool interrupted(void) { return false; }
void forget_interrupt(void) { }
void end_at_interrupt(bool on) { (void)on; }
#else
static volatile sig_atomic_t was_interrupted;

static void on_interrupt(int number) {
    (void)number;
    was_interrupted = 1;
}

bool interrupted(void) { return was_interrupted != 0; }

void end_at_interrupt(bool on) {
    struct sigaction interrupt = { .sa_handler = on ? SIG_DFL : on_interrupt, .sa_flags = (int)SA_RESETHAND };
    if (!interrupted()) sigaction(SIGINT, &interrupt, NULL);
}

void forget_interrupt(void) {
    was_interrupted = 0;
    end_at_interrupt(false);
}

void start_process(void) {
    end_at_interrupt(false);
    signal(SIGPIPE, SIG_IGN);
}

#endif

/* ---- memory ------------------------------------------------------------------------------------------------------ */

#if defined(__wasi__)
/* Replaces the C library's sbrk, from which malloc takes its memory.  The library's grows the memory by 64 KiB at a
 * time, and growing costs V8 a garbage collection now and then: a trace of many small rows took twice its time.  This
 * one grows the memory by an eighth, or by more if needed; the surplus is not touched before it is used.
 * increment: a multiple of 64 KiB, not negative. */
void *sbrk(intptr_t increment);
void *sbrk(intptr_t increment) {
    enum { PAGE = 65536 };
    static size_t end;   /* page after the last one handed out; 0: not called yet */
    size_t n_page = __builtin_wasm_memory_size(0);
    if (end == 0) end = n_page;
    size_t at = end, n = (size_t)increment / PAGE, n_free = n_page - end;
    if (n > n_free) {
        size_t n_grow = n - n_free, n_ahead = n_grow > n_page / 8 ? n_grow : n_page / 8;
        if (__builtin_wasm_memory_grow(0, n_ahead) == SIZE_MAX && __builtin_wasm_memory_grow(0, n_grow) == SIZE_MAX) {
            errno = ENOMEM;
            return (void *)-1;
        }
    }
    end += n;
    return (void *)(at * PAGE);
}
#endif
