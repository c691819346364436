/* plumb run, and the answers of plumb chat. */
#include "cli/cli.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- texts ------------------------------------------------------------------------------------------------------- */

void buffer_add(struct buffer *b, const char *bytes, size_t n) {
    if (n > b->cap - b->n) {
        b->cap = 2 * (b->n + n) + 64;
        char *larger = allocate(b->cap);
        if (b->n > 0) memcpy(larger, b->data, b->n);
        free(b->data);
        b->data = larger;
    }
    if (n > 0) memcpy(b->data + b->n, bytes, n);
    b->n += n;
}

/* Where a text first occurs in another one; NULL if it does not. */
static const char *find(const char *in, size_t n_in, const char *text, size_t n) {
    for (size_t at = 0; at + n <= n_in; at++) {
        if (memcmp(in + at, text, n) == 0) return in + at;
    }
    return NULL;
}

/* ---- generating -------------------------------------------------------------------------------------------------- */

enum { DEFAULT_PREDICT = 256, FORCED_BYTES = 4096, MAX_ENDS = MAX_STOPS + 1 };

/* An answer that is being made. */
struct generation {
    struct answering *to;
    plumb_sampler *sampler;
    plumb_matcher *matcher;     /* NULL: there is no grammar */
    plumb_text text;            /* holds back the bytes of an incomplete character */
    const char *ends[MAX_ENDS]; /* the texts that end the answer */
    size_t n_end;
    struct buffer held;         /* the last bytes, if they may be the beginning of an end */
    bool is_over;               /* one of the ends was found */
    int32_t queue[2 * FORCED_BYTES + 1];   /* tokens of the answer that are not fed yet: */
    size_t n_queue, n_taken;    /* n_taken of them are printed, and the others are forced */
};

/* Adds text to the answer, and prints it. */
static void emit(struct generation *g, const char *bytes, size_t n) {
    const struct options *o = g->to->options;
    buffer_add(&g->to->text, bytes, n);
    if (!o->json && !o->print_ids) out_shown(bytes, n);
}

/* Adds a piece, and emits the text that is now certain: what comes before the text that ends the answer, as in
 * web/engine/stop.js. */
static void push_text(struct generation *g, const char *bytes, size_t n) {
    if (g->is_over) return;
    buffer_add(&g->held, bytes, n);
    const char *text = g->held.data;
    size_t start = 0, end = SIZE_MAX, n_free = g->held.n;
    for (size_t i = 0; i < g->n_end; i++) {
        const size_t length = strlen(g->ends[i]);
        const char *found = find(text, g->held.n, g->ends[i], length);
        const size_t at = found ? (size_t)(found - text) : 0;
        if (!found || at + length > end) continue;
        start = at + length < end || at < start ? at : start;
        end = at + length;
    }
    g->is_over = end != SIZE_MAX;
    for (size_t i = 0; i < g->n_end && !g->is_over; i++) {
        const size_t length = strlen(g->ends[i]);
        for (size_t at = g->held.n < length ? 0 : g->held.n - length + 1; at < n_free; at++) {
            if (memcmp(text + at, g->ends[i], g->held.n - at) == 0) n_free = at;
        }
    }
    if (g->is_over) n_free = start;
    emit(g, text, n_free);
    g->held.n -= n_free;
    memmove(g->held.data, g->held.data + n_free, g->held.n);
}

/* Adds the text of a token. */
static void push_token(struct generation *g, int32_t id) {
    int64_t n = plumb_token_piece(g->to->model, id, false, NULL, 0);
    if (n <= 0) return;
    size_t n_piece = (size_t)n, cap = n_piece * 3 + 12;
    char *piece = allocate(n_piece + cap);
    plumb_token_piece(g->to->model, id, false, piece, n_piece);
    push_text(g, piece + n_piece, plumb_text_push(&g->text, piece, n_piece, piece + n_piece, cap));
    free(piece);
}

