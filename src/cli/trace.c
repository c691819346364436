/* plumb trace records what every step of a pass computes and how long it takes.  plumb logits prints the likeliest
 * tokens. */
#include "cli/cli.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the first steps of both ------------------------------------------------------------------------------------- */

/* The tokens to feed, and a session whose context holds exactly them. */
struct prompt_session {
    struct prompt prompt;
    plumb_model *model;
    struct ids ids;
    plumb_session *session;
};

/* Returns an exit code.  Call close_prompt even on failure. */
static int open_prompt(struct prompt_session *p, const struct options *o) {
    *p = (struct prompt_session){ 0 };
    int code = read_prompt(&p->prompt, o);
    if (code == EXIT_OK) code = load_model(&p->model, o->files, o->n_file, LOAD_ALL);
    if (code == EXIT_OK) code = input_ids(&p->ids, p->model, o, &p->prompt);
    if (code != EXIT_OK) return code;
    if (p->ids.n > INT32_MAX) {
        return print_error(exit_failed, "%s: at most %d tokens are supported, found %zu", command_name(o->command),
                           INT32_MAX, p->ids.n);
    }
    struct options sized = *o;
    sized.n_ctx = (uint32_t)p->ids.n;
    p->session = create_session(p->model, &sized);
    return p->session ? EXIT_OK : exit_failed;
}

static void close_prompt(struct prompt_session *p) {
    plumb_session_free(p->session);
    plumb_model_free(p->model);
    free(p->ids.data);
    free(p->prompt.owned);
}

/* ---- feeding tokens to a trace ----------------------------------------------------------------------------------- */

enum { MAX_OPERATIONS = 64 };   /* upper bound; a pass has 18 */

struct recording {
    plumb_trace *trace;          /* NULL: only times are measured */
    double last;                 /* when the current operation began */
    size_t n_operation;
    struct operation { const char *name; double seconds; } operations[MAX_OPERATIONS];
    struct progress progress;
    size_t n_done, n_total;      /* tokens */
    plumb_format format;         /* format of the trace to be written */
    bool is_warned;
    struct writer writer;
    uint64_t n_written;          /* bytes */
};

/* The operation whose time a tap ends.  The fast pass computes attention head by head and shows the weights and the
 * values only when both are done, so these two taps are one operation.  So are the steps of experts, which it computes
 * one after the other. */
static const char *operation_of(const plumb_tap *tap) {
    static const struct { const char *tap, *operation; } parts[] = {
        { "kq_soft_max", "attention" }, { "kqv_out", "attention" },
        { "ffn_moe_gate", "experts" }, { "ffn_moe_up", "experts" }, { "ffn_moe_swiglu", "experts" },
        { "ffn_moe_down", "experts" }, { "ffn_moe_weighted", "experts" }, { "ffn_moe_out", "experts" },
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (strcmp(tap->name, parts[i].tap) == 0) return parts[i].operation;
    }
    return tap->name;
}

/* Counts the time since the last tap for the operation that this tap shows.  Recording itself is not counted. */
static void on_tap(void *user, const plumb_tap *tap) {
    struct recording *r = user;
    double seconds = now() - r->last;
    const char *name = operation_of(tap);
    size_t i = 0;
    while (i < r->n_operation && strcmp(r->operations[i].name, name) != 0) i++;
    if (i == r->n_operation && i < MAX_OPERATIONS) r->operations[r->n_operation++] = (struct operation){ name, 0 };
    if (i < MAX_OPERATIONS) r->operations[i].seconds += seconds;
    if (r->trace) plumb_trace_add(r->trace, tap);   /* the trace keeps a failure; plumb_trace_write returns it */
    r->last = now();
}

/* Estimates the bytes of the trace file.  A value takes 4 bytes in GGUF.  In JSON it takes nine digits, sign, point and
 * comma: 13.3 bytes on average, measured with SmolLM2.  The zeros in attention weights are shorter, so the estimate is
 * too high with these: it is 11.6 GB for 1250 tokens that take 9.2 GB. */
static double estimate(const struct recording *r, plumb_format format) {
    double n_value = (double)plumb_trace_n_value(r->trace) / (double)r->n_done * (double)r->n_total;
    return n_value * (format == PLUMB_FORMAT_GGUF ? 4 : 13.3);
}

