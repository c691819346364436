/* The plumb command line: main, and the commands run, tokenize, score and bench.  `plumb --help` says what they do. */
#include "cli/cli.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- run --------------------------------------------------------------------------------------------------------- */

/* An answer that is being printed. */
struct answer {
    plumb_text text;       /* holds back the bytes of an incomplete character */
    const char *stop;      /* the text that ends the answer; NULL: there is none */
    char held[32];         /* the last bytes, if they may be the beginning of stop */
    size_t n_held;
    bool is_silent;        /* nothing is printed */
    bool is_over;          /* stop was found */
};

/* Prints text up to the one that ends the answer. */
static void print_text(struct answer *a, const char *bytes, size_t n) {
    if (!a->stop && !a->is_silent) out_bytes(bytes, n);
    for (size_t i = 0; a->stop && i < n && !a->is_over; i++) {
        size_t n_free = 0;
        a->held[a->n_held++] = bytes[i];
        while (n_free < a->n_held && memcmp(a->held + n_free, a->stop, a->n_held - n_free) != 0) n_free++;
        if (!a->is_silent) out_bytes(a->held, n_free);
        memmove(a->held, a->held + n_free, a->n_held -= n_free);
        a->is_over = a->n_held == strlen(a->stop);
    }
}

/* Prints the text of a token. */
static void print_piece(const plumb_model *model, struct answer *a, int32_t id) {
    int64_t n = plumb_token_piece(model, id, false, NULL, 0);
    if (n <= 0) return;
    size_t n_piece = (size_t)n, cap = n_piece * 3 + 12;
    char *piece = allocate(n_piece + cap);
    plumb_token_piece(model, id, false, piece, n_piece);
    print_text(a, piece + n_piece, plumb_text_push(&a->text, piece, n_piece, piece + n_piece, cap));
    free(piece);
}

enum { DEFAULT_PREDICT = 256, FORCED_BYTES = 4096 };

/* A run that makes an answer. */
struct generation {
    const struct options *options;
    plumb_model *model;
    plumb_session *session;
    plumb_sampler *sampler;
    plumb_grammar *grammar;     /* NULL: there is none, */
    plumb_matcher *matcher;     /* and no matcher */
    int32_t queue[2 * FORCED_BYTES + 1];   /* tokens of the answer that are not fed yet: */
    size_t n_queue, n_taken;    /* n_taken of them are printed, and the others are forced */
    uint32_t n_fed;             /* tokens of the answer that were fed */
};

/* Adds the token that is sampled, or none if the answer is complete. */
static int sample(struct generation *g) {
    const uint32_t *mask = g->matcher ? plumb_matcher_mask(g->matcher) : NULL;
    if (g->matcher && !mask) return print_error(exit_failed, "grammar: %s", plumb_grammar_error(g->grammar));
    int32_t id = plumb_sampler_sample_allowed(g->sampler, plumb_session_logits(g->session), mask);
    if (id < 0 && g->matcher && plumb_matcher_may_end(g->matcher)) return EXIT_OK;   /* no token ends a turn */
    if (id < 0) {
        return print_error(exit_failed, "token %" PRIu32 ": cannot sample: %sall logits are NaN or -infinity",
                           plumb_session_n_past(g->session), g->matcher ? "the grammar allows no token, or " : "");
    }
    plumb_status status = g->matcher ? plumb_matcher_accept(g->matcher, &id, 1) : PLUMB_OK;
    if (status != PLUMB_OK) return report("grammar", status, plumb_grammar_error(g->grammar));
    g->queue[g->n_queue++] = id;
    return EXIT_OK;
}

/* Adds the tokens that must follow by the grammar, which are not sampled: those of its forced text but the last, since
 * that one may be merged with what follows.  None if there are fewer than two, which would save nothing.  This is the
 * rule of web/engine/engine.js too, so every host makes the same text. */