/* Adds the token that is sampled, or none if the answer is complete. */
static int sample(struct generation *g) {
    plumb_session *session = g->to->session;
    const uint32_t *mask = g->matcher ? plumb_matcher_mask(g->matcher) : NULL;
    if (g->matcher && !mask) return print_error(exit_failed, "grammar: %s", plumb_grammar_error(g->to->grammar));
    int32_t id = plumb_sampler_sample_allowed(g->sampler, plumb_session_logits(session), mask);
    if (id < 0 && g->matcher && plumb_matcher_may_end(g->matcher)) return EXIT_OK;   /* no token ends a turn */
    if (id < 0) {
        return print_error(exit_failed, "token %" PRIu32 ": cannot sample: %sall logits are NaN or -infinity",
                           plumb_session_n_past(session), g->matcher ? "the grammar allows no token, or " : "");
    }
    plumb_status status = g->matcher ? plumb_matcher_accept(g->matcher, &id, 1) : PLUMB_OK;
    if (status != PLUMB_OK) return report("grammar", status, plumb_grammar_error(g->to->grammar));
    g->queue[g->n_queue++] = id;
    return EXIT_OK;
}

/* Adds the tokens that must follow by the grammar, which are not sampled: those of its forced text but the last, since
 * that one may be merged with what follows.  None if there are fewer than two, which would save nothing.  This is the
 * rule of web/engine/engine.js too, so every host makes the same text. */
static int force(struct generation *g) {
    char bytes[FORCED_BYTES], text[3 * FORCED_BYTES + 12];
    const int64_t n = g->matcher ? plumb_matcher_forced(g->matcher, bytes, sizeof bytes) : 0;
    if (n < 0) return report("grammar", (plumb_status)n, plumb_grammar_error(g->to->grammar));
    plumb_text whole = { 0 };
    const size_t n_text = plumb_text_push(&whole, bytes, (size_t)n, text, sizeof text);
    const bool is_inside = n_text >= 3 && memcmp(text, "\xef\xbf\xbd", 3) == 0;   /* begins inside a character */
    if (n_text == 0 || is_inside) return EXIT_OK;
    struct ids ids = tokenize(g->to->model, text, NULL, n_text, PLUMB_CONTINUES);
    if (!ids.data) return exit_failed;
    for (size_t i = 0; ids.n > 2 && i + 1 < ids.n && i < FORCED_BYTES; i++) {
        if (plumb_matcher_accept(g->matcher, &ids.data[i], 1) != PLUMB_OK) break;
        g->queue[g->n_queue++] = ids.data[i];
        g->to->n_forced++;
    }
    free(ids.data);
    return EXIT_OK;
}

