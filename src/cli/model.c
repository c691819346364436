/* The first steps of the commands: read a model from its files, get the tokens of a prompt, create a session. */
#define _POSIX_C_SOURCE 200809L
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- reading models ---------------------------------------------------------------------------------------------- */

struct loading {
    struct progress progress;
    uint64_t done, total;   /* bytes; total may be PLUMB_SIZE_UNKNOWN */
};

static void show_loading(struct loading *l) {
    const double mb = 1e-6, done = (double)l->done, rate = done / (now() - l->progress.start);
    if (l->total != PLUMB_SIZE_UNKNOWN && l->total > l->done) {
        const double total = (double)l->total;
        progress_show(&l->progress, done / total, "loading %.0f of %.0f MB, %.0f MB/s", mb * done, mb * total,
                      mb * rate);
    } else {
        progress_show(&l->progress, NAN, "loading %.0f MB, %.0f MB/s", mb * done, mb * rate);
    }
}

static bool is_enough(const plumb_model *model, enum load what) {
    return what < LOAD_BYTES && plumb_model_has_header(model);
}

uint64_t file_size(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode) ? (uint64_t)info.st_size : PLUMB_SIZE_UNKNOWN;
}

/* Bytes of the model's files from index i on; PLUMB_SIZE_UNKNOWN if one of them is not a regular file. */
static uint64_t size_from(const char *const *files, size_t n_file, size_t i) {
    uint64_t total = 0;
    for (; i < n_file; i++) {
        uint64_t size = file_size(files[i]);
        if (size == PLUMB_SIZE_UNKNOWN) return size;
        total += size;
    }
    return total;
}

/* Reads a file directly into the memory of the model.  size: bytes of this file and of those after it, which may be
 * further pieces of it. */
static int load_file(plumb_model *model, const char *path, int fd, uint64_t size, enum load what, struct loading *l) {
    /* With a known size, a header whose tensors lie beyond it is refused, but LOAD_HEADER accepts such a header. */
    plumb_status status = plumb_model_begin(model, what == LOAD_HEADER ? PLUMB_SIZE_UNKNOWN : size);
    while (status == PLUMB_OK && !is_enough(model, what)) {
        void *data;
        size_t len;
        status = plumb_model_window(model, &data, &len);
        if (status != PLUMB_OK || len == 0) break;
        if (len > 4 << 20) len = 4 << 20;   /* short reads, so that progress is shown and Ctrl-C noticed */
        ssize_t n = read(fd, data, len);
        if (interrupted()) return EXIT_INTERRUPTED;
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return report(path, PLUMB_ERROR_IO, strerror(errno));
        if (n == 0) return EXIT_OK;   /* the next part or plumb_model_end finds out if the file is cut */
        status = plumb_model_commit(model, (size_t)n);
        l->done += (uint64_t)n;
        show_loading(l);
    }
    bool is_finding = what == LOAD_CHECKED && status != PLUMB_ERROR_MEMORY;
    return status == PLUMB_OK || is_finding ? EXIT_OK : report(path, status, plumb_model_error(model));
}

/* What follows one of some beginnings of a text; NULL if it has none of them. */
static const char *after(const char *text, const char *const beginnings[]) {
    for (size_t i = 0; beginnings[i]; i++) {
        if (strncmp(text, beginnings[i], strlen(beginnings[i])) == 0) return text + strlen(beginnings[i]);
    }
    return NULL;
}

/* If the name of a file is that of a model on a server, says how to get the file.  The package takes the same names:
 * URLs, and hf:OWNER/REPOSITORY, perhaps with @BRANCH, and with :FILE.gguf or :TYPE. */
