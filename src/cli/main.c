/* The plumb command line: main, and the commands tokenize, score and bench.  `plumb --help` says what they do. */
#include "cli/cli.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- tokenize ---------------------------------------------------------------------------------------------------- */

/* Prints one token per line, with its id and its bytes, or all ids in one line. */
static void print_tokens(const struct options *o, const plumb_model *model, struct ids ids) {
    if (o->json) out("[");
    for (size_t i = 0; i < ids.n; i++) {
        if (o->print_ids) {
            out("%s%" PRId32, i == 0 ? "" : o->json ? "," : " ", ids.data[i]);
            continue;
        }
        size_t n_piece;
        char *piece = token_piece(model, ids.data[i], &n_piece);
        if (o->json) {
            out("%s{\"id\":%" PRId32 ",\"piece\":", i == 0 ? "" : ",\n", ids.data[i]);
            out_json_string(piece, n_piece);
            out("}");
        } else {
            out("%6" PRId32 "  \"", ids.data[i]);
            out_escaped(piece, n_piece);
            out("\"\n");
        }
        free(piece);
    }
    if (o->json) out("]");
    if (o->json || o->print_ids) out("\n");
}

static int run_tokenize(const struct options *o) {
    int code;
    size_t len = strlen(o->text);
    bool is_stdin = strcmp(o->text, "-") == 0;
    char *from_stdin = is_stdin ? read_file("-", &len, &code) : NULL;
    if (is_stdin && !from_stdin) return code;
    plumb_model *model;
    code = load_model(&model, o->files, o->n_file, LOAD_VOCAB);
    if (code == EXIT_OK) {
        unsigned flags = (o->no_special ? 0u : PLUMB_ADD_SPECIAL) | (o->parse_special ? PLUMB_PARSE_SPECIAL : 0u);
        struct ids ids = tokenize(model, from_stdin ? from_stdin : o->text, NULL, len, flags);
        if (ids.data) print_tokens(o, model, ids);
        else code = exit_failed;
        free(ids.data);
    }
    plumb_model_free(model);
    free(from_stdin);
    return out_close(code);
}

/* ---- score ------------------------------------------------------------------------------------------------------- */

struct score {
    const struct options *options;
    struct ids ids;
    uint32_t n_vocab;
};

/* FNV-1a hash (Fowler, Noll, Vo) of 64 bits over the logits as little-endian f32. */
static uint64_t hash_logits(const float *logits, uint32_t n) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &logits[i], sizeof bits);
        for (int shift = 0; shift < 32; shift += 8) hash = (hash ^ (bits >> shift & 0xff)) * 0x100000001b3u;
    }
    return hash;
}

static void print_score(void *user, uint32_t pos, const float *logits) {
    const struct score *s = user;
    uint32_t best = 0;
    for (uint32_t i = 1; i < s->n_vocab; i++) {
        if (logits[i] > logits[best]) best = i;
    }
    double sum = 0;
    for (uint32_t i = 0; i < s->n_vocab; i++) sum += exp((double)logits[i] - (double)logits[best]);
    double log_sum = (double)logits[best] + log(sum);
    bool has_next = pos + 1 < s->ids.n;
    double next = has_next ? (double)logits[s->ids.data[pos + 1]] - log_sum : 0;
    uint64_t hash = hash_logits(logits, s->n_vocab);
    if (s->options->json) {
        /* 9 digits give an f32 back exactly. */
        out("%s\n  {\"id\": %" PRId32 ", \"top\": %" PRIu32 ", \"logit\": %.9g, \"logsumexp\": %.9g, ",
            pos > 0 ? "," : "[", s->ids.data[pos], best, (double)logits[best], log_sum);
        if (has_next) out("\"next_logprob\": %.9g, ", next);
        else out("\"next_logprob\": null, ");
        out("\"hash\": \"%016" PRIx64 "\"}", hash);
    } else {
        out("%5" PRIu32 "  %6" PRId32 "  %6" PRIu32 "  %12.6f  %12.6f  ", pos, s->ids.data[pos], best,
            (double)logits[best], log_sum);
        if (has_next) out("%12.6f", next);
        else out("%12s", "-");
        out("  %016" PRIx64 "\n", hash);
    }
}