/* Warns once, after the first batch, if the file will be large. */
static void warn_of_size(struct recording *r) {
    const double gb = 1e-9, bytes = r->trace && !r->is_warned ? estimate(r, r->format) : 0;
    r->is_warned = true;
    if (r->format == PLUMB_FORMAT_TEXT || bytes < 1e9) return;
    print_error(0, "trace: the trace will have up to %.1f GB; use --taps and --layers to record less%s", gb * bytes,
             r->format == PLUMB_FORMAT_GGUF ? "" : ", or a .gguf, which takes a third");
}

/* Feeds n tokens in batches of n_batch, and computes the logits of every token. */
static int feed_batches(struct recording *r, plumb_session *session, const int32_t *ids, size_t n, size_t n_batch) {
    for (size_t at = 0, step; at < n; at += step) {
        step = n - at < n_batch ? n - at : n_batch;
        r->last = now();
        plumb_status status = plumb_session_feed_all(session, ids + at, step, NULL, NULL);
        if (status != PLUMB_OK) return report("trace", status, plumb_session_error(session));
        if (interrupted()) return EXIT_INTERRUPTED;
        r->n_done += step;
        warn_of_size(r);
        progress_show(&r->progress, (double)r->n_done / (double)r->n_total, "token %zu of %zu", r->n_done, r->n_total);
    }
    return EXIT_OK;
}

static int record(struct recording *r, const struct options *o, const plumb_model *model, plumb_session *session,
                  const struct ids *ids) {
    size_t n_prompt = o->n_prompt < ids->n ? o->n_prompt : ids->n;
    plumb_status status = PLUMB_OK;
    if (r->trace) status = plumb_trace_begin(r->trace, session, ids->data, ids->n, n_prompt, &o->trace);
    if (status == PLUMB_ERROR_ARGUMENT) return print_error(EXIT_USAGE, "trace: --%s", plumb_trace_error(r->trace));
    if (status != PLUMB_OK) return report("trace", status, plumb_trace_error(r->trace));
    status = plumb_session_set_tap(session, on_tap, r);
    if (status != PLUMB_OK) return report("trace", status, plumb_session_error(session));
    r->n_total = ids->n;
    progress_begin(&r->progress);
    int code = encode(model, session, ids->data, ids->n);
    if (code == EXIT_OK) code = feed_batches(r, session, ids->data, n_prompt, plumb_session_n_batch(session));
    if (code == EXIT_OK) code = feed_batches(r, session, ids->data + n_prompt, ids->n - n_prompt, 1);
    progress_end(&r->progress);
    return code;
}

/* ---- trace ------------------------------------------------------------------------------------------------------- */

static int compare_operations(const void *a, const void *b) {
    double x = ((const struct operation *)a)->seconds, y = ((const struct operation *)b)->seconds;
    return (x < y) - (x > y);
}

static void print_profile(const struct options *o, struct recording *r, const plumb_session *session) {
    double total = 0;
    for (size_t i = 0; i < r->n_operation; i++) total += r->operations[i].seconds;
    qsort(r->operations, r->n_operation, sizeof *r->operations, compare_operations);
    if (o->json) {
        out("{\"tokens\": %zu, \"kernels\": \"%s\", \"batch\": %" PRIu32 ", \"seconds\": %.6f, \"operations\": [",
            r->n_total, plumb_session_kernels(session), plumb_session_n_batch(session), total);
    } else {
        uint32_t n_thread = plumb_session_n_thread(session);
        out("%zu tokens, kernels %s, batch %" PRIu32 ", %" PRIu32 " thread%s\n", r->n_total,
            plumb_session_kernels(session), plumb_session_n_batch(session), n_thread, n_thread == 1 ? "" : "s");
    }
    for (size_t i = 0; i < r->n_operation; i++) {
        const struct operation *op = &r->operations[i];
        double share = total > 0 ? op->seconds / total : 0;
        if (o->json) {
            out("%s\n  {\"name\": \"%s\", \"seconds\": %.6f, \"share\": %.4f}", i > 0 ? "," : "", op->name, op->seconds,
                share);
        } else {
            out("%-14s %10.3f ms  %5.1f %%\n", op->name, 1e3 * op->seconds, 100 * share);
        }
    }
    if (o->json) out("\n]}\n");
    else out("%-14s %10.3f ms\n", "all", 1e3 * total);
}