static bool is_remote(const char *name) {
    static const char *const schemes[] = { "https://", "http://", NULL };
    static const char *const hubs[] = { "hf:", "hf.co/", "huggingface.co/", NULL };
    static const char reads_files[] = "this program reads only files, and plumb of the package plumb-llm takes such "
                                      "names";
    const char *host = after(name, schemes), *rest = after(host ? host : name, hubs);
    const size_t owner = rest ? strcspn(rest, "/") : 0;
    const bool has_owner = rest && rest[owner] == '/';
    const size_t n = has_owner ? owner + 1 + strcspn(rest + owner + 1, "/@:") : 0;   /* OWNER/REPOSITORY */
    const char *branch = rest && rest[n] == '@' ? rest + n + 1 : "main";
    const int n_branch = (int)strcspn(branch, ":/");
    const char *file = !has_owner ? NULL : rest[n] == '@' ? branch + n_branch : rest + n;
    if (host && (!has_owner || *file == '/')) {
        const char *slash = strrchr(name, '/'), *last = slash[1] && slash + 1 > host ? slash + 1 : "model.gguf";
        print_error(EXIT_USAGE, "%s: %s; download it: curl -L -o %.*s '%s'", name, reads_files,
                    (int)strcspn(last, "?#"), last, name);
    } else if (has_owner && *file && has_gguf_suffix(file)) {
        print_error(EXIT_USAGE, "%s: %s; download it: curl -LO 'https://huggingface.co/%.*s/resolve/%.*s/%s'", name,
                    reads_files, (int)n, rest, n_branch, branch, file + 1);
    } else if (has_owner) {
        print_error(EXIT_USAGE, "%s: %s; choose a file at https://huggingface.co/%.*s/tree/%.*s and download it: curl "
                    "-LO 'https://huggingface.co/%.*s/resolve/%.*s/FILE'", name, reads_files, (int)n, rest, n_branch,
                    branch, (int)n, rest, n_branch, branch);
    } else if (!strchr(name, '/') && strchr(name, ':') && !has_gguf_suffix(name)) {   /* smollm2:135m */
        print_error(EXIT_USAGE, "%s: there is no such file; %s", name, reads_files);
    } else {
        return false;
    }
    return true;
}

static int load_files(plumb_model *model, const char *const *files, size_t n_file, enum load what,
                      struct loading *l) {
    for (size_t i = 0; i < n_file && !is_enough(model, what); i++) {
        int fd = open(files[i], O_RDONLY);
        if (fd < 0 && is_remote(files[i])) return EXIT_USAGE;
        if (fd < 0) return report(files[i], PLUMB_ERROR_IO, strerror(errno));
        int code = load_file(model, files[i], fd, size_from(files, n_file, i), what, l);
        close(fd);
        if (code != EXIT_OK) return code;
    }
    if (what == LOAD_CHECKED) return EXIT_OK;
    if ((what == LOAD_HEADER || what == LOAD_BYTES) && plumb_model_has_header(model)) return EXIT_OK;
    /* If the header is incomplete, plumb_model_load_vocab returns the error: it checks that first. */
    plumb_status status = what == LOAD_ALL ? plumb_model_end(model) : plumb_model_load_vocab(model);
    return status == PLUMB_OK ? EXIT_OK : report(files[n_file - 1], status, plumb_model_error(model));
}

int load_model(plumb_model **model_out, const char *const *files, size_t n_file, enum load what) {
    *model_out = NULL;
    plumb_model *model = plumb_model_create();
    if (!model) return print_error(exit_failed, "out of memory");
    struct loading loading = { .total = size_from(files, n_file, 0) };
    progress_begin(&loading.progress);
    int code = load_files(model, files, n_file, what, &loading);
    progress_end(&loading.progress);
    if (code == EXIT_OK) *model_out = model;
    else plumb_model_free(model);
    return code;
}

/* ---- prompts and token ids --------------------------------------------------------------------------------------- */