static int run_score(const struct options *o) {
    plumb_model *model;
    int code = load_model(&model, o->files, o->n_file, LOAD_ALL);
    if (code != EXIT_OK) return code;
    struct score score = { o, { NULL, 0 }, plumb_model_n_vocab(model) };
    plumb_session *session = NULL;
    code = EXIT_USAGE;
    score.ids = parse_ids(o, score.n_vocab);
    if (!score.ids.data) goto done;
    code = exit_failed;
    session = create_session(model, o);
    if (!session) goto done;
    code = encode(model, session, score.ids.data, score.ids.n);
    if (code != EXIT_OK) goto done;
    code = exit_failed;
    if (!o->json) out("  pos      id     top         logit     logsumexp          next  hash\n");
    plumb_status status = plumb_session_feed_all(session, score.ids.data, score.ids.n, print_score, &score);
    if (status != PLUMB_OK) {
        report("score", status, plumb_session_error(session));
        goto done;
    }
    if (o->json) out("\n]\n");
    code = EXIT_OK;

done:
    free(score.ids.data);
    plumb_session_free(session);
    plumb_model_free(model);
    return out_close(code);
}

/* ---- bench ------------------------------------------------------------------------------------------------------- */

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_speed(const struct options *o, const char *name, uint32_t n_token, double *speeds) {
    uint32_t n = o->n_repeat;
    if (o->json) {
        out(", \"%s\": [", name);
        for (uint32_t i = 0; i < n; i++) out("%s%.3f", i > 0 ? ", " : "", speeds[i]);
        out("]");
        return;
    }
    qsort(speeds, n, sizeof *speeds, compare_doubles);
    out("%-8s %5" PRIu32 " tokens  min %8.2f  median %8.2f  max %8.2f tokens/s\n", name, n_token, speeds[0],
        (speeds[(n - 1) / 2] + speeds[n / 2]) / 2, speeds[n - 1]);
}

/* Feeds n tokens to an empty context, all at once or one by one, and returns tokens per second.  Returns a negative
 * number after a failure, which is printed, or an interrupt. */
static double measure(plumb_session *session, const int32_t *ids, uint32_t n, bool one_by_one) {
    plumb_status status = plumb_session_rewind(session, 0);
    double start = now();
    uint32_t step = one_by_one ? 1 : n;
    for (uint32_t at = 0; at < n && status == PLUMB_OK && !interrupted(); at += step) {
        status = plumb_session_feed(session, ids + at, step);
    }
    if (status != PLUMB_OK) report("bench", status, plumb_session_error(session));
    return status != PLUMB_OK || interrupted() ? -1 : n / (now() - start);
}

