/* plumb chat: a conversation in the terminal.  Without a terminal, it answers each line of standard input.
 *
 * Each answer is made for the whole conversation, which the chat template formats; what the session holds of that is
 * not computed again.  An answer stays in the conversation as it was printed.  `plumb chat` of the package has more
 * commands, and separates what a model thinks from what it says. */
#include "cli/cli.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct chat {
    struct answering answering;
    struct message *messages;   /* their texts belong to the chat */
    size_t n, cap, n_trimmed;   /* n_trimmed: how many after the system message are left out, as they do not fit */
    bool is_terminal;
};

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static void add_message(struct chat *c, const char *role, const char *text, size_t n) {
    if (c->n == c->cap) {
        struct message *larger = allocate((c->cap = 2 * c->cap + 8) * sizeof *larger);
        if (c->n > 0) memcpy(larger, c->messages, c->n * sizeof *larger);
        free(c->messages);
        c->messages = larger;
    }
    char *copy = allocate(n + 1);
    if (n > 0) memcpy(copy, text, n);
    copy[n] = '\0';
    c->messages[c->n++] = (struct message){ role, copy, n };
}

/* Forgets the messages from index n on. */
static void forget(struct chat *c, size_t n) {
    while (c->n > n) free((char *)c->messages[--c->n].text);
    c->n_trimmed = 0;
}

static size_t n_head(const struct chat *c) { return c->n > 0 && strcmp(c->messages[0].role, "system") == 0; }

/* The tokens of the messages, without those that are left out. */
static struct ids ids_of(const struct chat *c) {
    const struct options *o = c->answering.options;
    const size_t head = n_head(c), n = c->n - c->n_trimmed;
    struct message *kept = allocate(n * sizeof *kept);
    if (head) kept[0] = c->messages[0];
    memcpy(kept + head, c->messages + head + c->n_trimmed, (n - head) * sizeof *kept);
    struct ids ids = chat_ids(c->answering.model, o, kept, n);
    free(kept);
    return ids;
}

/* The same; leaves out the oldest turns until the prompt and an answer fit, as web/api/chat.js does: a turn is a user's
 * message with all up to the next one, and an answer needs -n tokens, or a quarter of the context if that is less. */
