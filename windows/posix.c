/* The functions of posix.h.  This file calls Windows' own functions, whose texts are UTF-16. */
#undef fopen
#undef open
#undef read
#undef fstat
#undef lstat
#undef stat
#undef remove
#undef rename
#undef isatty
#undef getchar
#undef ungetc
#undef fread
#undef main

#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>

/* ---- names of files ---------------------------------------------------------------------------------------------- */

/* A text in UTF-16, to be freed.  Returns NULL and sets errno if it is no UTF-8 or memory is out. */
static wchar_t *wide(const char *text) {
    const int n = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, text, -1, NULL, 0);
    wchar_t *copy = n > 0 ? malloc((size_t)n * sizeof *copy) : NULL;
    if (copy) MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, text, -1, copy, n);
    else errno = n > 0 ? ENOMEM : EILSEQ;
    return copy;
}

FILE *posix_fopen(const char *path, const char *mode) {
    wchar_t *name = wide(path), *how = wide(mode);
    FILE *stream = name && how ? _wfopen(name, how) : NULL;
    free(name);
    free(how);
    return stream;
}

int posix_open(const char *path, int flags) {
    wchar_t *name = wide(path);
    const int fd = name ? _wopen(name, flags | _O_BINARY) : -1;
    free(name);
    return fd;
}

ssize_t posix_read(int fd, void *bytes, size_t n) { return _read(fd, bytes, n < INT_MAX ? (unsigned)n : INT_MAX); }

static void set_status(struct posix_stat *info, const struct _stat64 *known, HANDLE file) {
    BY_HANDLE_FILE_INFORMATION more;
    *info = (struct posix_stat){ .st_mode = known->st_mode, .st_size = known->st_size };
    if (file == INVALID_HANDLE_VALUE || !GetFileInformationByHandle(file, &more)) return;
    info->st_dev = more.dwVolumeSerialNumber;
    info->st_ino = (uint64_t)more.nFileIndexHigh << 32 | more.nFileIndexLow;
}

int posix_stat(const char *path, struct posix_stat *info) {
    wchar_t *name = wide(path);
    struct _stat64 known;
    const int result = name ? _wstat64(name, &known) : -1;
    if (result == 0) {
        const HANDLE file = CreateFileW(name, FILE_READ_ATTRIBUTES, FILE_SHARE_READ | FILE_SHARE_WRITE
            | FILE_SHARE_DELETE, NULL, OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS, NULL);
        set_status(info, &known, file);
        if (file != INVALID_HANDLE_VALUE) CloseHandle(file);
    }
    free(name);
    return result;
}

int posix_fstat(int fd, struct posix_stat *info) {
    struct _stat64 known;
    const int result = _fstat64(fd, &known);
    if (result == 0) set_status(info, &known, (HANDLE)_get_osfhandle(fd));
    return result;
}

int posix_remove(const char *path) {
    wchar_t *name = wide(path);
    const int result = name ? _wremove(name) : -1;
    free(name);
    return result;
}

int posix_rename(const char *from, const char *to) {
    wchar_t *old = wide(from), *new = wide(to);
    const bool is_named = old && new;
    const bool is_done = is_named && MoveFileExW(old, new, MOVEFILE_REPLACE_EXISTING);
    if (is_named && !is_done) errno = GetLastError() == ERROR_ACCESS_DENIED ? EACCES : EIO;
    free(old);
    free(new);
    return is_done ? 0 : -1;
}

/* ---- consoles ---------------------------------------------------------------------------------------------------- */

static HANDLE handle_of(int fd) { return (HANDLE)_get_osfhandle(fd); }

int posix_isatty(int fd) {
    DWORD mode;
    return GetConsoleMode(handle_of(fd), &mode) != 0;
}

/* The line that was typed last.  Reading a console as a file would lose the characters that are not ASCII. */
static struct { char bytes[3 * 4096 + 1]; size_t n, at; bool is_console, is_ended; } typed;

/* Returns false at the end of the input, which is Ctrl-Z or Ctrl-D at the start of a line, and after Ctrl-C. */
static bool has_typed(void) {
    if (typed.at < typed.n) return true;
    wchar_t line[4096];
    DWORD n = 0;
    if (typed.is_ended) return false;
    if (!ReadConsoleW(handle_of(STDIN_FILENO), line, sizeof line / sizeof *line, &n, NULL) || n == 0) {
        Sleep(20);   /* after Ctrl-C another thread calls the handler of SIGINT */
        return false;
    }
    size_t n_kept = 0;
    for (DWORD i = 0; i < n; i++) {
        if (line[i] != L'\r') line[n_kept++] = line[i];
    }
    typed.is_ended = line[0] == 26 || line[0] == 4;
    if (typed.is_ended || n_kept == 0) return false;
    typed.n = (size_t)WideCharToMultiByte(CP_UTF8, 0, line, (int)n_kept, typed.bytes + 1, sizeof typed.bytes - 1, NULL,
                                          NULL) + 1;
    typed.at = 1;   /* byte 0 is for ungetc */
    return true;
}