static int run_bench(const struct options *o) {
    double start = now();
    plumb_model *model;
    int code = load_model(&model, o->files, o->n_file, LOAD_ALL);
    if (code != EXIT_OK) return code;
    double load_seconds = now() - start;
    uint32_t n_max = o->n_prompt > o->n_predict ? o->n_prompt : o->n_predict, n_vocab = plumb_model_n_vocab(model);
    int32_t *ids = allocate(n_max * sizeof *ids);
    double *prefill = allocate(o->n_repeat * sizeof *prefill), *decode = allocate(o->n_repeat * sizeof *decode);
    for (uint32_t i = 0; i < n_max; i++) ids[i] = (int32_t)(i * 2654435761u % n_vocab);   /* any ids will do */

    code = exit_failed;
    plumb_session *session = create_session(model, o);
    plumb_model_info info;
    plumb_status status = plumb_model_get_info(model, &info);
    if (status != PLUMB_OK) report("bench", status, plumb_model_error(model));
    if (!session || status != PLUMB_OK || encode(model, session, ids, n_max) != EXIT_OK) goto done;
    for (uint32_t i = 0; i <= o->n_repeat; i++) {   /* round 0 warms up and is not counted */
        double p = measure(session, ids, o->n_prompt, false), d = p < 0 ? p : measure(session, ids, o->n_predict, true);
        if (d < 0) {
            code = interrupted() ? EXIT_INTERRUPTED : exit_failed;
            goto done;
        }
        if (i > 0) prefill[i - 1] = p, decode[i - 1] = d;
    }
    const double mb = 1e-6;
    if (o->json) {
        out("{\"architecture\": ");
        out_json_string(info.architecture, strlen(info.architecture));
        out(", \"parameters\": %" PRIu64 ", \"weight_bytes\": %" PRIu64 ", \"session_bytes\": %" PRIu64
            ", \"kernels\": \"%s\", \"precision\": \"%s\", \"threads\": %" PRIu32
            ", \"context\": %" PRIu32 ", \"batch\": %" PRIu32 ", \"load_seconds\": %.3f, \"prefill_tokens\": %" PRIu32
            ", \"decode_tokens\": %" PRIu32,
            info.n_param, info.weight_bytes, plumb_session_bytes(session), plumb_session_kernels(session),
            plumb_precision_name(plumb_session_precision(session)), plumb_session_n_thread(session),
            plumb_session_n_ctx(session), plumb_session_n_batch(session), load_seconds, o->n_prompt, o->n_predict);
    } else {
        out("%s, %.1f M parameters, %.1f MB of weights, %.1f MB for the session\n", info.architecture,
            mb * (double)info.n_param, mb * (double)info.weight_bytes, mb * (double)plumb_session_bytes(session));
        uint32_t n_thread = plumb_session_n_thread(session);
        out("kernels %s, %s, context %" PRIu32 ", batch %" PRIu32 ", %" PRIu32 " thread%s, loaded in %.2f s\n",
            plumb_session_kernels(session), plumb_precision_name(plumb_session_precision(session)),
            plumb_session_n_ctx(session), plumb_session_n_batch(session), n_thread, n_thread == 1 ? "" : "s",
            load_seconds);
    }
    print_speed(o, "prefill", o->n_prompt, prefill);
    print_speed(o, "decode", o->n_predict, decode);
    if (o->json) out("}\n");
    code = EXIT_OK;

done:
    free(ids);
    free(prefill);
    free(decode);
    plumb_session_free(session);
    plumb_model_free(model);
    return out_close(code);
}

/* ---- main -------------------------------------------------------------------------------------------------------- */

int main(int argc, char **argv) {
    static int (*const commands[COMMAND_COUNT])(const struct options *) = {
        [COMMAND_RUN] = run_run, [COMMAND_CHAT] = run_chat, [COMMAND_INSPECT] = run_inspect,
        [COMMAND_TOKENIZE] = run_tokenize, [COMMAND_SCORE] = run_score, [COMMAND_BENCH] = run_bench,
        [COMMAND_TRACE] = run_trace, [COMMAND_LOGITS] = run_logits, [COMMAND_PERPLEXITY] = run_perplexity,
        [COMMAND_EMBED] = run_embed, [COMMAND_RANK] = run_rank, [COMMAND_GRAMMAR] = run_grammar,
        [COMMAND_DIFF] = run_diff, [COMMAND_SELFCHECK] = run_selfcheck, [COMMAND_WEIGHTS] = run_weights,
        [COMMAND_DIAGNOSE] = run_diagnose,
    };
    static struct options options;
    int code;
    start_process();
    const bool is_parsed = parse_options(argc, argv, &options, &code);
    if (is_parsed) code = commands[options.command](&options);
    const bool makes_answers = argc > 1 && (strcmp(argv[1], "run") == 0 || strcmp(argv[1], "chat") == 0);
    bool as_json = false;
    for (int i = 2; i < argc; i++) as_json = as_json || strcmp(argv[i], "--json") == 0;
    if (!as_json || !makes_answers || code == EXIT_OK || code == EXIT_INTERRUPTED) return code;
    out_json_error(!is_parsed);
    return out_close(code);
}
