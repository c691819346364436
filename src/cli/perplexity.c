/* plumb perplexity measures how well the model predicts a text, and how far its probabilities are from those of another
 * run.
 *
 * The text's tokens are cut into chunks of n_ctx.  Each chunk begins with BOS if the model asks for it and is fed into
 * an empty cache.  The positions from n_ctx / 2 to n_ctx - 2 are scored: each by the probability that it gives to the
 * token after it.  llama-perplexity (llama.cpp, tools/perplexity) does the same.  A saved run has the format of its
 * files, all little-endian:
 *
 *   "_logits_"  u32 n_ctx  u32 n_vocab  u32 n_chunk  i32 tokens[n_chunk * n_ctx]
 *   for each scored position: f32 scale  f32 least  u16 level[n_vocab], and one more if n_vocab is odd
 *
 * where log p = least + scale * level.  least is not below the log p of the likeliest token minus 16.  Rarer tokens are
 * cut: they are saved with level 0. */
#include "cli/cli.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER_BYTES = 20, DEFAULT_CTX = 512 };

/* Accumulates values for their mean and its standard error. */
struct mean { double sum, sum2; uint64_t n; };

static void add(struct mean *m, double x) {
    m->sum += x;
    m->sum2 += x * x;
    m->n++;
}

static double mean_of(const struct mean *m) { return m->sum / (double)m->n; }

static double error_of(const struct mean *m) {
    double mean = mean_of(m), variance = m->sum2 / (double)m->n - mean * mean;
    return m->n > 1 && variance > 0 ? sqrt(variance / (double)(m->n - 1)) : 0;
}

/* The softmax of one position's logits: log p of token i is logits[i] - log_sum. */
struct distribution { uint32_t best; double log_sum; };

/* best is the token with the largest logit, the first of equal ones.  log_sum is NAN if a logit is not finite. */
static struct distribution distribution_of(const float *logits, uint32_t n) {
    struct distribution d = { 0, 0 };
    for (uint32_t i = 1; i < n; i++) {
        if (logits[i] > logits[d.best]) d.best = i;
    }
    double max = (double)logits[d.best];
    for (uint32_t i = 0; i < n; i++) d.log_sum += isfinite(logits[i]) ? exp((double)logits[i] - max) : (double)NAN;
    d.log_sum = max + log(d.log_sum);
    return d;
}

struct run {
    const struct options *options;
    plumb_session *session;
    struct ids tokens;           /* all tokens of the text; the first n_chunk * n_ctx are computed */
    int32_t bos;                 /* replaces the first token of each chunk; -1: none does */
    uint32_t n_vocab, n_ctx, n_chunk, n_batch;
    uint32_t chunk;              /* index of the current chunk */
    uint64_t n_done, n_total;    /* scored positions */
    struct progress progress;
    int code;                    /* exit code of the first failure */

    /* The base is the run that this one is compared with: a file, or a session of the reference pass. */
    FILE *base_file;
    plumb_session *base_session;
    float *base_logits;          /* (n_batch, n_vocab) logits of the current batch by the reference pass */
    uint32_t base_pos;           /* position of the first of them */
    double *base_log_p;          /* (n_vocab) log-probabilities of the current position; NULL: no base */
    double base_cut;             /* tokens whose base log-probability is not above this are left out of the sum */
    struct writer save;
    uint8_t *record;             /* (record_bytes) one position of a saved run that is read or written */

    struct mean nll, nll_base, ratio, kl, difference2, same_top;
    double *kl_values;           /* (n_total) divergence of each position */
};

static uint32_t first_scored(uint32_t n_ctx) { return n_ctx / 2; }
static uint64_t scored_in_chunk(uint32_t n_ctx) { return n_ctx - 1 - first_scored(n_ctx); }
static uint64_t record_bytes(uint32_t n_vocab) { return 8 + 2 * ((uint64_t)n_vocab + n_vocab % 2); }

/* ---- the file of a saved run ------------------------------------------------------------------------------------- */