struct ids tokenize(plumb_model *model, const char *text, const uint8_t *marks, size_t len, unsigned flags) {
    struct ids ids = { NULL, 0 };
    int64_t n = plumb_tokenize_marked(model, text, marks, len, flags, NULL, 0);
    if (n >= 0) {
        ids.n = (size_t)n;
        ids.data = allocate(ids.n * sizeof *ids.data);
        plumb_tokenize_marked(model, text, marks, len, flags, ids.data, ids.n);
    } else {
        report("prompt", (plumb_status)n, plumb_model_error(model));
    }
    return ids;
}

struct ids parse_ids(const struct options *o, uint32_t n_vocab) {
    struct ids ids = { allocate((strlen(o->ids) / 2 + 1) * sizeof *ids.data), 0 };
    for (const char *at = o->ids;;) {
        size_t n_digit = strspn(at, "0123456789");
        unsigned long long id = strtoull(at, NULL, 10);   /* ULLONG_MAX if it is too large */
        if (n_digit == 0 || id >= n_vocab || (at[n_digit] != ',' && at[n_digit] != '\0')) {
            print_error(0, "%s: %s: at byte %td: expected token ids from 0 to %" PRIu32 ", separated by commas",
                     command_name(o->command), o->command == COMMAND_SCORE ? "--ids" : "--tokens", at - o->ids,
                     n_vocab - 1);
            free(ids.data);
            return (struct ids){ NULL, 0 };
        }
        ids.data[ids.n++] = (int32_t)id;
        if (at[n_digit] == '\0') return ids;
        at += n_digit + 1;
    }
}

/* Whether an option of run reads standard input, so that it is not a part of the prompt. */
static bool is_input_taken(const struct options *o) {
    const char *const paths[] = { o->grammar, o->json_schema, o->tools, o->template_file, o->chat_template,
                                  o->load_state };
    bool is_taken = o->interactive;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        is_taken = is_taken || (paths[i] && is_standard_input(paths[i]));
    }
    for (size_t i = 0; i < o->n_file; i++) is_taken = is_taken || is_standard_input(o->files[i]);
    for (size_t i = 0; i < o->n_adapter; i++) is_taken = is_taken || is_standard_input(o->adapters[i].path);
    return is_taken;
}

int read_prompt(struct prompt *prompt, const struct options *o) {
    const char *given = o->prompt && strcmp(o->prompt, "-") == 0 ? NULL : o->prompt, *input = o->input;
    const size_t n_given = given ? strlen(given) : 0;
    if (o->prompt && !given) input = "-";
    if (o->command == COMMAND_RUN && !input && !is_input_taken(o) && (given ? is_piped() : !is_typed())) {
        if (given) wait_for_input();
        input = "-";
    }
    *prompt = (struct prompt){ given, n_given, NULL };
    if (input) {
        int code;
        size_t n;
        char *text = read_file(input, &n, &code);
        if (!text) return code;
        if (n > 0 && text[n - 1] == '\n') text[--n] = '\0';
        if (n > 0 && given) {   /* the input, an empty line, the prompt */
            prompt->owned = allocate(n + n_given + 3);
            memcpy(prompt->owned, text, n);
            memcpy(prompt->owned + n, "\n\n", 2);
            memcpy(prompt->owned + n + 2, given, n_given + 1);
            *prompt = (struct prompt){ prompt->owned, n + 2 + n_given, prompt->owned };
            free(text);
        } else if (n > 0 || o->prompt || o->command != COMMAND_RUN) {
            if (given) free(text);
            else *prompt = (struct prompt){ text, n, text };
        } else free(text);
    }
    if (o->command != COMMAND_RUN || prompt->text) return EXIT_OK;
    const char *wrong = belongs_to_one(o);
    if (o->interactive || (is_terminal() && !wrong)) return EXIT_OK;
    return print_error(EXIT_USAGE, "run: a prompt is needed, as words after MODEL, with -p TEXT or through a pipe; see "
                       "plumb run --help");
}

