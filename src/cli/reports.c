/* plumb diff, selfcheck, weights and diagnose.  Each command reads its files, lets the engine write the report and
 * turns the verdict into an exit code. */
#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>

/* Where a report is written, and its progress. */
struct reporting {
    struct writer writer;
    struct progress progress;
    const char *what;
};

static void write_report(void *user, const char *bytes, size_t n) {
    struct reporting *r = user;
    progress_end(&r->progress);   /* clears its line: the report may go to the same terminal */
    writer_write(&r->writer, bytes, n);
    if (r->progress.terminal) out_flush();
}

static void show_report(void *user, double done) {
    struct reporting *r = user;
    if (interrupted()) {
        progress_end(&r->progress);
        exit(EXIT_INTERRUPTED);
    }
    progress_show(&r->progress, done, "%s %.0f %%", r->what, 100 * done);
}

/* path: the file to write, or "-" for standard output.  name_a, name_b: of what is compared; NULL for none. */
static int begin_report(struct reporting *r, plumb_report *report, const struct options *o, const char *path,
                        const char *name_a, const char *name_b) {
    *r = (struct reporting){ .what = command_name(o->command) };
    progress_begin(&r->progress);
    *report = (plumb_report){
        .format = o->json ? PLUMB_FORMAT_JSON : PLUMB_FORMAT_TEXT, .write = write_report, .user = r,
        .tolerance = o->tolerance, .on_progress = show_report, .all = o->all, .name_a = name_a, .name_b = name_b,
    };
    return writer_open(&r->writer, path);
}

static int end_report(struct reporting *r, plumb_status status, const char *where, const char *message) {
    progress_end(&r->progress);
    return writer_close(&r->writer, status == PLUMB_OK ? EXIT_OK : report(where, status, message));
}

/* The exit code of a report: EXIT_DIFFERENT if it was made and says that something differs, else code. */
static int verdict(int code, bool agree) { return out_close(code == EXIT_OK && !agree ? EXIT_DIFFERENT : code); }

/* *out is NULL unless EXIT_OK is returned. */
static int read_trace(plumb_trace **out_trace, const char *path) {
    *out_trace = NULL;
    int code;
    size_t n;
    char *bytes = read_file(path, &n, &code);
    if (!bytes) return code;
    plumb_trace *trace = plumb_trace_create();
    plumb_status status = trace ? plumb_trace_read(trace, bytes, n) : PLUMB_ERROR_MEMORY;
    if (status != PLUMB_OK) {
        code = report(path, status, trace ? plumb_trace_error(trace) : "out of memory");
        plumb_trace_free(trace);
        trace = NULL;
    }
    free(bytes);
    *out_trace = trace;
    return code;
}

/* ---- diff -------------------------------------------------------------------------------------------------------- */

static int write_diff(const struct options *o, plumb_trace *const *traces, plumb_model *model, const char *path,
                      bool is_html, bool *agree) {
    struct reporting r;
    plumb_report report;
    int code = begin_report(&r, &report, o, path, o->files[0], o->files[1]);
    if (code != EXIT_OK) return code;
    if (is_html) report.format = PLUMB_FORMAT_HTML;
    plumb_status status = plumb_diff(traces[0], traces[1], model, &report, agree);
    return end_report(&r, status, "diff", plumb_trace_error(traces[0]));
}

int run_diff(const struct options *o) {
    plumb_trace *traces[2] = { NULL, NULL };
    plumb_model *model = NULL;
    bool agree = false;
    int code = EXIT_OK;
    for (size_t i = 0; i < 2 && code == EXIT_OK; i++) code = read_trace(&traces[i], o->files[i]);
    if (o->model && code == EXIT_OK) code = load_model(&model, &o->model, 1, LOAD_VOCAB);
    if (o->html && code == EXIT_OK) code = write_diff(o, traces, model, o->html, true, &agree);
    if (code == EXIT_OK) code = write_diff(o, traces, model, "-", false, &agree);
    plumb_trace_free(traces[0]);
    plumb_trace_free(traces[1]);
    plumb_model_free(model);
    return verdict(code, agree);
}

/* ---- selfcheck, weights ------------------------------------------------------------------------------------------ */

int run_selfcheck(const struct options *o) {
    plumb_model *model;
    int code = load_model(&model, o->files, o->n_file, LOAD_CHECKED);
    if (code != EXIT_OK) return code;
    bool ok = false;
    struct reporting r;
    plumb_report report;
    code = begin_report(&r, &report, o, "-", o->files[0], NULL);
    if (code == EXIT_OK) {
        plumb_status status = plumb_selfcheck(model, &report, &ok);
        code = end_report(&r, status, o->files[0], plumb_model_error(model));
    }
    plumb_model_free(model);
    return verdict(code, ok);
}

int run_weights(const struct options *o) {
    plumb_model *models[2] = { NULL, NULL };
    bool agree = false;
    int code = EXIT_OK;
    for (size_t i = 0; i < 2 && code == EXIT_OK; i++) code = load_model(&models[i], &o->files[i], 1, LOAD_BYTES);
    struct reporting r;
    plumb_report report;
    if (code == EXIT_OK) code = begin_report(&r, &report, o, "-", o->files[0], o->files[1]);
    if (code == EXIT_OK) {
        plumb_status status = plumb_weights(models[0], models[1], &report, &agree);
        code = end_report(&r, status, "weights", plumb_model_error(models[0]));
    }
    plumb_model_free(models[0]);
    plumb_model_free(models[1]);
    return verdict(code, agree);
}

/* ---- diagnose ---------------------------------------------------------------------------------------------------- */

