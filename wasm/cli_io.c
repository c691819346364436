/* What touches the system: files, streams, the clock, signals. */
#define _POSIX_C_SOURCE 200809L
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#if !defined(__wasi__)   /* WASI has no signals; its runtime ends the process */
#include <signal.h>
#endif

/* ---- messages ---------------------------------------------------------------------------------------------------- */

int complain(int code, const char *format, ...) {
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    for (char *c = line; *c; c++) *c = (unsigned char)*c < ' ' || *c == 127 ? '?' : *c;   /* one line always */
    fprintf(stderr, "plumb: %s\n", line);
    return code;
}

int report(const char *where, plumb_status status, const char *message) {
    const char *advice = status == PLUMB_ERROR_CONTEXT ? "; --ctx makes it larger" : "";
    return complain(EXIT_FAILED, "%s: %s: %s%s", where, plumb_status_name(status), message, advice);
}

/* ---- standard output --------------------------------------------------------------------------------------------- */

static int out_errno;

static void note(bool ok) {
    if (!ok && out_errno == 0) out_errno = errno ? errno : EIO;
}

void out(const char *format, ...) {
    if (out_errno) return;
    va_list args;
    va_start(args, format);
    note(vprintf(format, args) >= 0);
    va_end(args);
}

void out_bytes(const void *bytes, size_t n) {
    if (!out_errno) note(fwrite(bytes, 1, n, stdout) == n);
}

void out_flush(void) {
    if (!out_errno) note(fflush(stdout) == 0);
}

bool out_failed(void) { return out_errno != 0; }

int out_close(int code) {
    out_flush();
    if (out_errno == 0) return code;
    return out_errno == EPIPE ? code : report("standard output", PLUMB_ERROR_IO, strerror(out_errno));
}

/* Length of the UTF-8 character at s, by the Unicode standard's table 3-7; 0 if there is none. */
static size_t utf8_length(const char *bytes, size_t n) {
    const unsigned char *s = (const unsigned char *)bytes;
    if (s[0] < 0x80) return 1;
    if (s[0] < 0xc2 || s[0] > 0xf4) return 0;
    size_t len = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    if (len > n) return 0;
    unsigned char low = s[0] == 0xe0 ? 0xa0 : s[0] == 0xf0 ? 0x90 : 0x80;
    unsigned char high = s[0] == 0xed ? 0x9f : s[0] == 0xf4 ? 0x8f : 0xbf;
    if (s[1] < low || s[1] > high) return 0;
    for (size_t i = 2; i < len; i++) {
        if (s[i] < 0x80 || s[i] > 0xbf) return 0;
    }
    return len;
}

void out_escaped(const char *s, size_t n) {
    for (size_t i = 0; i < n;) {
        unsigned char c = (unsigned char)s[i];
        size_t len = utf8_length(s + i, n - i);
        if (c == '\n') out("\\n");
        else if (c == '\t') out("\\t");
        else if (c == '\r') out("\\r");
        else if (c == '"' || c == '\\') out("\\%c", c);
        else if (len == 0 || c < ' ' || c == 127) out("\\x%02x", c);
        else out_bytes(s + i, len);
        i += len ? len : 1;
    }
}

void out_json_string(const char *s, size_t n) {
    out("\"");
    for (size_t i = 0; i < n;) {
        unsigned char c = (unsigned char)s[i];
        size_t len = utf8_length(s + i, n - i);
        if (c == '"' || c == '\\') out("\\%c", c);
        else if (len == 0) out("\xef\xbf\xbd");
        else if (c < ' ') out("\\u%04x", c);
        else out_bytes(s + i, len);
        i += len ? len : 1;
    }
    out("\"");
}

/* ---- input ------------------------------------------------------------------------------------------------------- */

void *allocate(size_t n) {
    void *p = malloc(n ? n : 1);
    if (!p) exit(complain(EXIT_FAILED, "out of memory: %zu bytes", n));
    return p;
}

char *read_stdin(size_t *n, int *code) {
    size_t cap = 4096;
    char *text = allocate(cap);
    *n = 0;
    for (size_t got; (got = fread(text + *n, 1, cap - 1 - *n, stdin)) > 0;) {
        *n += got;
        if (*n + 1 < cap) continue;
        char *larger = allocate(cap *= 2);
        memcpy(larger, text, *n);
        free(text);
        text = larger;
    }
    text[*n] = '\0';
    if (!ferror(stdin)) return text;
    *code = interrupted() ? EXIT_INTERRUPTED : report("standard input", PLUMB_ERROR_IO, strerror(errno));
    free(text);
    return NULL;
}

/* ---- time, the process -------------------------------------------------------------------------------------------- */

double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

