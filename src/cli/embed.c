/* plumb embed prints the embedding of each line of a file; plumb rank sorts the lines by how well they answer a query.
 */
#include "cli/cli.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How many texts the engine is given at once.  It computes the first of them, about 256 tokens. */
enum { GIVEN = 64 };

struct run {
    const struct options *options;
    plumb_model *model;
    plumb_session *session;
    plumb_pooling pooling;
    const char *query;        /* read together with each text; NULL: texts are alone */
    int32_t *ids;             /* (n_id) those of texts that wait to be computed, one after the other */
    size_t n_id, cap;
    uint32_t lengths[GIVEN];  /* (n_text) */
    size_t n_text, n_done;
    /* Receives the vectors (n_row, n) of each text, in order. */
    void (*use)(struct run *r, float *vectors, size_t n_row, uint32_t n);
    /* rank: */
    double *scores;           /* (n_done) */
    float *wanted;            /* (n) the vector of the query, without a reranker; NULL before it is computed */
    bool is_reranker;
};

/* ---- texts -> vectors -------------------------------------------------------------------------------------------- */

/* Divides each row of (n_row, n) by its length. */
static void normalize(float *rows, size_t n_row, uint32_t n) {
    for (size_t row = 0; row < n_row; row++, rows += n) {
        double sum = 0;
        for (uint32_t i = 0; i < n; i++) sum += (double)rows[i] * (double)rows[i];
        double length = sum != 0 ? sqrt(sum) : 1;
        for (uint32_t i = 0; i < n; i++) rows[i] = (float)((double)rows[i] / length);
    }
}

/* Copies the first n_kept elements of each row and gives them to r->use. */
static void finish(struct run *r, const float *rows, size_t n_row, uint32_t n, uint32_t n_kept) {
    float *kept = allocate(n_row * n_kept * sizeof *kept);
    for (size_t row = 0; row < n_row; row++) memcpy(kept + row * n_kept, rows + row * n, n_kept * sizeof *kept);
    bool is_raw = r->options->no_normalize || r->is_reranker;
    if (!is_raw) normalize(kept, n_row, n_kept);
    r->use(r, kept, n_row, n_kept);
    free(kept);
}

/* Computes the texts that wait. */
static int compute(struct run *r) {
    size_t at = 0, i = 0;
    while (i < r->n_text) {
        int64_t n_text = plumb_session_embed(r->session, r->ids + at, r->lengths + i, r->n_text - i, r->pooling);
        const char *where = command_name(r->options->command);
        if (n_text < 0) return report(where, (plumb_status)n_text, plumb_session_error(r->session));
        uint32_t n_vector, n, n_kept = r->options->n_dimension;
        const float *rows = plumb_session_embedding(r->session, &n_vector, &n);
        if (n_kept > n) {
            return print_error(exit_failed, "%s: --dimensions is %" PRIu32 ", but the model's vectors have %" PRIu32
                               " elements", where, n_kept, n);
        }
        for (int64_t left = n_text; left > 0; left--) {
            size_t n_row = r->pooling == PLUMB_POOLING_NONE ? r->lengths[i] : 1;
            finish(r, rows, n_row, n, n_kept > 0 ? n_kept : n);
            rows += n_row * n;
            at += r->lengths[i++];
        }
        out_flush();
        if (interrupted()) return EXIT_INTERRUPTED;
        if (out_failed()) break;
    }
    r->n_text = r->n_id = 0;
    return EXIT_OK;
}

/* Adds a text of n tokens, which are in r->ids behind the others.  line: its number, for messages; 0: the query, or the
 * tokens of an option. */
static int add(struct run *r, size_t n, size_t line) {
    uint32_t n_ctx = plumb_session_n_ctx(r->session);
    if (n == 0 || n > n_ctx) {
        char place[32] = "the text";
        if (line > 0) snprintf(place, sizeof place, "line %zu", line);
        return print_error(exit_failed, "%s: %s has %zu tokens, but 1 to %" PRIu32 " are possible; --truncate leaves "
                           "out the end, --ctx enlarges the context", command_name(r->options->command), place, n,
                           n_ctx);
    }
    r->lengths[r->n_text++] = (uint32_t)n;
    r->n_id += n;
    return r->n_text == GIVEN ? compute(r) : EXIT_OK;
}