/* Writes a JSON string with its quotes to out and returns where it ends; out has room for 6 * n + 2 bytes. */
static char *put_json(char *out, const char *text, size_t n) {
    static const char digits[] = "0123456789abcdef";
    *out++ = '"';
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < 0x20) {
            memcpy(out, "\\u00", 4);
            out[4] = digits[c >> 4];
            out[5] = digits[c & 15];
            out += 6;
            continue;
        }
        if (c == '"' || c == '\\') *out++ = '\\';
        *out++ = (char)c;
    }
    *out++ = '"';
    return out;
}

static char *put_word(char *out, const char *word) {
    size_t n = strlen(word);
    memcpy(out, word, n);
    return out + n;
}

/* Reports why a chat became no prompt.  file: whose fault it is. */
static struct ids no_prompt(const plumb_model *model, const struct options *o, const char *file, plumb_status status) {
    const char *advice = o->command == COMMAND_CHAT || o->interactive ? ""
                       : o->chat ? " (omit --chat to continue the prompt without a template)"
                       : " (use --raw to continue the prompt without a template)";
    char message[1024];
    snprintf(message, sizeof message, "%s%s", plumb_model_error(model), advice);
    report(file, status, message);
    return (struct ids){ NULL, 0 };
}

int use_chat_template(plumb_model *model, const struct options *o) {
    const char *given = o->template_file ? o->template_file : o->chat_template;
    if (!given) return EXIT_OK;
    const bool is_named = strcmp(given, "chatml") == 0, is_jinja = strstr(given, "{{") || strstr(given, "{%");
    const bool is_text = !o->template_file && (is_named || is_jinja);
    size_t n = strlen(given);
    int code;
    char *file = is_text ? NULL : read_file(given, &n, &code);
    if (!is_text && !file) return code;
    plumb_status status = plumb_chat_use_template(model, file ? file : given, n);
    free(file);
    return status == PLUMB_OK ? EXIT_OK : report(given, status, plumb_model_error(model));
}

struct ids chat_ids(plumb_model *model, const struct options *o, const struct message *messages, size_t n) {
    size_t n_tools = 0, n_text = 0;
    int code;
    char *tools = o->tools ? read_file(o->tools, &n_tools, &code) : NULL;
    if (o->tools && !tools) return (struct ids){ NULL, 0 };
    for (size_t i = 0; i < n; i++) n_text += 6 * messages[i].n + 64;
    char *json = allocate(n_text + 6 * n_tools + 200), *at = put_word(json, "{\"messages\":[");
    for (size_t i = 0; i < n; i++) {
        at = put_word(at, i > 0 ? ",{\"role\":\"" : "{\"role\":\"");
        at = put_word(put_word(at, messages[i].role), "\",\"content\":");
        at = put_word(put_json(at, messages[i].text, messages[i].n), "}");
    }
    at = put_word(at, "],\"add_generation_prompt\":true");
    if (tools) at = put_json(put_word(at, ",\"tools\":"), tools, n_tools);
    at = put_word(at, "}");
    struct ids ids = { NULL, 0 };
    const char *text;
    const uint8_t *marks;
    int64_t length = plumb_chat_render(model, json, (size_t)(at - json), &text, &marks);
    static bool is_told = false;
    if (length >= 0 && !is_told && !plumb_chat_has_template(model)) {
        is_told = true;
        const bool is_chat = o->command == COMMAND_CHAT || o->interactive;
        print_error(0, "%s: the file has no chat template: ChatML is used, as in llama.cpp%s", o->files[0], is_chat ? ""
                    : o->chat ? "; omit --chat to continue the prompt without a template"
                    : "; use --raw to continue the prompt without a template");
    }
    if (length < 0) {
        ids = no_prompt(model, o, tools && length == PLUMB_ERROR_ARGUMENT ? o->tools : o->files[0],
                        (plumb_status)length);
    } else {
        ids = tokenize(model, text, marks, (size_t)length, PLUMB_ADD_SPECIAL | PLUMB_PARSE_SPECIAL);
    }
    free(json);
    free(tools);
    return ids;
}

