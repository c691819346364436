/* What the types of K and V cost on a text: bytes, tokens per second, and the divergence of the next token's
 * distribution from that with the first type, such as f32, which is slow, or i16.  Prints a row of a Markdown table for
 * each length and type.
 *
 *   build/bench/kv MODEL TEXT N_THREAD TYPE,... LENGTH...      lengths ascend
 *
 *   build/bench/kv MODEL TEXT N_THREAD shift:N_KEEP CTX LENGTH
 *
 * The second form is about plumb_session_set_shift: it compares a session of CTX tokens that drops tokens, and one that
 * computes what remains anew, with one that holds the whole text.  The positions from CTX on are scored.
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

/* ---- dropping tokens --------------------------------------------------------------------------------------------- */

enum { WHOLE, SHIFTED, ANEW, N_WAY, N_STEP = 32 };

/* A way to go on in a full context, and what it made of the last N_STEP tokens. */
struct way {
    plumb_session *session;
    float *log_p;              /* (N_STEP, n_vocab) */
    uint32_t n_vocab, n;
    double seconds, loss, kl;  /* loss: the sum of -log p of the next token; kl: from the whole text to this */
};

static void keep_log_p(void *user, uint32_t pos, const float *logits) {
    struct way *w = user;
    int32_t top;
    double sum = plumb_logits_top(logits, w->n_vocab, 1, &top);
    float *to = w->log_p + (size_t)w->n++ * w->n_vocab;
    for (uint32_t i = 0; i < w->n_vocab; i++) to[i] = (float)((double)logits[i] - sum);
    (void)pos;
}

static double divergence(const float *p, const float *q, uint32_t n) {
    double kl = 0;
    for (uint32_t i = 0; i < n; i++) kl += exp((double)p[i]) * ((double)p[i] - (double)q[i]);
    return kl;
}

/* Feeds a step.  If the context is full, ANEW forgets all but the first n_keep tokens, and feeds the later half of the
 * others again. */
static void feed_way(struct way *w, bool is_anew, uint32_t n_keep, const int32_t *ids, uint32_t n) {
    plumb_session *s = w->session;
    uint32_t n_ctx = plumb_session_n_ctx(s), n_past = plumb_session_n_past(s), n_drop = (n_ctx - n_keep) / 2;
    double begin = now();
    w->n = 0;
    if (is_anew && n_past + n > n_ctx) {
        int32_t *rest = allocate((size_t)n_past * sizeof *rest);
        uint32_t n_rest = n_past - n_keep - n_drop;
        memcpy(rest, plumb_session_tokens(s) + n_keep + n_drop, n_rest * sizeof *rest);
        if (plumb_session_rewind(s, n_keep) != PLUMB_OK) fail(plumb_session_error(s));
        feed(s, rest, n_rest, NULL);
        free(rest);
    }
    if (plumb_session_feed_all(s, ids, n, keep_log_p, w) != PLUMB_OK) fail(plumb_session_error(s));
    w->seconds += now() - begin;
}

static void compare_ways(plumb_model *model, const int32_t *ids, uint32_t n_thread, uint32_t n_keep, uint32_t n_ctx,
                         uint32_t n_id) {
    static const char *const names[N_WAY] = { "the whole text", "tokens dropped", "computed anew" };
    struct way ways[N_WAY] = { 0 };
    double kl_anew = 0;
    uint32_t n_scored = 0;
    for (int i = 0; i < N_WAY; i++) {
        plumb_session_params params = { .n_ctx = i == WHOLE ? n_id : n_ctx, .n_thread = n_thread };
        if (plumb_session_create(&ways[i].session, model, &params) != PLUMB_OK) fail(plumb_model_error(model));
        ways[i].n_vocab = plumb_model_n_vocab(model);
        ways[i].log_p = allocate((size_t)N_STEP * ways[i].n_vocab * sizeof *ways[i].log_p);
    }
    plumb_session *shifted = ways[SHIFTED].session;
    if (plumb_session_set_shift(shifted, n_keep) != PLUMB_OK) fail(plumb_session_error(shifted));
    for (uint32_t at = 0; at + N_STEP < n_id; at += N_STEP) {
        for (int i = 0; i < N_WAY; i++) feed_way(&ways[i], i == ANEW, n_keep, ids + at, N_STEP);
        for (uint32_t t = 0; at >= n_ctx && t < N_STEP; t++, n_scored++) {
            size_t row = (size_t)t * ways->n_vocab;
            for (int i = 0; i < N_WAY; i++) {
                ways[i].loss -= (double)ways[i].log_p[row + (uint32_t)ids[at + t + 1]];
                ways[i].kl += divergence(ways[WHOLE].log_p + row, ways[i].log_p + row, ways->n_vocab);
            }
            kl_anew += divergence(ways[ANEW].log_p + row, ways[SHIFTED].log_p + row, ways->n_vocab);
        }
    }
    printf("| context of %" PRIu32 ", %" PRIu32 " stay | seconds | perplexity | mean KL from the whole text |\n"
           "| --- | ---: | ---: | ---: |\n", n_ctx, n_keep);
    for (int i = 0; i < N_WAY; i++) {
        printf("| %s | %.1f | %.3f | %.3f |\n", names[i], ways[i].seconds, exp(ways[i].loss / n_scored),
               ways[i].kl / n_scored);
        plumb_session_free(ways[i].session);
        free(ways[i].log_p);
    }
    printf("mean KL from computed anew to tokens dropped: %.4f, %" PRIu32 " positions\n", kl_anew / n_scored, n_scored);
}

/* ---- main -------------------------------------------------------------------------------------------------------- */

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
    if (strncmp(argv[4], "shift:", 6) == 0) {
        if (n_length != 2) fail("shift:N_KEEP CTX LENGTH");
        compare_ways(model, ids, (uint32_t)atoi(argv[3]), (uint32_t)atoi(argv[4] + 6), lengths[0], lengths[1]);
        return 0;
    }
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
                   name, plumb_model_kv_bytes(model, at, 0, type, 0) * 1e-6, n_timed / (middle - begin),
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
