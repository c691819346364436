/* What the types of K and V cost on a text: bytes, tokens per second, and the divergence of the next token's
 * distribution from that with the first type, such as f32, which is slow, or i16.  Prints a row of a Markdown table for
 * each length and type.
 *
 *   build/bench/kv MODEL TEXT N_THREAD TYPE,... LENGTH...      lengths ascend
 *
 * A session of each type is fed the text up to the largest length.  Up to each length, the last N_SCORED positions are
 * compared, and the others are timed as a prompt, of the tokens from the length before on.  Then N_DECODE tokens are
 * timed one by one, and forgotten. */
#define _POSIX_C_SOURCE 200809L   /* clock_gettime */
#include <plumb.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { N_SCORED = 128, N_DECODE = 16, MAX_LENGTHS = 8 };

/* The distributions of one length: those of the first type are kept, (N_SCORED, n_vocab) log-probabilities. */
struct scores {
    uint32_t n_vocab, n, n_same;
    float *base;
    bool is_base;
    double kl;
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static _Noreturn void fail(const char *what) {
    fprintf(stderr, "kv: %s\n", what);
    exit(1);
}

static void *allocate(size_t n) {
    void *p = malloc(n);
    if (!p) fail("no memory");
    return p;
}

static char *read_all(const char *path, size_t *n) {
    FILE *file = fopen(path, "rb");
    char *bytes = NULL;
    *n = 0;
    for (size_t got = 1; file && got > 0; *n += got) {
        bytes = realloc(bytes, *n + (1 << 20));
        if (!bytes) fail("no memory");
        got = fread(bytes + *n, 1, 1 << 20, file);
    }
    if (!file) fail(path);
    fclose(file);
    return bytes;
}

static plumb_model *load(const char *path) {
    plumb_model *model = plumb_model_create();
    FILE *file = fopen(path, "rb");
    if (!model || !file) fail(path);
    plumb_status status = plumb_model_begin(model, PLUMB_SIZE_UNKNOWN);
    for (size_t n = 1; status == PLUMB_OK && n > 0;) {
        void *data;
        status = plumb_model_window(model, &data, &n);
        if (status == PLUMB_OK && n > 0) n = fread(data, 1, n, file);
        if (status == PLUMB_OK && n > 0) status = plumb_model_commit(model, n);
    }
    fclose(file);
    if (status != PLUMB_OK || plumb_model_end(model) != PLUMB_OK) fail(plumb_model_error(model));
    return model;
}

static void on_logits(void *user, uint32_t pos, const float *logits) {
    struct scores *s = user;
    int32_t top, base_top = 0;
    double sum = plumb_logits_top(logits, s->n_vocab, 1, &top), kl = 0;
    float *base = s->base + (size_t)s->n++ * s->n_vocab;
    for (uint32_t i = 0; i < s->n_vocab; i++) {
        double log_p = (double)logits[i] - sum;
        if (s->is_base) base[i] = (float)log_p;
        kl += exp((double)base[i]) * ((double)base[i] - log_p);
        if (base[i] > base[base_top]) base_top = (int32_t)i;
    }
    s->kl += kl;
    s->n_same += top == base_top;
    (void)pos;
}

static void feed(plumb_session *session, const int32_t *ids, uint32_t n, struct scores *s) {
    plumb_status status = s ? plumb_session_feed_all(session, ids, n, on_logits, s)
                            : plumb_session_feed(session, ids, n);
    if (status != PLUMB_OK) fail(plumb_session_error(session));
}

static plumb_kv_type type_named(const char *name) {
    for (int type = 0; plumb_kv_type_name((plumb_kv_type)type); type++) {
        if (strcmp(plumb_kv_type_name((plumb_kv_type)type), name) == 0) return (plumb_kv_type)type;
    }
    fail(name);
}

int main(int argc, char **argv) {
    struct scores all[MAX_LENGTHS] = { 0 };
    uint32_t lengths[MAX_LENGTHS], n_length = 0, n_most = 0;
    size_t n_byte;
    if (argc < 6 || argc > 5 + MAX_LENGTHS) fail("MODEL TEXT N_THREAD TYPE,... LENGTH...");
    plumb_model *model = load(argv[1]);
    char *text = read_all(argv[2], &n_byte);
    for (int i = 5; i < argc; i++, n_length++) {
        lengths[n_length] = (uint32_t)atoi(argv[i]);
        if (lengths[n_length] < n_most + 2 * N_SCORED) fail("lengths must ascend by 256 at least");
        n_most = lengths[n_length];
    }
    int32_t *ids = allocate((n_byte + 8) * sizeof *ids);
    int64_t n_id = plumb_tokenize(model, text, n_byte, PLUMB_ADD_SPECIAL, ids, n_byte + 8);
    if (n_id < (int64_t)n_most + N_DECODE) fail("the text is too short");
    printf("| tokens | type | K and V, MB | prompt, tokens/s | decoding, tokens/s | mean KL | same top token |\n"
           "| ---: | --- | ---: | ---: | ---: | ---: | ---: |\n");
    bool is_base = true;
    for (const char *name = strtok(argv[4], ","); name; name = strtok(NULL, ","), is_base = false) {
        plumb_kv_type type = type_named(name);
        plumb_session *session;
        plumb_session_params params = { .n_ctx = n_most + N_DECODE, .kv_type = type,
                                        .n_thread = (uint32_t)atoi(argv[3]) };
        if (plumb_session_create(&session, model, &params) != PLUMB_OK) fail(plumb_model_error(model));
        for (uint32_t j = 0, at = 0; j < n_length; j++) {
            struct scores *s = &all[j];
            s->is_base = is_base;
            s->n_vocab = plumb_model_n_vocab(model);
            s->n = s->n_same = 0;
            s->kl = 0;
            if (!s->base) s->base = allocate((size_t)N_SCORED * s->n_vocab * sizeof *s->base);
            uint32_t n_timed = lengths[j] - N_SCORED - at;
            double begin = now();
            feed(session, ids + at, n_timed, NULL);
            double middle = now();
            feed(session, ids + at + n_timed, N_SCORED, s);
            at = lengths[j];
            double decode = now();
            for (uint32_t t = 0; t < N_DECODE; t++) feed(session, ids + at + t, 1, NULL);
            double end = now();
            if (plumb_session_rewind(session, at) != PLUMB_OK) fail(plumb_session_error(session));
            printf("| %" PRIu32 " | %s | %.1f | %.1f | %.1f | %.2g | %.2f %% |\n", at,
                   name, plumb_model_kv_bytes(model, at, 0, type) * 1e-6, n_timed / (middle - begin),
                   N_DECODE / (end - decode), s->kl / s->n, 100.0 * s->n_same / s->n);
            fflush(stdout);
        }
        plumb_session_free(session);
    }
    for (uint32_t j = 0; j < n_length; j++) free(all[j].base);
    free(ids);
    free(text);
    plumb_model_free(model);
    return 0;
}