/* Tokenizes a text and adds it. */
static int add_text(struct run *r, const char *prefix, const char *text, size_t len, size_t line) {
    const struct options *o = r->options;
    size_t n_prefix = prefix ? strlen(prefix) : 0, n_max = o->truncate ? plumb_session_n_ctx(r->session) : 0;
    char *whole = allocate(n_prefix + len + 1);
    if (prefix) memcpy(whole, prefix, n_prefix);
    memcpy(whole + n_prefix, text, len);
    unsigned flags = o->parse_special ? PLUMB_PARSE_SPECIAL : 0u;
    int64_t n = 0;
    for (;;) {
        n = plumb_tokenize_input(r->model, r->query, r->query ? strlen(r->query) : 0, whole, n_prefix + len, flags,
                                 n_max, r->ids + r->n_id, r->cap - r->n_id);
        if (n < 0 || (uint64_t)n <= r->cap - r->n_id) break;
        r->cap = (r->n_id + (size_t)n) * 2;
        int32_t *ids = allocate(r->cap * sizeof *ids);
        memcpy(ids, r->ids, r->n_id * sizeof *ids);
        free(r->ids);
        r->ids = ids;
    }
    free(whole);
    if (n < 0) return report(o->text, (plumb_status)n, plumb_model_error(r->model));
    return add(r, (size_t)n, line);
}

/* Adds the lines of a text.  A newline at its end does not begin another one. */
static int add_lines(struct run *r, const char *text, size_t len) {
    int code = EXIT_OK;
    size_t n_line = 0;
    for (size_t at = 0; at < len && code == EXIT_OK && !out_failed(); n_line++) {
        const char *end = memchr(text + at, '\n', len - at);
        size_t n = end ? (size_t)(end - text) - at : len - at;
        code = add_text(r, r->options->prefix, text + at, n, n_line + 1);
        at += n + 1;
    }
    return code;
}

/* ---- commands ---------------------------------------------------------------------------------------------------- */

static void print_vectors(struct run *r, float *vectors, size_t n_row, uint32_t n) {
    if (r->options->raw) {
        out_bytes(vectors, n_row * n * sizeof *vectors);   /* every host is little-endian */
        return;
    }
    bool is_list = r->pooling == PLUMB_POOLING_NONE;
    out(is_list ? "[[" : "[");
    for (size_t i = 0; i < n_row * n; i++) {
        if (i > 0) out(i % n == 0 ? "],[" : ",");
        out_json_number((double)vectors[i], 9);
    }
    out(is_list ? "]]\n" : "]\n");
}

/* The first vector is that of the query, unless the model is a reranker. */
static void keep_score(struct run *r, float *vectors, size_t n_row, uint32_t n) {
    (void)n_row;
    if (!r->is_reranker && !r->wanted) {
        r->wanted = allocate(n * sizeof *r->wanted);
        memcpy(r->wanted, vectors, n * sizeof *r->wanted);
        return;
    }
    double score = r->is_reranker ? (double)vectors[0] : 0;
    for (uint32_t i = 0; !r->is_reranker && i < n; i++) score += (double)vectors[i] * (double)r->wanted[i];
    r->scores[r->n_done++] = score;
}

static const double *compared_scores;

/* The best first; NaN last; of equal ones the first line. */
static int compare_lines(const void *a, const void *b) {
    size_t i = *(const size_t *)a, j = *(const size_t *)b;
    double x = isnan(compared_scores[i]) ? -INFINITY : compared_scores[i];
    double y = isnan(compared_scores[j]) ? -INFINITY : compared_scores[j];
    return x != y ? (x < y) - (x > y) : (i > j) - (i < j);
}