/* Prints the known mistakes; if a model is given, only those that can change anything in it. */
static int list_known(const struct options *o) {
    const char *name, *tap, *models, *text;
    plumb_model *model = NULL;
    int code = o->n_file > 0 ? load_model(&model, o->files, o->n_file, LOAD_ALL) : EXIT_OK;
    bool is_first = true;
    for (size_t i = 0; code == EXIT_OK && plumb_known_mistake(i, &name, &tap, &models, &text); i++) {
        if (model && !plumb_known_mistake_applies(model, i)) continue;
        if (!o->json) {
            out("%-36s %s\n    models: %s\n    ", name, tap, models);
            out_wrapped(text, 4, 4);
            continue;
        }
        out("%s\n  {\"name\": ", is_first ? "[" : ",");
        is_first = false;
        out_json_string(name, strlen(name));
        out(", \"tap\": ");
        out_json_string(tap, strlen(tap));
        out(", \"models\": ");
        out_json_string(models, strlen(models));
        out(", \"text\": ");
        out_json_string(text, strlen(text));
        out("}");
    }
    if (o->json && code == EXIT_OK) out("%s\n]\n", is_first ? "[" : "");
    plumb_model_free(model);
    return code == EXIT_OK ? out_close(EXIT_OK) : code;
}

/* Says how the given tokens differ from those of theirs, as `plumb diff` does.  Returns EXIT_DIFFERENT, or the code of
 * an error. */
static int report_tokens(plumb_trace *theirs, plumb_trace *given, plumb_model *model, const struct options *o) {
    struct reporting r;
    plumb_report diff;
    bool agree;
    int code = begin_report(&r, &diff, o, "-", o->against, o->ids ? "--tokens" : o->chat ? "-p in the chat template"
                            : "-p");
    if (code != EXIT_OK) return code;
    code = end_report(&r, plumb_diff(theirs, given, model, &diff, &agree), "diff", plumb_trace_error(theirs));
    return code == EXIT_OK ? EXIT_DIFFERENT : code;
}

/* Checks that the tokens given by --tokens or -p are those of the file, if it has any.  Activations of different tokens
 * cannot be compared, and what differs in the tokens may be the mistake: a chat template that is missing. */
static int compare_tokens(plumb_trace *theirs, plumb_model *model, const struct ids *given, const struct options *o) {
    const int32_t *ids = plumb_trace_tokens(theirs);
    size_t n = plumb_trace_n_token(theirs), i = 0;
    if (!ids) return EXIT_OK;
    while (i < n && i < given->n && ids[i] == given->data[i]) i++;
    if (i == n && i == given->n) return EXIT_OK;
    if (i == n || i == given->n) {
        return print_error(EXIT_USAGE, "diagnose: %s contradicts %s: it has %zu tokens, but the file has %zu",
                           o->ids ? "--tokens" : "-p", o->against, given->n, n);
    }
    plumb_trace *trace = plumb_trace_create();
    plumb_status status = trace ? plumb_trace_set_tokens(trace, given->data, given->n, given->n) : PLUMB_ERROR_MEMORY;
    int code = status == PLUMB_OK ? report_tokens(theirs, trace, model, o)
             : report(o->against, status, trace ? plumb_trace_error(trace) : "out of memory");
    plumb_trace_free(trace);
    return code;
}

/* Gives the trace the tokens of --tokens or -p, which the other engine was fed, if its file does not have them.  With
 * --n-prompt they are set again, to split them into prompt and single tokens. */
static int set_trace_tokens(plumb_trace *trace, plumb_model *model, const struct options *o,
                            const struct prompt *prompt) {
    if (!o->prompt && !o->ids) {
        return plumb_trace_tokens(trace) ? EXIT_OK
             : report(o->against, PLUMB_ERROR_ARGUMENT, "it does not list the tokens that were fed; give --tokens or "
                      "-p");
    }
    struct ids ids;
    int code = input_ids(&ids, model, o, prompt);
    if (code == EXIT_OK) code = compare_tokens(trace, model, &ids, o);
    bool is_new = !plumb_trace_tokens(trace) || o->n_prompt != UINT32_MAX;
    if (code == EXIT_OK && is_new) {
        size_t n_prompt = o->n_prompt < ids.n ? o->n_prompt : ids.n;
        plumb_status status = plumb_trace_set_tokens(trace, ids.data, ids.n, n_prompt);
        if (status != PLUMB_OK) code = report(o->against, status, plumb_trace_error(trace));
    }
    free(ids.data);
    return code;
}

int run_diagnose(const struct options *o) {
    if (o->list) return list_known(o);
    struct prompt prompt;
    int code = read_prompt(&prompt, o);
    if (code != EXIT_OK) return code;
    plumb_trace *trace;
    plumb_model *model = NULL;
    plumb_verdict says = PLUMB_VERDICT_DIFFERS;
    code = read_trace(&trace, o->against);
    if (code == EXIT_OK) code = load_model(&model, o->files, o->n_file, LOAD_ALL);
    if (code == EXIT_OK) code = set_trace_tokens(trace, model, o, &prompt);
    struct reporting r;
    plumb_report report;
    if (code == EXIT_OK) code = begin_report(&r, &report, o, "-", o->against, o->files[0]);
    if (code == EXIT_OK) {
        plumb_status status = plumb_diagnose(model, trace, o->n_known, &report, &says);
        code = end_report(&r, status, o->against, plumb_model_error(model));
    }
    plumb_trace_free(trace);
    plumb_model_free(model);
    free(prompt.owned);
    if (code == EXIT_OK && says == PLUMB_VERDICT_AGREES_BUT_NOISE) code = EXIT_NOISE;
    return verdict(code, says != PLUMB_VERDICT_DIFFERS);
}