static int force(struct generation *g) {
    char bytes[FORCED_BYTES], text[3 * FORCED_BYTES + 12];
    const int64_t n = g->matcher ? plumb_matcher_forced(g->matcher, bytes, sizeof bytes) : 0;
    if (n < 0) return report("grammar", (plumb_status)n, plumb_grammar_error(g->grammar));
    plumb_text whole = { 0 };
    const size_t n_text = plumb_text_push(&whole, bytes, (size_t)n, text, sizeof text);
    const bool is_inside = n_text >= 3 && memcmp(text, "\xef\xbf\xbd", 3) == 0;   /* begins inside a character */
    if (n_text == 0 || is_inside) return EXIT_OK;
    struct ids ids = tokenize(g->model, text, NULL, n_text, PLUMB_CONTINUES);
    if (!ids.data) return exit_failed;
    for (size_t i = 0; ids.n > 2 && i + 1 < ids.n && i < FORCED_BYTES; i++) {
        if (plumb_matcher_accept(g->matcher, &ids.data[i], 1) != PLUMB_OK) break;
        g->queue[g->n_queue++] = ids.data[i];
    }
    free(ids.data);
    return EXIT_OK;
}

static int feed_queue(struct generation *g) {
    plumb_status status = plumb_session_feed(g->session, g->queue, g->n_queue);
    if (status != PLUMB_OK) return report("generation", status, plumb_session_error(g->session));
    g->n_fed += (uint32_t)g->n_queue;
    g->n_queue = g->n_taken = 0;
    return interrupted() ? EXIT_INTERRUPTED : EXIT_OK;
}

/* If all tokens of the queue are printed, adds those that are forced, or else feeds them: forced tokens are fed
 * together with the token before them, because nobody needs the logits between them. */
static int go_on(struct generation *g) {
    if (g->n_taken < g->n_queue) return EXIT_OK;
    int code = g->n_queue > FORCED_BYTES ? feed_queue(g) : EXIT_OK;   /* makes room */
    if (code == EXIT_OK) code = force(g);
    return code == EXIT_OK && g->n_queue > 0 && g->n_taken == g->n_queue ? feed_queue(g) : code;
}

/* Samples, prints and feeds tokens until the turn ends, -n tokens are printed or the context is full. */
static int generate(struct generation *g) {
    const struct options *o = g->options;
    struct answer answer = { .stop = o->raw ? NULL : plumb_chat_stop(g->model), .is_silent = o->print_ids };
    bool stopped = false;
    const uint32_t n_max = o->n_predict > 0 ? o->n_predict : DEFAULT_PREDICT;
    int code = force(g);
    for (uint32_t i = 0; i < n_max && !out_failed() && code == EXIT_OK; i++) {
        if (g->n_taken == g->n_queue) code = sample(g);
        if (g->n_taken == g->n_queue) break;
        const int32_t id = g->queue[g->n_taken++];
        if (o->print_ids) out(i > 0 ? " %" PRId32 : "%" PRId32, id);
        print_piece(g->model, &answer, id);
        out_flush();
        bool is_end = plumb_token_is_eog(g->model, id) || answer.is_over;
        stopped = i + 1 == n_max && !is_end;
        if (is_end || stopped) break;
        const uint32_t n_ctx = plumb_session_n_ctx(g->session);
        if (plumb_session_n_past(g->session) + g->n_taken > n_ctx && o->n_keep == 0) {
            print_error(0, "the context of %" PRIu32 " tokens is full; use --ctx to enlarge it", n_ctx);
            break;
        }
        plumb_sampler_accept(g->sampler, id);
        code = go_on(g);
    }
    char rest[12];
    if (!stopped) print_text(&answer, rest, plumb_text_flush(&answer.text, rest, sizeof rest));
    if (!answer.is_silent && !answer.is_over) out_bytes(answer.held, answer.n_held);
    out("\n");
    out_flush();   /* the text must precede the speeds on standard error */
    if (stopped && o->n_predict == 0) {
        print_error(0, "stopped after %" PRIu32 " tokens, the default limit; use -n to raise it", n_max);
    }
    return code;
}

static size_t read_state(void *stream, void *bytes, size_t n) { return fread(bytes, 1, n, stream); }

static int load_state(plumb_session *session, const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) return report(path, PLUMB_ERROR_IO, strerror(errno));
    plumb_status status = plumb_session_restore(session, read_state, file);
    int error = ferror(file) ? errno : 0;
    fclose(file);
    if (error) return report(path, PLUMB_ERROR_IO, strerror(error));
    return status == PLUMB_OK ? EXIT_OK : report(path, status, plumb_session_error(session));
}

static int save_state(plumb_session *session, const char *path) {
    struct writer w;
    int code = writer_open(&w, path);
    if (code != EXIT_OK) return code;
    plumb_status status = plumb_session_save(session, writer_write, &w);
    if (status != PLUMB_OK) code = report(path, status, plumb_session_error(session));
    return writer_close(&w, code);
}