#if defined(__wasi__)
/* The C library's current directory is / until it is told another one; a host that has one says so in PWD. */
void start_process(void) {
    const char *directory = getenv("PWD");
    if (directory) (void)!chdir(directory);
}

bool interrupted(void) { return false; }
#else
static volatile sig_atomic_t was_interrupted;

static void on_interrupt(int number) {
    (void)number;
    was_interrupted = 1;
}

void start_process(void) {
    struct sigaction interrupt = { .sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND };
    sigaction(SIGINT, &interrupt, NULL);
    signal(SIGPIPE, SIG_IGN);
}

bool interrupted(void) { return was_interrupted != 0; }
#endif

/* ---- reading models ---------------------------------------------------------------------------------------------- */

struct progress {
    bool shown, terminal;
    double start, last;
    uint64_t done, total;   /* bytes; total may be PLUMB_SIZE_UNKNOWN */
};

static void show_progress(struct progress *p) {
    double t = now(), seconds = t - p->start;
    if (!p->terminal || seconds < 1 || t - p->last < 0.1) return;
    p->last = t;
    p->shown = true;
    const double mb = 1e-6, rate = (double)p->done / seconds;
    if (p->total != PLUMB_SIZE_UNKNOWN && p->total > p->done) {
        fprintf(stderr, "\rloading %.0f of %.0f MB, %.0f MB/s, %.0f s left \x1b[K", mb * (double)p->done,
                mb * (double)p->total, mb * rate, (double)(p->total - p->done) / rate);
    } else {
        fprintf(stderr, "\rloading %.0f MB, %.0f MB/s \x1b[K", mb * (double)p->done, mb * rate);
    }
}

static bool is_enough(const plumb_model *model, enum load what) {
    return what != LOAD_ALL && plumb_model_has_header(model);
}

/* Bytes of the model's files from index i on. */
static uint64_t size_from(const struct options *o, size_t i) {
    uint64_t total = 0;
    for (; i < o->n_file; i++) {
        struct stat info;
        if (stat(o->files[i], &info) != 0 || !S_ISREG(info.st_mode)) return PLUMB_SIZE_UNKNOWN;
        total += (uint64_t)info.st_size;
    }
    return total;
}

/* read() straight to where the bytes belong.  size: of this file and those after it, which may continue it. */
static int load_file(plumb_model *model, const char *path, int fd, uint64_t size, enum load what, struct progress *p) {
    plumb_status status = plumb_model_begin(model, size);
    while (status == PLUMB_OK && !is_enough(model, what)) {
        void *data;
        size_t len;
        status = plumb_model_window(model, &data, &len);
        if (status != PLUMB_OK || len == 0) break;
        if (len > 4 << 20) len = 4 << 20;   /* so that progress is shown and Ctrl-C noticed */
        ssize_t n = read(fd, data, len);
        if (interrupted()) return EXIT_INTERRUPTED;
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return report(path, PLUMB_ERROR_IO, strerror(errno));
        if (n == 0) return EXIT_OK;   /* the next part, or plumb_model_end, sees whether that was too early */
        status = plumb_model_commit(model, (size_t)n);
        p->done += (uint64_t)n;
        show_progress(p);
    }
    return status == PLUMB_OK ? EXIT_OK : report(path, status, plumb_model_error(model));
}

static int load_files(plumb_model *model, const struct options *o, enum load what, struct progress *p) {
    for (size_t i = 0; i < o->n_file && !is_enough(model, what); i++) {
        int fd = open(o->files[i], O_RDONLY);
        if (fd < 0) return report(o->files[i], PLUMB_ERROR_IO, strerror(errno));
        int code = load_file(model, o->files[i], fd, size_from(o, i), what, p);
        close(fd);
        if (code != EXIT_OK) return code;
    }
    if (what == LOAD_HEADER && plumb_model_has_header(model)) return EXIT_OK;
    /* A header that ended too early has its message from load_vocab, which looks for it first. */
    plumb_status status = what == LOAD_ALL ? plumb_model_end(model) : plumb_model_load_vocab(model);
    return status == PLUMB_OK ? EXIT_OK : report(o->files[o->n_file - 1], status, plumb_model_error(model));
}

int load_model(plumb_model **model_out, const struct options *o, enum load what) {
    *model_out = NULL;
    plumb_model *model = plumb_model_create();
    if (!model) return complain(EXIT_FAILED, "out of memory");
    struct progress p = { .terminal = isatty(STDERR_FILENO) == 1, .start = now(), .total = size_from(o, 0) };
    int code = load_files(model, o, what, &p);
    if (p.shown) fprintf(stderr, "\r\x1b[K");
    if (code == EXIT_OK) *model_out = model;
    else plumb_model_free(model);
    return code;
}