static void print_ranks(const struct run *r, const char *text, size_t len) {
    const char **lines = allocate((r->n_done + 1) * sizeof *lines);
    size_t *order = allocate(r->n_done * sizeof *order);
    lines[0] = text;
    for (size_t i = 0; i < r->n_done; i++) {
        const char *end = memchr(lines[i], '\n', len - (size_t)(lines[i] - text));
        lines[i + 1] = end ? end + 1 : text + len + 1;
        order[i] = i;
    }
    compared_scores = r->scores;
    qsort(order, r->n_done, sizeof *order, compare_lines);
    for (size_t k = 0; k < r->n_done; k++) {
        size_t i = order[k], n = (size_t)(lines[i + 1] - lines[i]) - 1;
        if (r->options->json) {
            out("%s{\"line\": %zu, \"score\": ", k == 0 ? "[" : ",\n", i + 1);
            out_json_number(r->scores[i], 17);
            out(", \"text\": ");
            out_json_string(lines[i], n);
            out("}");
        } else {
            out("%9.6f  ", r->scores[i]);
            out_bytes(lines[i], n);
            out("\n");
        }
    }
    if (r->options->json) out(r->n_done > 0 ? "]\n" : "[]\n");
    free(order);
    free(lines);
}

/* How the tokens' vectors become one: as an option says, or the file. */
static int choose_pooling(struct run *r) {
    const struct options *o = r->options;
    plumb_model_info info;
    plumb_status status = plumb_model_get_info(r->model, &info);
    if (status != PLUMB_OK) return report(o->files[0], status, plumb_model_error(r->model));
    r->pooling = o->has_pooling ? o->pooling : info.pooling;
    r->is_reranker = o->command == COMMAND_RANK && r->pooling == PLUMB_POOLING_RANK;
    if (o->has_pooling || r->is_reranker || (r->pooling != PLUMB_POOLING_NONE && r->pooling != PLUMB_POOLING_RANK)) {
        return EXIT_OK;
    }
    return print_error(exit_failed, "%s: %s: %s; choose one with --pooling", command_name(o->command), o->files[0],
                       r->pooling == PLUMB_POOLING_RANK ? "the model is a reranker, for plumb rank"
                       : "the file does not say how the vectors of the tokens become one");
}

static int run_texts(struct run *r, const char *text, size_t len) {
    const struct options *o = r->options;
    int code = load_model(&r->model, o->files, o->n_file, LOAD_ALL);
    if (code != EXIT_OK) return code;
    code = choose_pooling(r);
    if (code != EXIT_OK) return code;
    r->session = create_session(r->model, o);
    if (!r->session) return exit_failed;
    if (o->ids) {
        struct ids ids = parse_ids(o, plumb_model_n_vocab(r->model));
        if (!ids.data) return EXIT_USAGE;
        free(r->ids);
        r->ids = ids.data;
        r->cap = ids.n;
        code = add(r, ids.n, 0);
    }
    char *query = NULL;
    if (o->command == COMMAND_RANK) {
        size_t n_prefix = o->query_prefix ? strlen(o->query_prefix) : 0, n = strlen(o->query);
        query = allocate(n_prefix + n + 1);
        if (n_prefix > 0) memcpy(query, o->query_prefix, n_prefix);
        memcpy(query + n_prefix, o->query, n + 1);
        if (r->is_reranker) r->query = query;
        else code = add_text(r, NULL, query, n_prefix + n, 0);
    }
    if (code == EXIT_OK && text) code = add_lines(r, text, len);
    if (code == EXIT_OK) code = compute(r);
    if (code == EXIT_OK && o->command == COMMAND_RANK) print_ranks(r, text, len);
    free(query);
    return code;
}

static int run(const struct options *o, void (*use)(struct run *r, float *vectors, size_t n_row, uint32_t n)) {
    enum { N_ID = 1024 };
    struct run r = { .options = o, .use = use, .cap = N_ID };
    size_t len = 0;
    int code = EXIT_OK;
    char *text = o->ids ? NULL : read_file(o->text, &len, &code);
    if (code != EXIT_OK) return code;
    r.ids = allocate(N_ID * sizeof *r.ids);
    if (o->command == COMMAND_RANK) r.scores = allocate((len + 1) * sizeof *r.scores);
    code = run_texts(&r, text, len);
    free(text);
    free(r.ids);
    free(r.scores);
    free(r.wanted);
    plumb_session_free(r.session);
    plumb_model_free(r.model);
    return out_close(code);
}

int run_embed(const struct options *o) { return run(o, print_vectors); }
int run_rank(const struct options *o) { return run(o, keep_score); }
