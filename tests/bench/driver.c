/* clock_gettime */
#define _POSIX_C_SOURCE 200809L
#include "driver.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static struct {
    const struct engine *engine;
    int32_t *ids;
    uint32_t n_id, n_past;
} self;

/* Makes a message safe for JSON: quotes and backslashes become apostrophes, control characters become spaces. */
static int answer_error(const char *message) {
    printf("{\"error\": \"");
    for (const char *p = message; *p; p++) putchar(*p == '"' || *p == '\\' ? '\'' : (unsigned char)*p < ' ' ? ' ' : *p);
    printf("\"}\n");
    return 1;
}

static void rewind_to(uint32_t n_past) { self.n_past = self.engine->rewind(n_past); }

static const char *feed(uint32_t n) {
    if (n > self.n_id - self.n_past) return "more tokens than ids has given";
    const char *error = self.engine->feed(self.ids + self.n_past, n);
    self.n_past += n;
    return error;
}

static const char *take_ids(uint32_t n) {
    rewind_to(0);
    free(self.ids);
    self.n_id = 0;
    self.ids = n > 0 && n <= 1 << 24 ? malloc(n * sizeof *self.ids) : NULL;
    if (!self.ids) return "no memory for the ids";
    for (; self.n_id < n; self.n_id++) {
        if (scanf("%" SCNd32, &self.ids[self.n_id]) != 1) return "ids: fewer numbers than announced";
    }
    return NULL;
}

static const char *prefill(uint32_t n, double *seconds) {
    rewind_to(0);
    double start = now();
    const char *error = feed(n);
    *seconds = now() - start;
    return error;
}

/* The part of CTX that the context already holds is kept, so a repetition costs only its steps. */
static const char *decode(uint32_t n_ctx, uint32_t n_step, double *seconds) {
    const char *error = NULL;
    if (self.n_past > n_ctx) rewind_to(n_ctx);
    if (self.n_past < n_ctx) error = feed(n_ctx - self.n_past);
    double start = now();
    for (uint32_t i = 0; i < n_step && !error; i++) error = feed(1);
    *seconds = now() - start;
    rewind_to(n_ctx);
    return error;
}

int drive(const struct engine *engine, int argc, char **argv) {
    char order[16];
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc != 4) return answer_error("usage: MODEL N_CTX N_THREAD");
    self.engine = engine;
    double start = now();
    const char *error = engine->open(argv[1], (uint32_t)strtoul(argv[2], NULL, 10),
                                     (uint32_t)strtoul(argv[3], NULL, 10));
    if (error) return answer_error(error);
    printf("{\"load_seconds\": %.6f, \"about\": \"%s\"}\n", now() - start, engine->about());
    while (scanf("%15s", order) == 1) {
        uint32_t n, n_step;
        double seconds = -1;
        if (strcmp(order, "ids") == 0 && scanf("%" SCNu32, &n) == 1) error = take_ids(n);
        else if (strcmp(order, "prefill") == 0 && scanf("%" SCNu32, &n) == 1) error = prefill(n, &seconds);
        else if (strcmp(order, "decode") == 0 && scanf("%" SCNu32 "%" SCNu32, &n, &n_step) == 2) {
            error = decode(n, n_step, &seconds);
        } else return answer_error("an order that is not known");
        if (error) answer_error(error);
        else if (seconds < 0) printf("{\"n\": %" PRIu32 "}\n", self.n_id);
        else printf("{\"seconds\": %.9f}\n", seconds);
        fflush(stdout);
    }
    return 0;
}