int posix_getchar(void) {
    if (!typed.is_console) return getc(stdin);
    return has_typed() ? (unsigned char)typed.bytes[typed.at++] : EOF;
}

int posix_ungetc(int c, FILE *stream) {
    if (stream != stdin || !typed.is_console) return ungetc(c, stream);
    if (c == EOF || typed.at == 0) return EOF;
    typed.bytes[--typed.at] = (char)c;
    return c;
}

size_t posix_fread(void *bytes, size_t size, size_t n, FILE *stream) {
    if (stream != stdin || !typed.is_console) return fread(bytes, size, n, stream);
    size_t n_byte = 0;
    for (; n_byte < size * n && has_typed(); n_byte++) ((char *)bytes)[n_byte] = typed.bytes[typed.at++];
    return size > 0 ? n_byte / size : 0;
}

int poll(struct pollfd *input, unsigned long n, int milliseconds) {
    (void)n;
    const HANDLE pipe = handle_of(input->fd);
    for (int waited = 0; waited < milliseconds; waited += 10) {
        DWORD n_available = 0;
        if (GetFileType(pipe) != FILE_TYPE_PIPE) return 1;
        if (!PeekNamedPipe(pipe, NULL, 0, NULL, &n_available, NULL) || n_available > 0) return 1;
        Sleep(10);
    }
    return 0;
}

/* ---- signals ----------------------------------------------------------------------------------------------------- */

/* signal() of Windows forgets a handler when it has called it, as SA_RESETHAND says. */
int sigaction(int number, const struct sigaction *action, struct sigaction *before) {
    (void)before;
    return number == SIGINT && signal(SIGINT, action->sa_handler) != SIG_ERR ? 0 : -1;
}

/* ---- processors, random numbers ---------------------------------------------------------------------------------- */

long sysconf(int name) {
    DWORD_PTR own, all;
    if (name != _SC_NPROCESSORS_ONLN) return -1;
    if (!GetProcessAffinityMask(GetCurrentProcess(), &own, &all) || own == 0) return 1;
    return (long)__builtin_popcountll(own);
}

int getentropy(void *bytes, size_t n) {
    for (size_t i = 0, n_part; i < n; i += n_part) {
        unsigned part;
        if (rand_s(&part) != 0) return -1;
        n_part = n - i < sizeof part ? n - i : sizeof part;
        memcpy((char *)bytes + i, &part, n_part);
    }
    return 0;
}

/* ---- the start of the process ------------------------------------------------------------------------------------ */

static UINT input_page, output_page;

static void restore_console(void) {
    if (input_page) SetConsoleCP(input_page);
    if (output_page) SetConsoleOutputCP(output_page);
}

static void start_streams(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        DWORD mode;
        _setmode(fd, _O_BINARY);
        if (fd == STDIN_FILENO || !GetConsoleMode(handle_of(fd), &mode)) continue;
        SetConsoleMode(handle_of(fd), mode | ENABLE_VIRTUAL_TERMINAL_PROCESSING);
    }
    /* Without a buffer the bytes of a character would reach a console one by one, which then shows none of them.  What
     * prints for people flushes when they should see it. */
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    typed.is_console = posix_isatty(STDIN_FILENO);
}

/* The arguments in UTF-8, in memory that is kept until the end. */
static char **arguments(int n, wchar_t **given) {
    char **texts = calloc((size_t)n + 1, sizeof *texts);
    for (int i = 0; texts && i < n; i++) {
        const int n_byte = WideCharToMultiByte(CP_UTF8, 0, given[i], -1, NULL, 0, NULL, NULL);
        texts[i] = malloc((size_t)n_byte);
        if (!texts[i]) return NULL;
        WideCharToMultiByte(CP_UTF8, 0, given[i], -1, texts[i], n_byte, NULL, NULL);
    }
    return texts;
}

int posix_main(int argc, char **argv);

int wmain(int argc, wchar_t **argv);
int wmain(int argc, wchar_t **argv) {
    char **texts = arguments(argc, argv);
    if (!texts) return 1;
    input_page = GetConsoleCP();
    output_page = GetConsoleOutputCP();
    atexit(restore_console);
    SetConsoleCP(CP_UTF8);
    SetConsoleOutputCP(CP_UTF8);
    start_streams();
    return posix_main(argc, texts);
}