static int feed_queue(struct generation *g) {
    plumb_status status = plumb_session_feed(g->to->session, g->queue, g->n_queue);
    if (status != PLUMB_OK) return report("generation", status, plumb_session_error(g->to->session));
    g->to->n_fed += (uint32_t)g->n_queue;
    g->to->n_step++;
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

/* Samples, prints and feeds tokens until the turn ends, n_max tokens are printed or the context is full. */
static int generate(struct generation *g, uint32_t n_max) {
    struct answering *to = g->to;
    const struct options *o = to->options;
    const uint32_t n_ctx = plumb_session_n_ctx(to->session);
    bool is_cut = false;
    int code = force(g);
    to->reason = "stop";
    for (uint32_t i = 0; i < n_max && !out_failed() && code == EXIT_OK; i++) {
        if (g->n_taken == g->n_queue) code = sample(g);
        if (g->n_taken == g->n_queue) break;
        const int32_t id = g->queue[g->n_taken++];
        if (o->print_ids) out(i > 0 ? " %" PRId32 : "%" PRId32, id);
        push_token(g, id);
        out_flush();
        if (plumb_token_is_eog(to->model, id)) break;
        to->n_token++;
        if (g->is_over) break;
        is_cut = i + 1 == n_max;
        to->is_full = !is_cut && o->n_keep == 0 && plumb_session_n_past(to->session) + g->n_taken > n_ctx;
        if (is_cut || to->is_full) break;
        plumb_sampler_accept(g->sampler, id);
        code = go_on(g);
    }
    if (is_cut || to->is_full) to->reason = "length";
    if (code == EXIT_INTERRUPTED) to->reason = "abort";
    char rest[12];
    if (!is_cut) push_text(g, rest, plumb_text_flush(&g->text, rest, sizeof rest));
    if (!g->is_over) emit(g, g->held.data, g->held.n);
    return code;
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

/* Loads the model of --model-draft. */
static int open_draft(struct answering *a) {
    const char *path = a->options->draft;
    int code = load_model(&a->draft_model, &path, 1, LOAD_ALL);
    if (code != EXIT_OK) return code;
    const plumb_session_params params = { .n_ctx = plumb_session_n_ctx(a->session), .n_thread = a->options->n_thread,
                                          .precision = a->options->precision };
    plumb_status status = plumb_session_create(&a->draft, a->draft_model, &params);
    return status == PLUMB_OK ? EXIT_OK : report(path, status, plumb_model_error(a->draft_model));
}

int answering_begin(struct answering *a, const struct options *o, plumb_model *model, double load_seconds) {
    *a = (struct answering){ .options = o, .model = model, .load_seconds = load_seconds };
    if (load_grammar(&a->grammar, model, o) != EXIT_OK) return exit_failed;
    a->session = create_session(model, o);
    if (!a->session) return exit_failed;
    if (o->speculate == SPECULATE_OFF) return EXIT_OK;
    if (o->draft && open_draft(a) != EXIT_OK) return exit_failed;
    const plumb_speculation speculation = { true, o->n_draft_least, o->n_draft_most, a->draft };
    plumb_status status = plumb_session_speculate(a->session, &speculation);
    if (status == PLUMB_OK) return EXIT_OK;
    return report(o->draft ? o->draft : "--speculate", status, plumb_session_error(a->session));
}

void answering_end(struct answering *a) {
    free(a->text.data);
    plumb_session_free(a->session);
    plumb_session_free(a->draft);
    plumb_model_free(a->draft_model);
    plumb_grammar_free(a->grammar);
}

int answering_answer(struct answering *a, const struct ids *prompt, uint32_t n_max) {
    const struct options *o = a->options;
    struct generation *g = allocate(sizeof *g);
    *g = (struct generation){ .to = a };
    a->text.n = 0;
    a->n_prompt = prompt->n;
    a->n_reused = a->n_token = a->n_fed = a->n_step = a->n_forced = 0;
    a->is_full = false;
    a->n_drafted = plumb_session_n_drafted(a->session);
    a->n_accepted = plumb_session_n_accepted(a->session);
    int code = exit_failed;
    plumb_status created = a->grammar ? plumb_matcher_create(&g->matcher, a->grammar) : PLUMB_OK;
    if (created != PLUMB_OK) {
        report("grammar", created, plumb_grammar_error(a->grammar));
        goto done;
    }
    for (; g->n_end < o->n_stop; g->n_end++) g->ends[g->n_end] = o->stops[g->n_end];
    const char *stop = o->raw ? NULL : plumb_chat_stop(a->model), *reason;
    if (stop) g->ends[g->n_end++] = stop;
    plumb_sampling sampling = o->sampling;
    if (!o->has_seed) sampling.seed = random_seed();
    a->seed = sampling.seed;
    plumb_status status = plumb_sampler_create(&g->sampler, plumb_model_n_vocab(a->model), &sampling, &reason);
    if (status != PLUMB_OK) {
        report("sampling", status, reason);
        goto done;
    }
    plumb_model_info info;
    plumb_model_get_info(a->model, &info);
    double start = now();
    /* An encoder reads the whole prompt. */
    a->n_reused = info.has_encoder ? 0 : plumb_session_reuse(a->session, prompt->data, prompt->n);
    code = feed_prompt(a->model, a->session, prompt->data + a->n_reused, prompt->n - a->n_reused);
    if (code != EXIT_OK) goto done;
    for (size_t i = 0; i < prompt->n; i++) plumb_sampler_accept(g->sampler, prompt->data[i]);
    a->prefill_seconds = now() - start;
    start = now();
    code = generate(g, n_max);
    a->decode_seconds = now() - start;
    a->n_drafted = plumb_session_n_drafted(a->session) - a->n_drafted;
    a->n_accepted = plumb_session_n_accepted(a->session) - a->n_accepted;

done:
    plumb_sampler_free(g->sampler);
    plumb_matcher_free(g->matcher);
    free(g->held.data);
    free(g);
    return code;
}

/* A number of events in a time, for each second. */
static double rate(double n, double seconds) { return seconds > 0 ? n / seconds : 0; }

void print_answer(const struct answering *a, bool has_load) {
    out("{\"text\":");
    out_json_string(a->text.data, a->text.n);
    out(",\"finishReason\":\"%s\",\"stats\":{", a->reason);
    if (has_load) out("\"loadSeconds\":%.6f,", a->load_seconds);
    out("\"promptTokens\":%zu,\"reusedTokens\":%" PRIu32 ",\"tokens\":%" PRIu32 ",\"forcedTokens\":%" PRIu32
        ",\"draftedTokens\":%" PRIu64 ",\"acceptedTokens\":%" PRIu64
        ",\"prefillSeconds\":%.6f,\"decodeSeconds\":%.6f,\"prefillRate\":%.3f,\"decodeRate\":%.3f}",
        a->n_prompt, a->n_reused, a->n_token, a->n_forced, a->n_drafted, a->n_accepted,
        a->prefill_seconds, a->decode_seconds,
        rate((double)(a->n_prompt - a->n_reused), a->prefill_seconds), rate(a->n_step, a->decode_seconds));
    const char *quote = a->seed >> 53 ? "\"" : "";   /* JavaScript would round it */
    out(",\"module\":\"%s\",\"threads\":%" PRIu32 ",\"seed\":%s%" PRIu64 "%s}\n",
        plumb_session_kernels(a->session), plumb_session_n_thread(a->session), quote, a->seed, quote);
    out_flush();
}

/* Ends the line of an answer, and prints why it ended and how fast it was. */
static void print_speeds(const struct answering *a, uint32_t n_max) {
    out("\n");
    out_flush();   /* the text must precede the speeds on standard error */
    if (a->is_full) {
        print_error(0, "the context of %" PRIu32 " tokens is full; use --ctx to enlarge it",
                    plumb_session_n_ctx(a->session));
    } else if (strcmp(a->reason, "length") == 0 && a->options->n_predict == 0) {
        print_error(0, "stopped after %" PRIu32 " tokens, the default limit; use -n to raise it", n_max);
    }
    const size_t n_new = a->n_prompt - a->n_reused;
    fprintf(stderr, "load %.2f s, prefill %zu tokens at %.1f tokens/s, decode %" PRIu32 " tokens at %.1f tokens/s",
            a->load_seconds, n_new, (double)n_new / a->prefill_seconds, a->n_fed,
            a->n_fed > 0 ? a->n_fed / a->decode_seconds : 0.0);
    if (a->n_drafted > 0) {
        fprintf(stderr, ", %" PRIu64 " of %" PRIu64 " drafted tokens accepted", a->n_accepted, a->n_drafted);
    }
    if (a->n_reused > 0) fprintf(stderr, ", %" PRIu32 " tokens of the prompt reused", a->n_reused);
    if (a->options->sampling.temperature > 0) fprintf(stderr, ", seed %" PRIu64, a->seed);
    fprintf(stderr, "\n");
}

/* ---- run --------------------------------------------------------------------------------------------------------- */

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
    const uint32_t n_max = o->n_predict > 0 ? o->n_predict : DEFAULT_PREDICT;
    struct answering a;
    int code = answering_begin(&a, o, model, load_seconds);
    if (code == EXIT_OK && o->load_state) code = load_state(a.session, o->load_state);
    if (code == EXIT_OK) {
        a.reason = NULL;
        code = answering_answer(&a, prompt, n_max);
        if (a.reason && !o->json) print_speeds(&a, n_max);
        else if (a.reason && (code == EXIT_OK || code == EXIT_INTERRUPTED)) print_answer(&a, true);
        if (o->save_state && code == EXIT_OK) code = save_state(a.session, o->save_state);
    }
    answering_end(&a);
    return code;
}

int run_run(const struct options *o) {
    struct prompt prompt;
    int code = read_prompt(&prompt, o);
    if (code != EXIT_OK) return code;
    if (o->interactive || !prompt.text) code = chat_from(o, &prompt);
    else {
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
    }
    free(prompt.owned);
    return out_close(code);
}