/* The prompt as the user's message, behind a system message if there is one. */
static struct ids question_ids(plumb_model *model, const struct options *o, const struct prompt *prompt) {
    const struct message messages[] = {
        { "system", o->system, o->system ? strlen(o->system) : 0 }, { "user", prompt->text, prompt->len },
    };
    return chat_ids(model, o, messages + !o->system, o->system ? 2 : 1);
}

int input_ids(struct ids *ids, plumb_model *model, const struct options *o, const struct prompt *prompt) {
    if (o->ids) {
        *ids = parse_ids(o, plumb_model_n_vocab(model));
        return ids->data ? EXIT_OK : EXIT_USAGE;
    }
    unsigned flags = PLUMB_ADD_SPECIAL | (o->parse_special ? PLUMB_PARSE_SPECIAL : 0u);
    plumb_model_info info = { 0 };
    plumb_model_get_info(model, &info);
    bool is_raw = o->raw || info.has_encoder;
    if (!is_raw && use_chat_template(model, o) != EXIT_OK) return exit_failed;
    *ids = is_raw ? tokenize(model, prompt->text, NULL, prompt->len, flags)
                  : question_ids(model, o, prompt);
    if (!ids->data) return exit_failed;
    return ids->n > 0 ? EXIT_OK : print_error(exit_failed, "%s: the prompt has no tokens", command_name(o->command));
}

char *token_piece(const plumb_model *model, int32_t id, size_t *n) {
    int64_t len = plumb_token_piece(model, id, true, NULL, 0);
    *n = len > 0 ? (size_t)len : 0;
    char *piece = allocate(*n);
    plumb_token_piece(model, id, true, piece, *n);
    return piece;
}

/* ---- sessions ---------------------------------------------------------------------------------------------------- */

/* Reads an adapter from its file.  Returns NULL after a message. */
static plumb_adapter *read_adapter(plumb_model *model, const char *path, bool is_control) {
    plumb_adapter *a;
    plumb_status status = plumb_adapter_create(&a, model, file_size(path));
    if (status != PLUMB_OK) {
        report(path, status, plumb_model_error(model));
        return NULL;
    }
    int fd = open(path, O_RDONLY);
    ssize_t n = fd < 0 ? -1 : 1;
    while (n > 0 && status == PLUMB_OK) {
        void *data;
        size_t len;
        status = plumb_adapter_window(a, &data, &len);
        if (status != PLUMB_OK || len == 0) break;
        n = read(fd, data, len);
        if (n > 0) status = plumb_adapter_commit(a, (size_t)n);
    }
    if (n < 0) report(path, PLUMB_ERROR_IO, strerror(errno));
    if (n >= 0 && status == PLUMB_OK) status = plumb_adapter_end(a);
    bool is_read = n >= 0 && status == PLUMB_OK, fits = is_read && plumb_adapter_is_control(a) == is_control;
    if (n >= 0 && status != PLUMB_OK) report(path, status, plumb_adapter_error(a));
    if (is_read && !fits) {
        print_error(0, "%s: it is a %s: use %s", path, is_control ? "LoRA" : "control vector",
                    is_control ? "--lora" : "--control-vector");
    }
    if (fd >= 0) close(fd);
    if (fits) return a;
    plumb_adapter_free(a);
    return NULL;
}

/* The adapters of the process, which no session outlives; they are read once. */
static plumb_adapter *adapters[MAX_ADAPTERS];

