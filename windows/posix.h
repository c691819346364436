/* What plumb uses of POSIX and Windows lacks or has in another way.  The Makefile includes this file in front of every
 * source that it compiles for Windows, so no other file of the command line knows about Windows.
 *
 * Names of files, arguments, and what is typed at or written to a console are UTF-8, as everywhere in plumb; files and
 * streams are binary, and files may be larger than 2 GB.  posix.c does all of this. */
#ifndef PLUMB_WINDOWS_POSIX_H
#define PLUMB_WINDOWS_POSIX_H

#define _CRT_RAND_S
#include <fcntl.h>
#include <io.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- files and streams ------------------------------------------------------------------------------------------- */

FILE *posix_fopen(const char *path, const char *mode);
/* Only for reading. */
int posix_open(const char *path, int flags);
ssize_t posix_read(int fd, void *bytes, size_t n);
/* What plumb reads of the status of a file.  Two names of one file have the same st_dev and st_ino, which Windows' own
 * struct does not tell; st_ino is 0 for devices and pipes. */
struct posix_stat { unsigned short st_mode; int64_t st_size; uint64_t st_dev, st_ino; };
int posix_stat(const char *path, struct posix_stat *info);
int posix_fstat(int fd, struct posix_stat *info);
int posix_remove(const char *path);
/* Replaces a file that has the new name. */
int posix_rename(const char *from, const char *to);
/* 1 for a console, and 0 for any other device. */
int posix_isatty(int fd);
/* These read a console in UTF-8, and any other stream as usual. */
int posix_getchar(void);
int posix_ungetc(int c, FILE *stream);
size_t posix_fread(void *bytes, size_t size, size_t n, FILE *stream);

#define fopen posix_fopen
#define open posix_open
#define read posix_read
#undef fstat
#undef lstat
#undef stat
#define fstat posix_fstat
#define lstat posix_stat
#define stat posix_stat   /* also the struct */
#define remove posix_remove
#define rename posix_rename
#define isatty posix_isatty
#undef getchar
#define getchar posix_getchar
#define ungetc posix_ungetc
#define fread posix_fread

/* poll for one pipe to read from. */
struct pollfd { int fd; short events, revents; };
#define POLLIN 1
int poll(struct pollfd *input, unsigned long n, int milliseconds);

/* ---- signals ----------------------------------------------------------------------------------------------------- */

/* For SIGINT only.  Windows has no other signal that plumb handles: SIGPIPE is ignored, as it never comes. */
struct sigaction { void (*sa_handler)(int); int sa_flags; };
#define SA_RESETHAND 1
#undef SIGPIPE
#define SIGPIPE 13
int sigaction(int number, const struct sigaction *action, struct sigaction *before);

/* ---- memory, processors, random numbers, the start --------------------------------------------------------------- */

void *memmem(const void *bytes, size_t n, const void *wanted, size_t n_wanted);

#define _SC_NPROCESSORS_ONLN 84
/* The processors that this process may use. */
long sysconf(int name);

int getentropy(void *bytes, size_t n);

/* Windows' wmain, in posix.c, calls the program's main. */
#define main posix_main

#endif