static plumb_format format_of(const struct options *o) {
    return o->output && has_gguf_suffix(o->output) ? PLUMB_FORMAT_GGUF
         : o->output || o->json ? PLUMB_FORMAT_JSON : PLUMB_FORMAT_TEXT;
}

static void write_piece(void *user, const char *bytes, size_t n) {
    struct recording *r = user;
    writer_write(&r->writer, bytes, n);
    r->n_written += n;
    if (r->writer.stream) progress_show(&r->progress, NAN, "writing %.0f MB", 1e-6 * (double)r->n_written);
}

static int write_trace(struct recording *r, const struct options *o) {
    int code = writer_open(&r->writer, o->output ? o->output : "-");
    if (code != EXIT_OK) return code;
    progress_begin(&r->progress);
    plumb_status status = plumb_trace_write(r->trace, r->format, write_piece, r);
    progress_end(&r->progress);
    if (status != PLUMB_OK) code = report("trace", status, plumb_trace_error(r->trace));
    return writer_close(&r->writer, code);
}

int run_trace(const struct options *o) {
    struct prompt_session p;
    struct recording r = { .format = format_of(o) };
    int code = open_prompt(&p, o);
    if (code == EXIT_OK && (o->output || !o->profile)) {
        r.trace = plumb_trace_create();
        if (!r.trace) code = print_error(exit_failed, "out of memory");
    }
    if (code == EXIT_OK) code = record(&r, o, p.model, p.session, &p.ids);
    if (code == EXIT_OK && r.trace) code = write_trace(&r, o);
    if (code == EXIT_OK && o->profile) print_profile(o, &r, p.session);
    plumb_trace_free(r.trace);
    close_prompt(&p);
    return out_close(code);
}

/* ---- logits ------------------------------------------------------------------------------------------------------ */

struct candidate { int32_t id; float logit; };

/* The larger logit comes first; NaN counts as -infinity.  Equal logits are ordered by id, the lower one first. */
static int compare_candidates(const void *a, const void *b) {
    const struct candidate *x = a, *y = b;
    float p = isnan(x->logit) ? -INFINITY : x->logit, q = isnan(y->logit) ? -INFINITY : y->logit;
    return p != q ? (p < q) - (p > q) : (x->id > y->id) - (x->id < y->id);
}

static void print_logits(const struct options *o, const plumb_model *model, const float *logits) {
    uint32_t n = plumb_model_n_vocab(model);
    struct candidate *all = allocate(n * sizeof *all);
    for (uint32_t i = 0; i < n; i++) all[i] = (struct candidate){ (int32_t)i, logits[i] };
    qsort(all, n, sizeof *all, compare_candidates);
    double sum = 0, max = (double)all[0].logit;
    for (uint32_t i = 0; i < n; i++) sum += exp((double)all[i].logit - max);   /* NaN if one of them is */
    if (!o->json) out("    id         logit  probability  token\n");
    for (uint32_t i = 0; i < o->n_top && i < n; i++) {
        size_t n_piece;
        char *piece = token_piece(model, all[i].id, &n_piece);
        double logit = (double)all[i].logit, probability = exp(logit - max) / sum;
        if (o->json) {
            out("%s\n  {\"id\": %" PRId32 ", \"piece\": ", i > 0 ? "," : "[", all[i].id);
            out_json_string(piece, n_piece);
            out(", \"logit\": ");
            out_json_number(logit, 9);
            out(", \"probability\": ");
            out_json_number(probability, 9);
            out("}");
        } else {
            out("%6" PRId32 "  %12.6f  %11.6f  \"", all[i].id, logit, probability);
            out_escaped(piece, n_piece);
            out("\"\n");
        }
        free(piece);
    }
    if (o->json) out("\n]\n");
    free(all);
}

int run_logits(const struct options *o) {
    struct prompt_session p;
    int code = open_prompt(&p, o);
    if (code == EXIT_OK) code = feed_prompt(p.model, p.session, p.ids.data, p.ids.n);
    if (code == EXIT_OK) print_logits(o, p.model, plumb_session_logits(p.session));
    close_prompt(&p);
    return out_close(code);
}