/* Returns false after a message. */
static bool use_adapters(plumb_session *session, plumb_model *model, const struct options *o) {
    plumb_adapter_use uses[MAX_ADAPTERS];
    for (size_t i = 0; i < o->n_adapter; i++) {
        const struct adapter_option *given = &o->adapters[i];
        if (!adapters[i]) adapters[i] = read_adapter(model, given->path, given->is_control);
        if (!adapters[i]) return false;
        uses[i] = (plumb_adapter_use) { adapters[i], given->scale, o->control_layers[0], o->control_layers[1] };
    }
    plumb_status status = plumb_session_set_adapters(session, uses, o->n_adapter);
    if (status != PLUMB_OK) report(o->files[0], status, plumb_session_error(session));
    return status == PLUMB_OK;
}

plumb_session *create_session(plumb_model *model, const struct options *o) {
    plumb_session *session;
    plumb_status status = plumb_session_create(&session, model, &(plumb_session_params){
        .n_ctx = o->n_ctx, .n_batch = o->n_batch, .pass = o->reference ? PLUMB_PASS_REFERENCE : PLUMB_PASS_FAST,
        .force_scalar = o->scalar, .n_thread = o->n_thread, .precision = o->precision,
        .kv_type = o->kv_type, .n_snapshot = o->n_snapshot,
    });
    if (status != PLUMB_OK) {
        report(o->files[0], status, plumb_model_error(model));
        return NULL;
    }
    static bool is_told = false;   /* a command may have two sessions */
    plumb_model_info info;
    plumb_model_get_info(model, &info);
    uint32_t n_ctx = plumb_session_n_ctx(session), n_default = plumb_model_default_ctx(model, o->kv_type);
    if (plumb_session_exceeds_training(session) && !is_told) {
        print_error(0, "a context of %" PRIu32 " tokens, but the model was trained for %" PRIu32 ": answers get worse "
                    "beyond that", n_ctx, info.n_ctx_train);
        is_told = true;
    }
    if (o->n_ctx == 0 && n_ctx < n_default) {
        print_error(0, "a context of %" PRIu32 " tokens: there is no memory for %" PRIu32, n_ctx, n_default);
    }
    status = plumb_session_set_shift(session, o->n_keep);
    if (status != PLUMB_OK) report("--shift", status, plumb_session_error(session));
    if (status == PLUMB_OK && use_adapters(session, model, o)) return session;
    plumb_session_free(session);
    return NULL;
}

int encode(const plumb_model *model, plumb_session *session, const int32_t *ids, size_t n) {
    plumb_model_info info;
    plumb_status status = plumb_model_get_info(model, &info);
    if (status == PLUMB_OK && info.has_encoder) status = plumb_session_encode(session, ids, n);
    return status == PLUMB_OK ? EXIT_OK : report("prompt", status, plumb_session_error(session));
}

int feed_prompt(const plumb_model *model, plumb_session *session, const int32_t *ids, size_t n) {
    plumb_model_info info = { 0 };
    plumb_model_get_info(model, &info);
    if (!info.has_encoder) return feed(session, ids, n);
    if (info.decoder_start < 0) {
        return print_error(exit_failed, "the file does not say with which token the decoder's text begins "
                           "(decoder_start_token_id)");
    }
    int code = encode(model, session, ids, n);
    plumb_session_reuse(session, &info.decoder_start, 1);   /* the same text as before keeps the decoder's tokens */
    return code == EXIT_OK ? feed(session, &info.decoder_start, 1) : code;
}

int feed(plumb_session *session, const int32_t *ids, size_t n) {
    bool fits = plumb_session_n_past(session) + (uint64_t)n <= plumb_session_n_ctx(session);
    if (!fits && plumb_session_n_keep(session) == 0) {
        return report("prompt", plumb_session_feed(session, ids, n), plumb_session_error(session));
    }
    for (size_t at = 0, step; at < n; at += step) {
        step = n - at < plumb_session_n_batch(session) ? n - at : plumb_session_n_batch(session);
        plumb_status status = plumb_session_feed(session, ids + at, step);
        if (status != PLUMB_OK) return report("prompt", status, plumb_session_error(session));
        if (interrupted()) return EXIT_INTERRUPTED;
    }
    return EXIT_OK;
}
