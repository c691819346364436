#define _POSIX_C_SOURCE 200809L
#include "quiet.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void __sanitizer_set_report_fd(void *fd);

static FILE *files[2];   /* replace standard output and error */
static int real[2];

void quiet_begin(void) {
    for (int i = 0; i < 2; i++) {
        FILE *stream = i == 0 ? stdout : stderr;
        fflush(stream);
        if (!files[i]) {
            files[i] = tmpfile();
            real[i] = dup(i + 1);
            if (!files[i] || real[i] < 0) abort();
            if (i == 1) __sanitizer_set_report_fd((void *)(intptr_t)real[i]);
        }
        if (ftruncate(fileno(files[i]), 0) != 0 || lseek(fileno(files[i]), 0, SEEK_SET) != 0) abort();
        if (dup2(fileno(files[i]), i + 1) < 0) abort();
    }
}

static size_t take(int i, char *text, size_t cap) {
    fflush(i == 0 ? stdout : stderr);
    if (dup2(real[i], i + 1) < 0) abort();
    ssize_t n = pread(fileno(files[i]), text, cap - 1, 0);
    if (n < 0) abort();
    text[n] = 0;
    return (size_t)n;
}

void quiet_end(struct said *said) {
    said->n_err = take(1, said->err, sizeof said->err);
    said->n_out = take(0, said->out, sizeof said->out);
}