static struct ids ids_that_fit(struct chat *c) {
    const struct options *o = c->answering.options;
    const uint32_t n_ctx = plumb_session_n_ctx(c->answering.session), quarter = n_ctx / 4;
    const size_t limit = n_ctx - (o->n_predict > 0 && o->n_predict < quarter ? o->n_predict : quarter);
    for (;;) {
        struct ids ids = ids_of(c);
        if (!ids.data || ids.n <= limit || o->n_keep > 0) return ids;
        size_t next = n_head(c) + c->n_trimmed + 1;
        while (next < c->n && strcmp(c->messages[next].role, "user") != 0) next++;
        if (next >= c->n) return ids;
        c->n_trimmed = next - n_head(c);
        free(ids.data);
    }
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

/* Answers the messages.  If that fails, the question is forgotten. */
static int answer(struct chat *c) {
    struct answering *a = &c->answering;
    const struct options *o = a->options;
    const size_t n_trimmed = c->n_trimmed;
    struct ids ids = ids_that_fit(c);
    a->reason = NULL;
    int code = ids.data ? answering_answer(a, &ids, o->n_predict > 0 ? o->n_predict : UINT32_MAX) : exit_failed;
    free(ids.data);
    const bool is_kept = a->reason && (a->text.n > 0 || code == EXIT_OK);
    if (is_kept) add_message(c, "assistant", a->text.data, a->text.n);
    else forget(c, c->n - 1);
    if (code != EXIT_OK && code != EXIT_INTERRUPTED) {
        if (o->json) out_json_error(false);
        return code;
    }
    if (!a->reason) return code;
    if (o->json) print_answer(a, false);
    else out("\n");
    if (c->is_terminal) {
        const char *why = code == EXIT_INTERRUPTED ? ", stopped"
                        : strcmp(a->reason, "length") == 0 ? ", cut off at the limit" : "";
        out("(%" PRIu32 " tokens, %.1f tokens/s%s", a->n_token,
            a->decode_seconds > 0 ? a->n_step / a->decode_seconds : 0, why);
        if (c->n_trimmed != n_trimmed) {
            out("; the oldest %zu messages no longer fit and are left out", c->n_trimmed);
        }
        out(")\n\n");
    }
    out_flush();
    return code;
}

static int ask(struct chat *c, const char *text, size_t n) {
    add_message(c, "user", text, n);
    return answer(c);
}

/* ---- input ------------------------------------------------------------------------------------------------------- */

/* Reads a line without its end.  Returns false at the end of the input. */
static bool read_line(struct buffer *line) {
    int c = EOF;
    line->n = 0;
    while ((c = getchar()) != EOF && c != '\n') buffer_add(line, &(char){ (char)c }, 1);
    return c != EOF || line->n > 0;
}

static bool is_quote(const char *at) { return memcmp(at, "\"\"\"", 3) == 0; }

/* Reads a message: a line, lines that end with a backslash and the next one, or lines between quotes. */
static bool read_message(struct chat *c, struct buffer *message) {
    struct buffer line = { NULL, 0, 0 };
    bool is_quoted = false, has_more = true;
    message->n = 0;
    for (size_t n_line = 0; has_more; n_line++) {
        if (c->is_terminal) out("%s", n_line == 0 ? "> " : "... ");
        out_flush();
        if (!read_line(&line)) {
            has_more = false;
            if (n_line == 0 || interrupted()) message->n = SIZE_MAX;
            break;
        }
        size_t from = 0;
        if (n_line == 0 && line.n >= 3 && is_quote(line.data)) {
            is_quoted = true;
            from = 3;
        }
        if (is_quoted) {
            has_more = line.n < from + 3 || !is_quote(line.data + line.n - 3);
            if (!has_more) line.n -= 3;
        } else {
            has_more = line.n > 0 && line.data[line.n - 1] == '\\';
            if (has_more) line.n--;
        }
        if (n_line > 0 && !(is_quoted && message->n == 0 && n_line == 1)) buffer_add(message, "\n", 1);
        if (line.n > from) buffer_add(message, line.data + from, line.n - from);
    }
    free(line.data);
    if (message->n == SIZE_MAX) {
        message->n = 0;
        return false;
    }
    if (is_quoted && message->n > 0 && message->data[message->n - 1] == '\n') message->n--;
    return true;
}

static bool is_blank(const struct buffer *text) {
    for (size_t i = 0; i < text->n; i++) {
        if (!strchr(" \t\r\n", text->data[i])) return false;
    }
    return true;
}

static const char HELP[] =
    "  /again            answers the last question again\n"
    "  /new              starts a new chat with the same system message\n"
    "  /system [TEXT]    shows the system message, or starts a new chat with TEXT\n"
    "  /exit             exits, as Ctrl-D does\n"
    "For a message of several lines, end each line but the last with a backslash, or\n"
    "put \"\"\" before and after the message. To send a message that starts with a\n"
    "slash, type // instead. Ctrl-C stops an answer.\n";

/* Whether a message is a command of this name; *rest: what follows it. */
static bool is_command(const char *message, const char *name, const char **rest) {
    const size_t n = strlen(name);
    if (strncmp(message, name, n) != 0 || (message[n] && message[n] != ' ')) return false;
    *rest = message + n + strspn(message + n, " ");
    return true;
}

static void again(struct chat *c) {
    size_t n = c->n;
    while (n > 0 && strcmp(c->messages[n - 1].role, "user") != 0) n--;
    if (n == 0) {
        print_error(0, "there is no question yet");
        return;
    }
    forget(c, n);
    answer(c);
}

static void begin_with(struct chat *c, const char *system) {
    char *text = allocate(strlen(system) + 1);   /* it may be that of a message */
    memcpy(text, system, strlen(system) + 1);
    forget(c, 0);
    add_message(c, "system", text, strlen(text));
    free(text);
}

/* Obeys a command.  Returns whether the chat goes on. */
static bool obey(struct chat *c, const char *command) {
    const char *rest = "";
    if (is_command(command, "/exit", &rest) || is_command(command, "/bye", &rest)) return false;
    if (is_command(command, "/help", &rest) || is_command(command, "/?", &rest)) out("%s", HELP);
    else if (is_command(command, "/again", &rest)) again(c);
    else if (is_command(command, "/new", &rest) || is_command(command, "/clear", &rest)) {
        forget(c, n_head(c));
        out("(started a new chat)\n");
    } else if (is_command(command, "/system", &rest)) {
        if (*rest) begin_with(c, rest);
        out("(system: ");
        out_text(n_head(c) ? c->messages[0].text : "none");
        out("%s)\n", *rest ? "; started a new chat" : "");
    } else {
        print_error(0, "%.*s is not a command; /help lists the commands, and // starts a message with a slash",
                    (int)strcspn(command, " "), command);
    }
    return true;
}

/* ---- the chat ---------------------------------------------------------------------------------------------------- */

/* Reads and answers messages until the input ends. */
static int converse(struct chat *c) {
    struct buffer message = { NULL, 0, 0 };
    int code = EXIT_OK;
    bool goes_on = true;
    while (goes_on && !out_failed() && read_message(c, &message)) {
        if (is_blank(&message)) continue;
        buffer_add(&message, "", 1);   /* ends the text with a 0 */
        message.n--;
        const bool is_slash = c->is_terminal && message.data[0] == '/', is_escaped = is_slash && message.data[1] == '/';
        if (is_slash && !is_escaped) {
            goes_on = obey(c, message.data);
        } else {
            int answered = ask(c, message.data + is_escaped, message.n - is_escaped);
            if (answered == EXIT_INTERRUPTED && !c->is_terminal) break;
            if (answered != EXIT_OK && answered != EXIT_INTERRUPTED && !c->is_terminal) code = answered;
        }
        if (c->is_terminal) forget_interrupt();
    }
    free(message.data);
    if (c->is_terminal && goes_on) out("\n");
    return interrupted() ? EXIT_INTERRUPTED : code;
}

static int chat_on(struct chat *c, const struct prompt *prompt) {
    const struct options *o = c->answering.options;
    if (o->system) add_message(c, "system", o->system, strlen(o->system));
    if (c->is_terminal) {
        const char *name = strrchr(o->files[0], '/');
        const plumb_session *session = c->answering.session;
        const uint32_t n_thread = plumb_session_n_thread(session);
        out_text(name ? name + 1 : o->files[0]);
        out(", %" PRIu32 " thread%s, context %" PRIu32 "\n/help lists the commands, Ctrl-D exits\n\n", n_thread,
            n_thread == 1 ? "" : "s", plumb_session_n_ctx(session));
    }
    int code = prompt->text ? ask(c, prompt->text, prompt->len) : EXIT_OK;
    if (code == EXIT_INTERRUPTED && c->is_terminal) forget_interrupt();
    if (interrupted()) return code;
    const int rest = converse(c);
    return rest != EXIT_OK || c->is_terminal ? rest : code;
}

int chat_from(const struct options *o, const struct prompt *prompt) {
    double start = now();
    plumb_model *model;
    struct chat c = { .is_terminal = is_terminal() && !o->json };
    int code = load_model(&model, o->files, o->n_file, LOAD_ALL);
    if (code == EXIT_OK) code = use_chat_template(model, o);
    if (code == EXIT_OK) {
        code = answering_begin(&c.answering, o, model, now() - start);
        if (code == EXIT_OK) code = chat_on(&c, prompt);
        answering_end(&c.answering);
    }
    forget(&c, 0);
    free(c.messages);
    plumb_model_free(model);
    return code;
}

int run_chat(const struct options *o) {
    return out_close(chat_from(o, &(struct prompt){ NULL, 0, NULL }));
}