static uint32_t get_u32(const uint8_t *p) {
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static float get_f32(const uint8_t *p) {
    uint32_t bits = get_u32(p);
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void put_u32(uint8_t *p, uint32_t x) {
    for (int i = 0; i < 4; i++) p[i] = (uint8_t)(x >> 8 * i);
}

static void put_f32(uint8_t *p, float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    put_u32(p, bits);
}

static int bad_base(const struct run *r, plumb_status status, const char *format, uint64_t found, uint64_t expected) {
    char message[160];
    snprintf(message, sizeof message, format, found, expected);
    return report(r->options->base, status, message);
}

static bool read_base(struct run *r, void *data, size_t n) { return fread(data, 1, n, r->base_file) == n; }

/* Opens the saved run, reads its header and checks that its tokens are those of this text. */
static int open_base(struct run *r, uint32_t *n_base_chunk) {
    const struct options *o = r->options;
    uint8_t header[HEADER_BYTES], token[4];
    r->base_file = fopen(o->base, "rb");
    if (!r->base_file) return report(o->base, PLUMB_ERROR_IO, strerror(errno));
    size_t n = fread(header, 1, sizeof header, r->base_file);
    if (ferror(r->base_file)) return report(o->base, PLUMB_ERROR_IO, strerror(errno));
    if (n < 8 || memcmp(header, "_logits_", 8) != 0) {
        return report(o->base, PLUMB_ERROR_MAGIC, "not a saved run: it does not begin with _logits_");
    }
    if (n < sizeof header) {
        return bad_base(r, PLUMB_ERROR_TRUNCATED, "expected a header of 20 bytes, found %" PRIu64, n, 0);
    }
    uint32_t n_ctx = get_u32(header + 8), n_vocab = get_u32(header + 12);
    *n_base_chunk = get_u32(header + 16);
    if (n_ctx < 4 || n_ctx > 1 << 24) {
        return bad_base(r, PLUMB_ERROR_METADATA, "expected chunks of 4 to 16777216 tokens, found %" PRIu64, n_ctx, 0);
    }
    if (r->n_ctx != 0 && n_ctx != r->n_ctx) {
        return bad_base(r, PLUMB_ERROR_ARGUMENT, "it has chunks of %" PRIu64 " tokens, but --ctx is %" PRIu64, n_ctx,
                        r->n_ctx);
    }
    if (n_vocab != r->n_vocab) {
        return bad_base(r, PLUMB_ERROR_METADATA, "its vocabulary has %" PRIu64 " tokens, but the model's has %" PRIu64,
                        n_vocab, r->n_vocab);
    }
    r->n_ctx = n_ctx;
    uint64_t n_token = (uint64_t)n_ctx * *n_base_chunk;
    if (n_token == 0 || n_token > r->tokens.n) {
        return bad_base(r, PLUMB_ERROR_METADATA, "it has %" PRIu64 " tokens, but the text has %" PRIu64, n_token,
                        r->tokens.n);
    }
    for (size_t i = 0; i < n_token; i++) {
        if (!read_base(r, token, sizeof token)) {
            return bad_base(r, PLUMB_ERROR_TRUNCATED, "the file ends in token %" PRIu64 " of %" PRIu64, i, n_token);
        }
        if ((int32_t)get_u32(token) != r->tokens.data[i]) {
            return bad_base(r, PLUMB_ERROR_METADATA, "token %" PRIu64 " differs from that of this text and model", i,
                            0);
        }
    }
    r->record = allocate((size_t)record_bytes(n_vocab));
    r->base_cut = -16;
    return EXIT_OK;
}

static int read_record(struct run *r) {
    if (!read_base(r, r->record, (size_t)record_bytes(r->n_vocab))) {
        return bad_base(r, PLUMB_ERROR_TRUNCATED, "the file ends in position %" PRIu64 " of %" PRIu64
                        " that are needed", r->n_done, r->n_total);
    }
    float scale = get_f32(r->record), least = get_f32(r->record + 4);
    if (!isfinite(scale) || !isfinite(least) || scale < 0 || least > 0) {
        return bad_base(r, PLUMB_ERROR_METADATA, "position %" PRIu64 " has no valid probabilities", r->n_done, 0);
    }
    double sum = 0;
    for (uint32_t i = 0; i < r->n_vocab; i++) {
        const uint8_t *level = r->record + 8 + 2 * (size_t)i;
        r->base_log_p[i] = (double)(scale * (float)(level[0] | level[1] << 8) + least);
        sum += exp(r->base_log_p[i]);
    }
    /* The upper bound allows for the tokens that were cut: each is saved with a probability of up to exp(-16), about
     * 1.1e-7. */
    if (!(sum > 0.9 && sum < 1.1 + 2e-7 * r->n_vocab)) {
        return bad_base(r, PLUMB_ERROR_METADATA, "position %" PRIu64 " has no valid probabilities: their sum is not 1",
                        r->n_done, 0);
    }
    return EXIT_OK;
}

static void save_header(struct run *r) {
    uint8_t header[HEADER_BYTES] = "_logits_", token[4];
    put_u32(header + 8, r->n_ctx);
    put_u32(header + 12, r->n_vocab);
    put_u32(header + 16, r->n_chunk);
    writer_write(&r->save, (const char *)header, sizeof header);
    for (size_t i = 0; i < (size_t)r->n_chunk * r->n_ctx; i++) {
        put_u32(token, (uint32_t)r->tokens.data[i]);
        writer_write(&r->save, (const char *)token, sizeof token);
    }
}

static void save_record(struct run *r, const float *logits, const struct distribution *d) {
    float max = logits[d->best], min = max;
    for (uint32_t i = 0; i < r->n_vocab; i++) min = fminf(min, logits[i]);
    min = fmaxf(min, max - 16);
    float scale = (max - min) / 65535.0f, per_level = scale > 0 ? 1 / scale : 0;
    memset(r->record, 0, (size_t)record_bytes(r->n_vocab));
    put_f32(r->record, scale);
    put_f32(r->record + 4, (float)((double)min - d->log_sum));
    for (uint32_t i = 0; i < r->n_vocab; i++) {
        unsigned level = logits[i] > min ? (unsigned)lrintf(per_level * (logits[i] - min)) : 0;
        r->record[8 + 2 * (size_t)i] = (uint8_t)level;
        r->record[9 + 2 * (size_t)i] = (uint8_t)(level >> 8);
    }
    writer_write(&r->save, (const char *)r->record, (size_t)record_bytes(r->n_vocab));
}

/* ---- one position ------------------------------------------------------------------------------------------------ */

static void take_base_logits(void *user, uint32_t pos, const float *logits) {
    struct run *r = user;
    memcpy(r->base_logits + (size_t)(pos - r->base_pos) * r->n_vocab, logits, r->n_vocab * sizeof *logits);
}

static int not_finite(const struct run *r, uint32_t pos) {
    return print_error(exit_failed, "perplexity: chunk %" PRIu32 ", position %" PRIu32
                       ": the logits contain NaN or infinity", r->chunk + 1, pos);
}

/* Fills base_log_p for position pos. */
static int next_base(struct run *r, uint32_t pos) {
    if (r->base_file) return read_record(r);
    const float *logits = r->base_logits + (size_t)(pos - r->base_pos) * r->n_vocab;
    struct distribution d = distribution_of(logits, r->n_vocab);
    for (uint32_t i = 0; i < r->n_vocab; i++) r->base_log_p[i] = (double)logits[i] - d.log_sum;
    return isfinite(d.log_sum) ? EXIT_OK : not_finite(r, pos);
}

/* Adds what compares a position with the base: the Kullback-Leibler divergence, which is the sum of
 * p_base (log p_base - log p), and the other statistics.  next: the token after the position; nll: its -log p. */
static void compare(struct run *r, const float *logits, const struct distribution *d, int32_t next, double nll) {
    uint32_t best = 0;
    double sum = 0;
    for (uint32_t i = 0; i < r->n_vocab; i++) {
        double base = r->base_log_p[i];
        if (base > r->base_log_p[best]) best = i;
        if (base > r->base_cut) sum += exp(base) * (base - ((double)logits[i] - d->log_sum));
    }
    double nll_base = -r->base_log_p[next], difference = exp(-nll) - exp(-nll_base);
    add(&r->kl, sum);
    add(&r->nll_base, nll_base);
    add(&r->ratio, nll - nll_base);
    add(&r->difference2, difference * difference);
    r->kl_values[r->n_done] = sum;
    add(&r->same_top, best == d->best);
}

static void score(void *user, uint32_t pos, const float *logits) {
    struct run *r = user;
    if (r->code != EXIT_OK) return;
    struct distribution d = distribution_of(logits, r->n_vocab);
    if (!isfinite(d.log_sum)) {
        r->code = not_finite(r, pos);
        return;
    }
    int32_t next = r->tokens.data[(size_t)r->chunk * r->n_ctx + pos + 1];
    double nll = d.log_sum - (double)logits[next];
    add(&r->nll, nll);
    if (r->base_log_p) {
        r->code = next_base(r, pos);
        if (r->code != EXIT_OK) return;
        compare(r, logits, &d, next, nll);
    }
    if (r->save.path) save_record(r, logits, &d);
    r->n_done++;
    progress_show(&r->progress, (double)r->n_done / (double)r->n_total, "chunk %" PRIu32 " of %" PRIu32
                  ", perplexity %.3f", r->chunk + 1, r->n_chunk, exp(mean_of(&r->nll)));
}

/* ---- the run ----------------------------------------------------------------------------------------------------- */

static int run_chunk(struct run *r) {
    int32_t *ids = r->tokens.data + (size_t)r->chunk * r->n_ctx, first_id = ids[0];
    uint32_t first = first_scored(r->n_ctx);
    if (r->bos >= 0) ids[0] = r->bos;
    plumb_session_rewind(r->session, 0);
    r->code = feed(r->session, ids, first);
    if (r->base_session && r->code == EXIT_OK) {
        plumb_session_rewind(r->base_session, 0);
        r->code = feed(r->base_session, ids, first);
    }
    ids[0] = first_id;
    for (uint32_t at = first, n; at < r->n_ctx - 1 && r->code == EXIT_OK; at += n) {
        n = r->n_ctx - 1 - at < r->n_batch ? r->n_ctx - 1 - at : r->n_batch;
        r->base_pos = at;
        plumb_session *session = r->base_session;
        plumb_status status = PLUMB_OK;
        if (session) status = plumb_session_feed_all(session, ids + at, n, take_base_logits, r);
        if (status == PLUMB_OK) status = plumb_session_feed_all(session = r->session, ids + at, n, score, r);
        if (status != PLUMB_OK) r->code = report("perplexity", status, plumb_session_error(session));
        else if (interrupted()) r->code = EXIT_INTERRUPTED;
    }
    return r->code;
}

/* Gets everything ready for the first chunk: the tokens of the text, the base, the sessions, the file to save. */
static int prepare(struct run *r, plumb_model *model) {
    const struct options *o = r->options;
    int code;
    size_t n_text;
    char *text = read_file(o->text, &n_text, &code);
    if (!text) return code;
    if (n_text >= 4 && memcmp(text, "GGUF", 4) == 0) {
        free(text);
        return print_error(exit_failed, "%s: expected a text, found a GGUF file", o->text);
    }
    progress_begin(&r->progress);
    r->progress.start -= 1;   /* shows the line at once: it cannot be shown during the call */
    if (n_text > 1000000) progress_show(&r->progress, NAN, "tokenizing %.1f MB", 1e-6 * (double)n_text);
    end_at_interrupt(true);   /* nothing is lost yet */
    r->tokens = tokenize(model, text, NULL, n_text, PLUMB_ADD_SPECIAL);
    end_at_interrupt(false);
    progress_end(&r->progress);
    free(text);
    struct ids none = tokenize(model, "", NULL, 0, PLUMB_ADD_SPECIAL);
    int32_t bos = plumb_token_bos(model);
    r->bos = none.n > 0 && none.data[0] == bos ? bos : -1;   /* does an empty text get BOS? */
    free(none.data);
    if (!r->tokens.data) return exit_failed;

    r->n_ctx = o->n_ctx;
    r->n_vocab = plumb_model_n_vocab(model);
    bool against_reference = o->base && strcmp(o->base, "reference") == 0;
    uint32_t n_max_chunk = UINT32_MAX;
    if (o->base && !against_reference) code = open_base(r, &n_max_chunk);
    if (code != EXIT_OK) return code;
    if (r->n_ctx == 0) r->n_ctx = DEFAULT_CTX;
    uint64_t n_chunk = r->tokens.n / r->n_ctx;
    if (n_chunk == 0) {
        return print_error(exit_failed, "%s: the text has %zu tokens, but a chunk has %" PRIu32 "; use --ctx for "
                        "smaller chunks", o->text, r->tokens.n, r->n_ctx);
    }
    if (n_chunk > n_max_chunk) n_chunk = n_max_chunk;
    r->n_chunk = n_chunk < o->n_chunk ? (uint32_t)n_chunk : o->n_chunk;
    r->n_total = r->n_chunk * scored_in_chunk(r->n_ctx);

    struct options sized = *o;
    sized.n_ctx = r->n_ctx;
    r->session = create_session(model, &sized);
    if (!r->session) return exit_failed;
    r->n_batch = plumb_session_n_batch(r->session);
    if (against_reference) {
        sized.reference = true;
        sized.scalar = false;
        sized.precision = PLUMB_PRECISION_EXACT16;
        sized.kv_type = PLUMB_KV_I16;
        r->base_session = create_session(model, &sized);
        if (!r->base_session) return exit_failed;
        r->base_logits = allocate((size_t)r->n_batch * r->n_vocab * sizeof *r->base_logits);
        r->base_cut = -INFINITY;
    }
    if (o->base) {
        r->base_log_p = allocate(r->n_vocab * sizeof *r->base_log_p);
        r->kl_values = allocate((size_t)r->n_total * sizeof *r->kl_values);
    }
    if (o->save) {
        if (!r->record) r->record = allocate((size_t)record_bytes(r->n_vocab));
        code = writer_open(&r->save, o->save);
        if (code != EXIT_OK) r->save.path = NULL;
        else save_header(r);
    }
    return code;
}

/* ---- the report -------------------------------------------------------------------------------------------------- */

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The quantile of share, 0..1.  Interpolates linearly between two values, as llama-perplexity and numpy do. */
static double quantile(const double *sorted, uint64_t n, double share) {
    double at = share * (double)(n - 1);
    uint64_t below = (uint64_t)at;
    if (below + 1 >= n) return sorted[n - 1];
    return sorted[below] + (at - (double)below) * (sorted[below + 1] - sorted[below]);
}

/* Prints two members of a JSON object.  A perplexity may overflow to infinity, which becomes null. */
static void print_pair(const char *name_a, double a, const char *name_b, double b) {
    out("\"%s\": ", name_a);
    out_json_number(a, 9);
    out(", \"%s\": ", name_b);
    out_json_number(b, 9);
}

static void print_run(struct run *r) {
    const struct options *o = r->options;
    double ppl = exp(mean_of(&r->nll)), ppl_error = ppl * error_of(&r->nll);
    double ppl_base = exp(mean_of(&r->nll_base)), base_error = ppl_base * error_of(&r->nll_base);
    double rms = sqrt(mean_of(&r->difference2)), rms_error = rms > 0 ? error_of(&r->difference2) / (2 * rms) : 0;
    double median = 0, percentile = 0, max = 0;
    if (o->base) {
        qsort(r->kl_values, (size_t)r->n_total, sizeof *r->kl_values, compare_doubles);
        median = quantile(r->kl_values, r->n_total, 0.5);
        percentile = quantile(r->kl_values, r->n_total, 0.99);
        max = r->kl_values[r->n_total - 1];
    }
    if (!o->json) {
        out("perplexity      %10.4f +/- %.4f   %" PRIu64 " tokens of %" PRIu32 " chunks of %" PRIu32 "\n", ppl,
            ppl_error, r->n_done, r->n_chunk, r->n_ctx);
        if (!o->base) return;
        out("base perplexity %10.4f +/- %.4f   ", ppl_base, base_error);
        out_escaped(o->base, strlen(o->base));
        out("\nln of the ratio %10.3g +/- %.3g\n", mean_of(&r->ratio), error_of(&r->ratio));
        out("KL divergence   %10.3g +/- %.3g   median %.3g, 99 %% %.3g, largest %.3g\n", mean_of(&r->kl),
            error_of(&r->kl), median, percentile, max);
        out("probability     %10.3g +/- %.3g %%  RMS difference for the next token\n", 100 * rms,
            100 * rms_error);
        out("same top token  %10.4f +/- %.4f %%\n", 100 * mean_of(&r->same_top), 100 * error_of(&r->same_top));
        return;
    }
    out("{");
    print_pair("perplexity", ppl, "error", ppl_error);
    out(", \"tokens\": %" PRIu64 ", \"chunks\": %" PRIu32 ", \"context\": %" PRIu32, r->n_done, r->n_chunk, r->n_ctx);
    if (o->base) {
        out(", \"base\": {\"name\": ");
        out_json_string(o->base, strlen(o->base));
        out(", ");
        print_pair("perplexity", ppl_base, "error", base_error);
        out("}, \"log_ratio\": {");
        print_pair("mean", mean_of(&r->ratio), "error", error_of(&r->ratio));
        out("}, \"kl\": {");
        print_pair("mean", mean_of(&r->kl), "error", error_of(&r->kl));
        out(", \"median\": ");
        out_json_number(median, 9);
        out(", ");
        print_pair("p99", percentile, "max", max);
        out("}, \"probability_rms\": {");
        print_pair("mean", rms, "error", rms_error);
        out("}, \"same_top\": {");
        print_pair("mean", mean_of(&r->same_top), "error", error_of(&r->same_top));
        out("}");
    }
    out("}\n");
}

int run_perplexity(const struct options *o) {
    plumb_model *model;
    int code = load_model(&model, o->files, o->n_file, LOAD_ALL);
    if (code != EXIT_OK) return code;
    struct run r = { .options = o };
    code = prepare(&r, model);
    progress_begin(&r.progress);
    for (; r.chunk < r.n_chunk && code == EXIT_OK; r.chunk++) code = run_chunk(&r);
    progress_end(&r.progress);
    if (r.save.path) code = writer_close(&r.save, code);
    if (code == EXIT_OK) print_run(&r);

    if (r.base_file) fclose(r.base_file);
    plumb_session_free(r.session);
    plumb_session_free(r.base_session);
    free(r.tokens.data);
    free(r.base_logits);
    free(r.base_log_p);
    free(r.record);
    free(r.kl_values);
    plumb_model_free(model);
    return out_close(code);
}