static int run_on(const struct options *o, plumb_model *model, const struct ids *prompt, double load_seconds) {
    int code = exit_failed;
    struct generation g = { .options = o, .model = model };
    if (load_grammar(&g.grammar, model, o) != EXIT_OK) return exit_failed;
    g.session = create_session(model, o);
    if (!g.session) goto done;
    plumb_status created = g.grammar ? plumb_matcher_create(&g.matcher, g.grammar) : PLUMB_OK;
    if (created != PLUMB_OK) {
        report("grammar", created, plumb_grammar_error(g.grammar));
        goto done;
    }
    const char *reason;
    plumb_sampling sampling = o->sampling;
    if (!o->has_seed) sampling.seed = random_seed();
    plumb_status status = plumb_sampler_create(&g.sampler, plumb_model_n_vocab(model), &sampling, &reason);
    if (status != PLUMB_OK) {
        report("sampling", status, reason);
        goto done;
    }
    if (o->load_state && load_state(g.session, o->load_state) != EXIT_OK) goto done;
    plumb_model_info info;
    plumb_model_get_info(model, &info);
    double start = now();
    /* An encoder reads the whole prompt. */
    const uint32_t n_reused = info.has_encoder ? 0 : plumb_session_reuse(g.session, prompt->data, prompt->n);
    code = feed_prompt(model, g.session, prompt->data + n_reused, prompt->n - n_reused);
    if (code != EXIT_OK) goto done;
    for (size_t i = 0; i < prompt->n; i++) plumb_sampler_accept(g.sampler, prompt->data[i]);
    double prefill_seconds = now() - start;
    start = now();
    code = generate(&g);
    double decode_seconds = now() - start;
    fprintf(stderr, "load %.2f s, prefill %zu tokens at %.1f tokens/s, decode %" PRIu32 " tokens at %.1f tokens/s",
            load_seconds, prompt->n - n_reused, (double)(prompt->n - n_reused) / prefill_seconds, g.n_fed,
            g.n_fed > 0 ? g.n_fed / decode_seconds : 0.0);
    if (n_reused > 0) fprintf(stderr, ", %" PRIu32 " tokens of the prompt reused", n_reused);
    if (sampling.temperature > 0) fprintf(stderr, ", seed %" PRIu64, sampling.seed);
    fprintf(stderr, "\n");
    if (o->save_state && code == EXIT_OK) code = save_state(g.session, o->save_state);

done:
    plumb_sampler_free(g.sampler);
    plumb_matcher_free(g.matcher);
    plumb_grammar_free(g.grammar);
    plumb_session_free(g.session);
    return code;
}

static int run_run(const struct options *o) {
    struct prompt prompt;
    int code = read_prompt(&prompt, o);
    if (code != EXIT_OK) return code;
    double start = now();
    plumb_model *model;
    code = load_model(&model, o->files, o->n_file, LOAD_ALL);
    if (code == EXIT_OK) {
        double load_seconds = now() - start;
        struct ids ids;
        code = input_ids(&ids, model, o, &prompt);
        if (code == EXIT_OK) code = run_on(o, model, &ids, load_seconds);
        free(ids.data);
    }
    plumb_model_free(model);
    free(prompt.owned);
    return out_close(code);
}

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
        [COMMAND_RUN] = run_run, [COMMAND_INSPECT] = run_inspect, [COMMAND_TOKENIZE] = run_tokenize,
        [COMMAND_SCORE] = run_score, [COMMAND_BENCH] = run_bench, [COMMAND_TRACE] = run_trace,
        [COMMAND_LOGITS] = run_logits, [COMMAND_PERPLEXITY] = run_perplexity, [COMMAND_EMBED] = run_embed,
        [COMMAND_RANK] = run_rank, [COMMAND_GRAMMAR] = run_grammar, [COMMAND_DIFF] = run_diff,
        [COMMAND_SELFCHECK] = run_selfcheck, [COMMAND_WEIGHTS] = run_weights, [COMMAND_DIAGNOSE] = run_diagnose,
    };
    static struct options options;
    int code;
    start_process();
    return parse_options(argc, argv, &options, &code) ? commands[options.command](&options) : code;
}
