/* Chat templates.  The ground truth is jinja2 (tests/vectors/jinja2, chat.txt) and llama.cpp (vectors/templates). */
#include "fixture.h"
#include "plumb.h"
#include "template/builtins.h"
#include "template/template.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define FOLDER "tests/vectors/templates/"
enum { NOW = 1784980800 };   /* 25 July 2026, 12:00 UTC */

/* Renders a template of n bytes; returns the status.  The text is to be freed. */
static plumb_status render(const char *source, size_t n, const char *json, bool is_chat, struct template_limits limits,
                           char **text, size_t *n_text, struct error *err) {
    struct chat_template t = {.source = {source, n, 0}, .bos = text_of(is_chat ? "<s>" : ""),
                              .eos = text_of(is_chat ? "</s>" : ""), .now = NOW};
    return template_render(&t, json, strlen(json), is_chat, limits, text, n_text, err);
}

/* The next line without its end; NULL at the end of the text. */
static char *next_line(char **rest) {
    char *line = *rest, *end = line ? strchr(line, '\n') : NULL;
    if (end) *end = 0;
    *rest = end && end[1] != 0 ? end + 1 : NULL;
    return line;
}

/* Splits a line at its tabs into n fields. */
static bool split_line(char *line, char *fields[], size_t n) {
    for (size_t i = 0; i < n; i++) {
        fields[i] = line;
        line = strchr(line, '\t');
        if ((line == NULL) != (i + 1 == n)) return false;
        if (line) *line++ = 0;
    }
    return true;
}

/* ---- 70 templates by 12 conversations ---------------------------------------------------------------------------- */

enum { MAX_CONTEXTS = 1000, N_CONVERSATIONS = 12 };

/* The lines of a JSON file that begin an element; each element ends where the next one begins, without its comma. */
static size_t elements(char *json, const char *begins, char *list[], size_t cap) {
    size_t n = 0;
    for (char *rest = json, *at; n < cap && (at = strstr(rest, begins)) != NULL; rest = at + 1) list[n++] = at + 1;
    for (size_t i = 0; i < n; i++) {
        char *end = i + 1 < n ? list[i + 1] - 1 : list[i] + strlen(list[i]);
        while (end > list[i] && (end[-1] == ',' || end[-1] == '\n' || end[-1] == ' ' || end[-1] == ']')) end--;
        *end = 0;
    }
    return n;
}

/* Compares a text with what a row of expected.tsv says: LENGTH:HASH, or a message in quotes. */
static bool is_expected(plumb_status status, const char *text, size_t n, const char *expected) {
    if (status != PLUMB_OK) return status == PLUMB_ERROR_TEMPLATE && expected[0] == '"';
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) hash = (hash ^ (uint8_t)text[i]) * 0x100000001b3u;
    char ours[64];
    snprintf(ours, sizeof ours, "%zu:%016llx", n, (unsigned long long)hash);
    return strcmp(ours, expected) == 0;
}

/* A conversation with what llama.cpp's server sets, and with the members of "variables" as its own. */
static char *as_variables(const char *conversation) {
    char *json = malloc(strlen(conversation) + 96);
    const char *variables = strstr(conversation, "\"variables\": {"), *end = variables ? strchr(variables, '}') : NULL;
    if (!json) return NULL;
    strcpy(json, "{\"add_generation_prompt\":true,\"enable_thinking\":true,");
    if (variables) strncat(json, variables + 14, (size_t)(end - variables) - 14);
    if (variables) strcat(json, ",");
    return strcat(json, conversation + 1);
}

/* jinja2.json: what jinja2 makes of the variables where llama.cpp makes something else (docs/templates.md). */
struct by_jinja2 { struct error err; struct render r; struct value all; char *file; };

static void open_jinja2(struct by_jinja2 *j) {
    size_t n = 0;
    *j = (struct by_jinja2){.r = {.err = &j->err, .max_bytes = 1u << 28, .max_work = 1u << 28}};
    j->file = test_read_all(FOLDER "jinja2.json", &n);
    j->all = value_from_json(&j->r, "jinja2.json", j->file ? j->file : "", n);
    CHECK(j->all.kind == OBJECT && j->all.as.object->n == 6, "jinja2.json: %s", j->err.message);
}

static void close_jinja2(struct by_jinja2 *j) {
    render_free(&j->r);
    free(j->file);
}

static const struct value *member(struct render *r, const struct value *v, const char *name) {
    return v && v->kind == OBJECT ? object_find(r, v->as.object, value_string(text_of(name))) : NULL;
}

/* Replaces each old by another text, which is not longer, in place; returns the new length. */
static size_t replace_all(char *text, size_t n, const char *old, const char *by) {
    size_t n_old = strlen(old), n_by = strlen(by);
    for (char *at = text; (at = strstr(at, old)) != NULL; at += n_by) {
        memcpy(at, by, n_by);
        memmove(at + n_by, at + n_old, n - (size_t)(at - text) - n_old + 1);
        n -= n_old - n_by;
    }
    return n;
}

/* Whether a text differs from llama.cpp's only because Python prints something else: none is nothing in llama.cpp, and
 * not defined for the filter default; 1.0 is 1 in its JSON, and a string in a list has its newlines. */
static bool is_printed_otherwise(const char *printed, size_t n, const char *expected) {
    char *text = printed ? malloc(n + 100) : NULL;
    if (!text) return false;
    memcpy(text, printed, n + 1);
    char *at = strstr(text, "response:{");   /* Gemma 4: the name of a result of which nothing is known */
    if (at) memmove(at + 16, at + 9, n - (size_t)(at - text) - 8), memcpy(at + 9, "unknown", 7), n += 7;
    n = replace_all(text, n, "None", "");
    n = replace_all(text, n, "1.0", "1");
    n = replace_all(text, n, "\\n'", "\n'");
    bool is_equal = is_expected(PLUMB_OK, text, n, expected);
    free(text);
    return is_equal;
}

/* Renders a conversation, or the variables of a template, and compares the text with what llama.cpp made of it, or, if
 * jinja2.json has one, with jinja2's.  jinja2: NULL for the families of models. */
static bool check_row(const char *name, const char *conversation, const char *json, bool is_chat,
                      struct by_jinja2 *jinja2, const char *expected) {
    char path[200], *text;
    snprintf(path, sizeof path, FOLDER "sources/%s.jinja", name);
    size_t n_source = 0, n_text;
    char *source = test_read_all(path, &n_source), *own = is_chat ? as_variables(json) : NULL;
    struct error err = {PLUMB_OK, ""};
    if (!source || (is_chat && !own)) return CHECK(false, "%s cannot be tested", name);
    plumb_status status = render(source, n_source, is_chat ? own : json, is_chat, TEMPLATE_LIMITS, &text, &n_text,
                                 &err);
    bool is_equal = is_expected(status, text, n_text, expected);
    const struct value *texts = jinja2 ? member(&jinja2->r, &jinja2->all, name) : NULL;
    const struct value *other = texts ? member(&jinja2->r, texts, conversation) : NULL;
    /* The template leaves out earlier calls; plumb writes them as the model did. */
    bool has_more = is_chat && strcmp(name, "ibm-granite-granite-3.3-2B-Instruct") == 0 && !is_equal && text
                    && strstr(text, "<|tool_call|>[{\"name\":");
    bool is_right = has_more || !other ? is_equal || has_more : !is_equal && status == PLUMB_OK
                    && text_is(other->as.text, (struct text){text, n_text, 0});
    CHECK(is_right || (!jinja2 && is_printed_otherwise(text, n_text, expected)),
          "%s, %s: expected %s, got %zu bytes, %s:\n%s",
                          name, conversation, expected, n_text, err.message, text ? text : "");
    free(source);
    free(own);
    free(text);
    return is_equal;
}

/* The notes of this test are the C results of docs/templates.md (tools/templates_page.mjs). */
static void equals_llama(bool is_chat) {
    size_t n, n_row = 0, n_equal = 0;
    char *expected = test_read_all(FOLDER "expected.tsv", &n), *rest = expected, *list[MAX_CONTEXTS];
    char *json = test_read_all(is_chat ? FOLDER "conversations.json" : FOLDER "contexts.json", &n);
    size_t n_context = json ? elements(json, is_chat ? "\n {\"name\"" : "\n{", list, MAX_CONTEXTS) : 0;
    struct by_jinja2 jinja2;
    open_jinja2(&jinja2);
    if (is_chat) {
        for (size_t i = 0; i < n_context; i++) list[i]++;   /* the space before an element */
        CHECK(n_context == N_CONVERSATIONS, "%zu conversations", n_context);
    }
    for (char *line, *fields[5] = {NULL}; expected && n_context > 0 && (line = next_line(&rest)) != NULL;) {
        REQUIRE(split_line(line, fields, 5), "expected.tsv: %s", line);
        size_t at = is_chat ? n_row % N_CONVERSATIONS : (size_t)atoi(fields[2]);
        n_row++;
        REQUIRE(at < n_context, "%s, %s", fields[0], fields[1]);
        const char *wanted = is_chat && strcmp(fields[4], "=") != 0 ? fields[4] : fields[3];
        n_equal += check_row(fields[0], fields[1], list[at], is_chat, &jinja2, wanted);
        if (n_row % N_CONVERSATIONS == 0) {
            test_note("%s: %zu %s", fields[0], n_equal, is_chat ? "prompts" : "texts");
            n_equal = 0;
        }
    }
    CHECK(n_row == 840, "%zu rows", n_row);
    close_jinja2(&jinja2);
    free(json);
    free(expected);
}

static void equals_engine(void) { equals_llama(false); }
static void equals_server(void) { equals_llama(true); }

/* Chats for which llama.cpp's server makes changes of a family of models. */
static void adapts_families(void) {
    size_t n, n_row = 0;
    char *expected = test_read_all(FOLDER "families.tsv", &n), *rest = expected, *list[5];
    char *json = test_read_all(FOLDER "families.json", &n);
    REQUIRE(expected && json && elements(json, "\n {\"name\"", list, 5) == 5, "no vectors");
    for (char *line, *fields[3] = {NULL}; (line = next_line(&rest)) != NULL; n_row++) {
        REQUIRE(split_line(line, fields, 3), "families.tsv: %s", line);
        check_row(fields[0], fields[1], list[n_row % 5] + 1, true, NULL, fields[2]);
    }
    CHECK(n_row == 50, "%zu rows", n_row);
    free(json);
    free(expected);
}

/* Texts that end an answer, besides tokens. */
static void stops_equal_llama(void) {
    size_t n, n_template = 0, n_stop = 0;
    char *about = test_read_all(FOLDER "templates.json", &n), *rest = about;
    for (char *line; about && (line = next_line(&rest)) != NULL;) {
        char name[128], path[200], stop[64] = "";
        const char *stops = strstr(line, "\"stops\":[");
        if (!stops || sscanf(line, " \"%127[^\"]\"", name) != 1) continue;
        sscanf(stops, "\"stops\":[\"%63[^\"]\"]", stop);
        snprintf(path, sizeof path, FOLDER "sources/%s.jinja", name);
        char *source = test_read_all(path, &n);
        const char *own = source ? chat_stop((struct text){source, n, 0}) : NULL;
        CHECK(source && strcmp(own ? own : "", stop) == 0, "%s: %s, llama.cpp has \"%s\"", name, own ? own : "none",
              stop);
        n_template++;
        n_stop += own != NULL;
        free(source);
    }
    CHECK(n_template == 70 && n_stop >= 3, "%zu templates, %zu stops", n_template, n_stop);
    free(about);
}

/* ---- chats of 30 templates --------------------------------------------------------------------------------------- */

/* Decodes \xNN in place; returns the length. */
static size_t unescape(char *s) {
    char *out = s;
    for (char *at = s; *at; out++) {
        if (at[0] == '\\' && at[1] == 'x') {
            char digits[3] = {at[2], at[3], 0};
            *out = (char)strtol(digits, NULL, 16);
            at += 4;
        } else {
            *out = *at++;
        }
    }
    *out = 0;
    return (size_t)(out - s);
}

/* Appends one message to the JSON of a chat. */
static void add_message(char *json, size_t cap, const char *role, const char *content) {
    size_t n = strlen(json);
    n += (size_t)snprintf(json + n, cap - n, "%s{\"role\":\"%s\",\"content\":\"", json[n - 1] == '[' ? "" : ",", role);
    for (; *content && n + 8 < cap; content++) {
        bool is_plain = (uint8_t)*content >= 0x20 && *content != '"' && *content != '\\';
        n += (size_t)snprintf(json + n, cap - n, is_plain ? "%c" : "\\u%04x", *content);
    }
    snprintf(json + n, cap - n, "\"}");
}

static void equals_jinja2(void) {
    static char json[1 << 16], all[(1 << 16) + 64];
    size_t n, n_case = 0, n_template = 0;
    char *file = test_read_all("tests/vectors/tokenizer/chat.txt", &n), *rest = file, *text;
    const char *name = "", *source = "";
    bool is_new = true;
    for (char *line; (line = next_line(&rest)) != NULL;) {
        char *tab = strchr(line, '\t');
        struct error err = {PLUMB_OK, ""};
        if (line[0] == 'T' || line[0] == 'U') {
            *tab = 0;
            name = line + 2;
            source = tab + 1;
            n = unescape(tab + 1);
            n_template++;
        } else if (line[0] == 'M') {
            if (is_new) strcpy(json, "{\"messages\":[");
            is_new = false;
            *tab = 0;
            unescape(tab + 1);
            add_message(json, sizeof json, line + 2, tab + 1);
        } else {
            size_t n_text, n_expected = unescape(line + 2);
            is_new = true;
            n_case++;
            snprintf(all, sizeof all, "%s]%s}", json, line[0] == 'A' ? ",\"add_generation_prompt\":true" : "");
            /* jinja2 had no strftime_now, and the one template that asks for it has this date instead. */
            struct chat_template t = {.source = {source, n, 0}, .bos = text_of("<s>"), .eos = text_of("</s>"),
                                      .now = 1721995200};
            plumb_status status = template_render(&t, all, strlen(all), false, TEMPLATE_LIMITS, &text, &n_text, &err);
            size_t n_bos = n_text >= 3 && memcmp(text, "<s>", 3) == 0 ? 3 : 0;   /* the file has no BOS */
            CHECK(status == PLUMB_OK && n_text - n_bos == n_expected
                  && memcmp(text + n_bos, line + 2, n_expected) == 0, "%s: %s\n%s\nexpected\n%s", name, err.message,
                  text ? text : "", line + 2);
            free(text);
        }
    }
    free(file);
    CHECK(n_case > 150 && n_template == 30, "%zu cases of %zu templates", n_case, n_template);
}

/* ---- jinja2 ------------------------------------------------------------------------------------------------------ */

#define JINJA2 "tests/vectors/jinja2/"

/* Whether a rendering is what a row says: the text, or ! and the message of an exception. */
static bool is_made(plumb_status status, const char *text, size_t n_text, const struct error *err, const char *expected,
                    size_t n) {
    if (expected[0] == '!') return status == PLUMB_ERROR_TEMPLATE && strstr(err->message, expected + 1);
    return status == PLUMB_OK && n_text == n && memcmp(text, expected, n) == 0;
}

/* The elements of conversations.json as the variables of templates: what is behind "variables": on each line. */
static size_t conversations(char *json, char *list[], size_t cap) {
    size_t n = elements(json, "\n {\"name\"", list, cap);
    for (size_t i = 0; i < n; i++) {
        list[i] = strstr(list[i], "\"variables\": ") + strlen("\"variables\": ");
        char *end = strrchr(list[i], '}');
        *end = 0;   /* of the element */
    }
    return n;
}

/* Templates that llama.cpp does not have, made of ways in which people's templates do things. */
static void equals_jinja2_cases(void) {
    size_t n, n_template = 0, n_row = 0, n_source = 0;
    char *file = test_read_all(JINJA2 "cases.tsv", &n), *rest = file, *source = NULL, *list[8];
    char *json = test_read_all(JINJA2 "conversations.json", &n);
    size_t n_conversation = json ? conversations(json, list, 8) : 0, i = 0;
    REQUIRE(file && n_conversation == 5, "no vectors");
    for (char *line; (line = next_line(&rest)) != NULL;) {
        if (line[0] == 'T' && line[1] == '\t') {
            source = line + 2;
            n_source = unescape(source);
            n_template++;
            i = 0;
            continue;
        }
        REQUIRE(source && i < n_conversation, "cases.tsv: %s", line);
        struct error err = {PLUMB_OK, ""};
        char *text;
        size_t n_text, n_expected = unescape(line);
        plumb_status status = render(source, n_source, list[i++], false, TEMPLATE_LIMITS, &text, &n_text, &err);
        CHECK(is_made(status, text, n_text, &err, line, n_expected), "%s\nconversation %zu: %s%s\nexpected\n%s", source,
              i - 1, text ? text : "", err.message, line);
        n_row++;
        free(text);
    }
    CHECK(n_template == 160 && n_row == 800, "%zu templates, %zu rows", n_template, n_row);
    free(file);
    free(json);
}

/* Conversations of 401 messages.  Many templates search all messages for each message. */
static void renders_long(void) {
    size_t n, n_row = 0, n_equal = 0;
    char *json = test_read_all(JINJA2 "long.json", &n), *rest_json = json, *list[2] = {NULL, NULL};
    char *file = test_read_all(JINJA2 "long.tsv", &n), *rest = file;
    for (size_t i = 0; i < 2 && rest_json; i++) list[i] = next_line(&rest_json);
    REQUIRE(file && list[0] && list[1], "no vectors");
    for (char *line, *fields[3] = {NULL}; (line = next_line(&rest)) != NULL; n_row++) {
        char path[200], *text;
        size_t n_source, n_text;
        struct error err = {PLUMB_OK, ""};
        REQUIRE(split_line(line, fields, 3), "long.tsv: %s", line);
        snprintf(path, sizeof path, FOLDER "sources/%.100s.jinja", fields[0]);
        char *source = test_read_all(path, &n_source);
        REQUIRE(source, "%s", path);
        plumb_status status = render(source, n_source, list[fields[1][0] - '0'], false, TEMPLATE_LIMITS, &text, &n_text,
                                     &err);
        /* jinja2 refuses some templates that llama.cpp renders, and escapes in one what is joined to a safe text. */
        bool is_equal = is_expected(status, text, n_text, fields[2]), is_raised = fields[2][0] == '!' && fields[2][1];
        bool is_other = strcmp(fields[2], "!") == 0 || (strcmp(fields[0], "meetkai-functionary-medium-v3.1") == 0
                                                       && fields[1][0] == '1');
        CHECK(is_equal || (is_other && status == PLUMB_OK) || (is_raised && strstr(err.message, fields[2] + 1)),
              "%s, %s: %s, expected %s", fields[0], fields[1], err.message, fields[2]);
        n_equal += is_equal;
        free(source);
        free(text);
    }
    CHECK(n_row == 140 && n_equal > 130, "%zu rows, %zu of them equal", n_row, n_equal);
    free(file);
    free(json);
}

/* The 70 templates and 34 others, of models that people train, with 12 conversations each. */
static void equals_jinja2_published(void) {
    size_t n, n_row = 0, n_equal = 0, n_raised = 0, n_lenient = 0;
    char *json = test_read_all(JINJA2 "published.json", &n), *rest_json = json, *list[N_CONVERSATIONS] = {NULL};
    char *file = test_read_all(JINJA2 "published.tsv", &n), *rest = file;
    for (size_t i = 0; i < N_CONVERSATIONS && rest_json; i++) list[i] = next_line(&rest_json);
    REQUIRE(file && list[N_CONVERSATIONS - 1], "no vectors");
    for (char *line, *fields[3] = {NULL}; (line = next_line(&rest)) != NULL; n_row++) {
        char path[200], *text;
        size_t n_source, n_text;
        struct error err = {PLUMB_OK, ""};
        REQUIRE(split_line(line, fields, 3), "published.tsv: %s", line);
        snprintf(path, sizeof path, "tests/vectors/%.150s.jinja", fields[0]);
        char *source = test_read_all(path, &n_source);
        REQUIRE(source, "%s", path);
        plumb_status status = render(source, n_source, list[atoi(fields[1])], false, TEMPLATE_LIMITS, &text, &n_text,
                                     &err);
        bool is_equal = is_expected(status, text, n_text, fields[2]), is_refused = strcmp(fields[2], "!") == 0;
        bool is_raised = fields[2][0] == '!' && !is_refused && status != PLUMB_OK && strstr(err.message, fields[2] + 1);
        /* jinja2 escapes for HTML what is joined to a safe text. */
        bool is_safe = strcmp(fields[0], "templates/sources/meetkai-functionary-medium-v3.1") == 0 && !is_equal;
        CHECK(is_equal || is_raised || is_refused || is_safe, "%s, %s: %s, expected %s\n%s", fields[0], fields[1],
              err.message, fields[2], text ? text : "");
        n_equal += is_equal;
        n_raised += is_raised;
        n_lenient += is_refused && status == PLUMB_OK;
        free(source);
        free(text);
    }
    test_note("%zu of %zu texts equal, %zu refused with the same words, %zu that only jinja2 refuses", n_equal, n_row,
              n_raised, n_lenient);
    CHECK(n_row == (70 + 34) * N_CONVERSATIONS && n_equal >= 1089, "%zu rows, %zu equal", n_row, n_equal);
    free(file);
    free(json);
}

/* What llama.cpp makes of a template of language.tsv, as it is written there, or NULL. */
static const char *made_by_llama(const char *rows, const char *source) {
    size_t n = strlen(source);
    for (const char *at = rows; (at = strstr(at, source)) != NULL; at++) {
        if (at > rows && at[-1] == '\n' && at[n] == '\t') return at + n + 1;
    }
    return NULL;
}

/* Where jinja2 refuses a template, plumb refuses it, too, or does as llama.cpp. */
static void has_language(void) {
    size_t n, n_row = 0, n_refused = 0, n_lenient = 0;
    char *file = test_read_all(JINJA2 "language.tsv", &n), *rest = file, *variables = file ? next_line(&rest) : NULL;
    char *llama = test_read_all(FOLDER "language.tsv", &n), row[4096];
    for (char *line, *fields[2] = {NULL}; llama && variables && (line = next_line(&rest)) != NULL; n_row++) {
        REQUIRE(split_line(line, fields, 2) && strlen(fields[0]) < sizeof row, "language.tsv: %s", line);
        const char *by_llama = made_by_llama(llama, fields[0]);
        struct error err = {PLUMB_OK, ""};
        char *text;
        size_t n_text, n_source = unescape(fields[0]), n_expected = unescape(fields[1]);
        plumb_status status = render(fields[0], n_source, variables, false, TEMPLATE_LIMITS, &text, &n_text, &err);
        bool is_lenient = strcmp(fields[1], "!") == 0 && status == PLUMB_OK;
        if (is_lenient && by_llama) {
            snprintf(row, sizeof row, "%.*s", (int)strcspn(by_llama, "\n"), by_llama);
            fields[1] = row;
            n_expected = unescape(row);
        }
        CHECK(is_made(status, text, n_text, &err, fields[1], n_expected), "%s: %s%s, expected %s", fields[0],
              text ? text : "", err.message, fields[1]);
        n_refused += status != PLUMB_OK;
        n_lenient += is_lenient;
        free(text);
    }
    free(file);
    free(llama);
    CHECK(n_row > 300 && n_refused > 30 && n_lenient > 4, "%zu rows, %zu of them refused, %zu only by jinja2", n_row,
          n_refused, n_lenient);
}

#define ALL_FIELDS "%Y %y %m %d %e %B %b %A %a %H %I %M %S %p %j %F %D %T %R %c %%"

static void check_time(int64_t seconds, const char *expected, size_t n) {
    struct error err = {PLUMB_OK, ""};
    struct render r = {.err = &err, .max_bytes = 1 << 16, .max_work = 1 << 16};
    struct output out = {NULL, 0, 0};
    output_time(&r, &out, seconds, text_of(ALL_FIELDS));
    CHECK(out.n == n && memcmp(out.data, expected, n) == 0, "%lld: %.*s, expected %s", (long long)seconds, (int)out.n,
          out.data, expected);
    render_free(&r);
}

/* The truth is GNU date, and the C library where it has dates; Emscripten's has none. */
static void has_times(void) {
    static const struct { int64_t seconds; const char *text; } rows[] = {
        {NOW, "2026 26 07 25 25 July Jul Saturday Sat 12 12 00 00 PM 206 2026-07-25 07/25/26 12:00:00 12:00 "
              "Sat Jul 25 12:00:00 2026 %"},
        {951782399, "2000 00 02 28 28 February Feb Monday Mon 23 11 59 59 PM 059 2000-02-28 02/28/00 23:59:59 23:59 "
                    "Mon Feb 28 23:59:59 2000 %"},
        {951868800, "2000 00 03 01  1 March Mar Wednesday Wed 00 12 00 00 AM 061 2000-03-01 03/01/00 00:00:00 00:00 "
                    "Wed Mar  1 00:00:00 2000 %"},
        {-1, "1969 69 12 31 31 December Dec Wednesday Wed 23 11 59 59 PM 365 1969-12-31 12/31/69 23:59:59 23:59 "
             "Wed Dec 31 23:59:59 1969 %"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        check_time(rows[i].seconds, rows[i].text, strlen(rows[i].text));
    }
#if !defined __EMSCRIPTEN__
    for (int64_t seconds = -20000000000; seconds < 20000000000; seconds += 86400 * 5 + 12345) {
        char expected[200];
        time_t at = (time_t)seconds;
        size_t n = strftime(expected, sizeof expected, ALL_FIELDS, gmtime(&at));
        check_time(seconds, expected, n);
    }
#endif
}

/* ---- hostile templates and variables ----------------------------------------------------------------------------- */

/* The source is begin, then middle n times, then end. */
struct refused {
    const char *name, *begin, *middle;
    size_t n;
    const char *end, *message, *json;
};

static void refuses(const void *row) {
    const struct refused *r = row;
    struct error err = {PLUMB_OK, ""};
    size_t n_begin = strlen(r->begin), n_middle = r->middle ? strlen(r->middle) : 0;
    size_t n_end = r->end ? strlen(r->end) : 0;
    size_t n = n_begin + r->n * n_middle + n_end;
    char *source = malloc(n + 1), *at = source, *text;
    REQUIRE(source, "no memory");
    memcpy(at, r->begin, n_begin);
    at += n_begin;
    for (size_t i = 0; i < r->n; i++, at += n_middle) memcpy(at, r->middle, n_middle);
    if (n_end > 0) memcpy(at, r->end, n_end);
    const char *json = r->json ? r->json : "{\"l\":[1,2],\"s\":\"text\"}";
    struct template_limits limits = {1u << 26, 1u << 24};   /* less, so that no row takes long */
    plumb_status status = render(source, n, json, true, limits, &text, &n, &err);
    CHECK(status != PLUMB_OK && strstr(err.message, r->message), "\"%s\", expected \"%s\"", err.message, r->message);
    free(text);
    free(source);
}

/* Small limits end what would be large. */
static void ends_at_limits(void) {
    static const struct { const char *source, *message; struct template_limits limits; } rows[] = {
        {"{% for i in range(10000) %}{% endfor %}", "it takes more than 100000 steps", {100000, 1 << 30}},
        {"{{ 'x' * 1000000 }}", "it takes more than 100000 bytes of memory", {1 << 30, 100000}},
        {"{% for i in range(100) %}{{ l[0] in l }}{% endfor %}", "it takes more than 5000 steps", {5000, 1 << 30}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct error err = {PLUMB_OK, ""};
        char *text;
        size_t n;
        plumb_status status = render(rows[i].source, strlen(rows[i].source), "{\"l\":[1]}", false, rows[i].limits,
                                     &text, &n, &err);
        CHECK(status == PLUMB_ERROR_TEMPLATE && strstr(err.message, rows[i].message), "%s: %s", rows[i].source,
              err.message);
        free(text);
        status = render(rows[i].source, strlen(rows[i].source), "{\"l\":[1]}", false, TEMPLATE_LIMITS, &text, &n, &err);
        CHECK(status == PLUMB_OK, "%s without small limits: %s", rows[i].source, err.message);
        free(text);
    }
}

/* What a template may contain in some number, and still be rendered. */
static void accepts_nesting(void) {
    static const struct { const char *begin, *end; } pairs[] = {
        {"{% if true %}", "{% endif %}"}, {"{% for i in [1] %}", "{% endfor %}"}, {"{{ (", ") }}"}, {"{{ [", "] }}"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        char source[4096] = "", *text;
        enum { N = 40 };
        bool is_expression = pairs[i].begin[1] == '{';
        for (int k = 0; k < N; k++) strcat(source, pairs[i].begin + (is_expression && k > 0 ? 3 : 0));
        strcat(source, "1");
        for (int k = 0; k < N; k++) {
            if (is_expression) strncat(source, pairs[i].end, k + 1 < N ? 1 : 4);
            else strcat(source, pairs[i].end);
        }
        struct error err = {PLUMB_OK, ""};
        size_t n;
        plumb_status status = render(source, strlen(source), "{}", false, TEMPLATE_LIMITS, &text, &n, &err);
        const char *shown = is_expression && pairs[i].begin[3] == '[' ? "[[[[" : "1";
        CHECK(status == PLUMB_OK && memcmp(text, shown, strlen(shown)) == 0, "%s: %s", source, err.message);
        free(text);
    }
}

/* Any bytes that are not UTF-8 are copied, and change nothing else. */
/* A system message that the template does not print becomes a part of the next message; the list of messages, which has
 * one less then, can still grow. */
static void grows_merged(void) {
    static const char source[] = "{% for i in range(3) %}{% set _ = messages.append(1) %}{% endfor %}"
        "{{ messages|length }} {{ messages[0].content if messages[0].role == 'user' }}";
    static const char json[] = "{\"messages\":[{\"role\":\"system\",\"content\":\"s\"},"
        "{\"role\":\"user\",\"content\":\"u\"}]}";
    struct error err = {PLUMB_OK, ""};
    char *text;
    size_t n;
    plumb_status status = render(source, sizeof source - 1, json, true, TEMPLATE_LIMITS, &text, &n, &err);
    CHECK(status == PLUMB_OK && n == 5 && memcmp(text, "4 s\nu", 5) == 0, "%s %.*s", err.message, (int)n, text);
    free(text);
}

/* A negative number of splits means no limit, also the smallest number that 64 bits hold. */
static void splits_often(void) {
    static const char source[] = "{{ 'a b c'.split(' ', -9223372036854775807 - 1)|join(',') }}"
        "{{ 'a b c'.rsplit(' ', -9223372036854775807 - 1)|join(',') }}";
    struct error err = {PLUMB_OK, ""};
    char *text;
    size_t n;
    plumb_status status = render(source, sizeof source - 1, "{}", false, TEMPLATE_LIMITS, &text, &n, &err);
    CHECK(status == PLUMB_OK && n == 10 && memcmp(text, "a,b,ca,b,c", 10) == 0, "%s", err.message);
    free(text);
}

/* Writes a string of a GGUF file; returns its end. */
static uint8_t *put_string(uint8_t *at, const char *text) {
    size_t n = strlen(text);
    memcpy(at, &(uint64_t){n}, 8);
    memcpy(at + 8, text, n);
    return at + 8 + n;
}

/* A BOS that a template prints and that the tokenizer adds, too, is there once, and no EOS is added.  The vocabulary is
 * that of roles/fim8.gguf, with two more keys. */
static void has_one_bos(void) {
    static const struct { const char *source; size_t n_bos, n_eos; } rows[] = {
        {"{{ bos_token }}x{{ eos_token }}", 1, 1}, {"x", 1, 0}, {"{{ bos_token }}x", 1, 0}, {"x{{ eos_token }}", 1, 1},
        {"{{ bos_token }}{{ bos_token }}x", 2, 0}, {"x{{ eos_token }}{{ bos_token }}", 2, 1}, {"", 1, 0},
    };
    size_t n;
    uint8_t *file = test_read_all("tests/vectors/tokenizer/roles/fim8.gguf", &n), *changed = malloc(n + 1000);
    REQUIRE(file && changed && n > 24, "no vocabulary");
    for (size_t i = 0; i < 2 * sizeof rows / sizeof rows[0]; i++) {
        const bool adds_eos = i % 2 == 0;
        const char *source = rows[i / 2].source, *prompt = "";
        const uint8_t *marks = NULL;
        memcpy(changed, file, 24);
        changed[16] = (uint8_t)(changed[16] + 2);   /* the number of keys */
        uint8_t *at = put_string(changed + 24, "tokenizer.ggml.add_eos_token");
        memcpy(at, "\x07\0\0", 4);                  /* a bool */
        at[4] = adds_eos;
        at = put_string(at + 5, "tokenizer.chat_template");
        memcpy(at, "\x08\0\0", 4);                  /* a string */
        at = put_string(at + 4, source);
        memcpy(at, file + 24, n - 24);
        size_t n_changed = (size_t)(at - changed) + n - 24, n_bos = 0, n_eos = 0;
        plumb_model *m = plumb_model_create();
        int32_t ids[64];
        plumb_status status = plumb_model_begin(m, n_changed);
        if (status == PLUMB_OK) status = fixture_give(m, changed, 0, n_changed, n_changed);
        if (status == PLUMB_OK) status = plumb_model_load_vocab(m);
        int64_t n_prompt = status == PLUMB_OK ? plumb_chat_render(m, "{}", 2, &prompt, &marks) : status;
        int64_t n_id = n_prompt < 0 ? n_prompt
            : plumb_tokenize_marked(m, prompt, marks, (size_t)n_prompt, PLUMB_ADD_SPECIAL | PLUMB_PARSE_SPECIAL, ids,
                                    64);
        for (int64_t k = 0; k < n_id; k++) {
            n_bos += ids[k] == plumb_token_bos(m);
            n_eos += ids[k] == plumb_token_eos(m);
        }
        int32_t first = -1;
        int64_t n_again = plumb_tokenize_marked(m, prompt, marks, n_prompt > 0 ? (size_t)n_prompt : 0,
                                                PLUMB_ADD_SPECIAL | PLUMB_PARSE_SPECIAL, &first, 1);
        CHECK(n_again == n_id && first == ids[0] && plumb_tokenize_marked(m, prompt, marks, (size_t)n_prompt,
              PLUMB_ADD_SPECIAL | PLUMB_PARSE_SPECIAL, NULL, 0) == n_id, "%s: %lld tokens", source, (long long)n_again);
        CHECK(n_id > 0 && n_bos == rows[i / 2].n_bos && n_eos == rows[i / 2].n_eos,
              "%s, %s EOS: %zu BOS and %zu EOS in %lld tokens: %s", source, adds_eos ? "adds" : "no", n_bos, n_eos,
              (long long)n_id, plumb_model_error(m));
        plumb_model_free(m);
    }
    free(file);
    free(changed);
}

/* A template that knows no tools, and a first message that has parts and calls. */
static void tells_tools(void) {
    static const char source[] = "{% for m in messages %}{{ m.role }}:{% if m.content is string %}{{ m.content }}"
        "{% else %}{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endif %};{% endfor %}";
    static const char json[] = "{\"messages\":[{\"tool_calls\":[{\"id\":\"1\",\"function\":{\"name\":\"f\","
        "\"arguments\":\"{}\"}}],\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"AAAAAAAA\"}]},"
        "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"function\":{\"name\":\"g\",\"arguments\":"
        "\"NaN\"}}]},{\"role\":\"tool\",\"content\":[{\"type\":\"text\",\"text\":\"done\"}]}],"
        "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]}";
    struct chat_template t = {.source = {source, sizeof source - 1, 0}, .bos = text_of(""), .eos = text_of(""),
                              .now = NOW, .tells_tools = true};
    struct error err = {PLUMB_OK, ""};
    char *text;
    size_t n;
    plumb_status status = template_render(&t, json, sizeof json - 1, true, TEMPLATE_LIMITS, &text, &n, &err);
    CHECK(status == PLUMB_OK && strncmp(text, "system:[AAAAAAAA][# Tools\n", 26) == 0
          && strstr(text, "\n</tool_call>];assistant:<tool_call>\n{\"name\":\"g\",\"arguments\":\"NaN\"}\n</tool_call>;"
                          "user:<tool_response>\ndone\n</tool_response>;"), "%s%s", err.message, text ? text : "");
    free(text);
}

static void keeps_bytes(void) {
    const char bytes[] = "a\xff\xc0\x80\xed\xa0\x80\xf0\x9f";
    char source[200], json[200], *text;
    struct error err = {PLUMB_OK, ""};
    size_t n;
    snprintf(source, sizeof source, "%s{{ '%s' }}{{ x|upper }}{{ x|tojson(ensure_ascii=true)|length > 0 }}", bytes,
             bytes);
    snprintf(json, sizeof json, "{\"x\":\"%s\"}", bytes);
    CHECK(render(source, strlen(source), json, false, TEMPLATE_LIMITS, &text, &n, &err) == PLUMB_OK, "%s", err.message);
    char expected[200];
    snprintf(expected, sizeof expected, "%s%sA%sTrue", bytes, bytes, bytes + 1);
    CHECK(text && strcmp(text, expected) == 0, "%s", text ? text : "");
    free(text);
}

void test_template(void) {
    static const struct refused rows[] = {
        {"an expression that does not end", "a\n{{ x", NULL, 0, NULL,
         "line 2, column 5: expected }}, but the template ends", NULL},
        {"an if that does not end", "{% if x %}", NULL, 0, NULL,
         "column 4: the block is not closed: there is no {% endif %}", NULL},
        {"a for that does not end", "{% for x in l %}{% else %}", NULL, 0, NULL, "there is no {% endfor %}", NULL},
        {"a set that does not end", "{% set x %}{{ x }}", NULL, 0, NULL, "there is no {% endset %}", NULL},
        {"a macro that does not end", "{% macro f() %}", NULL, 0, NULL, "there is no {% endmacro %}", NULL},
        {"a call that does not end", "{% call f() %}", NULL, 0, NULL, "there is no {% endcall %}", NULL},
        {"a filter that does not end", "{% filter upper %}", NULL, 0, NULL, "there is no {% endfilter %}", NULL},
        {"a block that ends as another", "{% if l %}{% endfor %}", NULL, 0, NULL, "found 'endfor'", NULL},
        {"a string that does not end", "{{ 'a\\'", NULL, 0, NULL, "column 4: a string is not closed", NULL},
        {"a string that ends in a backslash", "{{ 'a\\", NULL, 0, NULL, "a string is not closed", NULL},
        {"a comment that does not end", "x{# a #", NULL, 0, NULL, "column 2: a comment is not closed by #}", NULL},
        {"a character outside of ASCII in a block", "{{ \xc3\xa9 }}", NULL, 0, NULL, "no meaning inside a block", NULL},
        {"a control byte in a block", "{{ \x7f }}", NULL, 0, NULL, "no meaning inside a block", NULL},
        {"an integer of 20 digits", "{{ 99999999999999999999 }}", NULL, 0, NULL, "does not fit 64 bits", NULL},
        {"an unknown statement", "\n\n  {% include 'a' %}", NULL, 0, NULL,
         "line 3, column 6: expected a statement", NULL},
        {"a recursive loop without end", "{% for x in l recursive %}{{ loop(l) }}{% endfor %}", NULL, 0, NULL,
         "nested more than", NULL},
        {"an unknown filter", "{{ s|shout }}", NULL, 0, NULL, "there is no filter shout", NULL},
        {"an unknown test", "{{ s is loud }}", NULL, 0, NULL, "there is no test 'loud'", NULL},
        {"an unknown method", "{{ s.shout() }}", NULL, 0, NULL,
         "a value of the kind undefined cannot be called: shout", NULL},
        {"what the template refuses", "{{ raise_exception('no ' ~ s) }}", NULL, 0, NULL,
         "column 19: the template refuses the chat: no text", NULL},
        {"a named argument that get returns", "{{ {}.get('a', d=1).cycle(1, 2) }}", NULL, 0, NULL,
         "a name that is not known", NULL},
        {"a named argument in a list", "{{ l.append(x=1) }}{{ l[0].changed(1) }}", NULL, 0, NULL,
         "a name that is not known", NULL},
        {"a named argument in a pattern", "{{ '%s'|format(x=1) }}", NULL, 0, NULL, "a name that is not known", NULL},
        {"a number of two billion digits", "{{ '%.2000000000f' % 1.5 }}", NULL, 0, NULL, "at least 1000", NULL},
        {"a text of two billion spaces", "{{ '%2000000000s' % 'a' }}", NULL, 0, NULL, "at least 1000", NULL},
        {"brackets in brackets", "{{ ", "(", 10000, "", "nested more than", NULL},
        {"lists in lists", "{{ ", "[", 10000, "", "nested more than", NULL},
        {"objects in objects", "{{ ", "{1:", 10000, "", "nested more than", NULL},
        {"signs", "{{ 1 + ", "- ", 10000, "1 }}", "nested more than", NULL},
        {"not not", "{{ ", "not ", 10000, "1 }}", "nested more than", NULL},
        {"else in else", "{{ ", "1 if 0 else ", 10000, "1 }}", "nested more than", NULL},
        {"a long chain of operators", "{{ 1 ", "+ 1 ", 10000, "}}", "nested more than", NULL},
        {"a long chain of filters", "{{ s", "|trim", 10000, "}}", "nested more than", NULL},
        {"a long chain of members", "{{ s", ".a", 10000, "}}", "nested more than", NULL},
        {"a long chain of calls", "{{ s", "()", 10000, "}}", "nested more than", NULL},
        {"blocks in blocks", "", "{% if 1 %}", 10000, "", "nested more than", NULL},
        {"macros in macros", "", "{% macro f() %}", 10000, "", "nested more than", NULL},
        {"a macro that calls itself", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", NULL, 0, NULL,
         "nested more than",
         NULL},
        {"a call block that calls itself", "{% macro f() %}{% call f() %}{% endcall %}{% endmacro %}{{ f() }}", NULL, 0,
         NULL, "nested more than", NULL},
        {"a caller that calls itself",
         "{% macro f() %}{{ caller() }}{% endmacro %}{% call f() %}{{ f() }}{% endcall %}",
         NULL, 0, NULL, "cannot be called: caller", NULL},
        {"a list that contains itself", "{% set a = [] %}{% set _ = a.append(a) %}{{ a }}", NULL, 0, NULL,
         "nested more than", NULL},
        {"a list that contains itself, as text",
         "{% set a = [] %}{% set _ = a.append(a) %}{{ a|string }}", NULL, 0, NULL,
         "nested more than", NULL},
        {"a list that contains itself, as JSON",
         "{% set a = [] %}{% set _ = a.append(a) %}{{ a|tojson }}", NULL, 0, NULL,
         "nested more than", NULL},
        {"tuples in tuples",
         "{% set n = namespace(a=1) %}{% for i in range(1000) %}{% set n.a = (n.a, 1) %}{% endfor %}"
         "{{ n.a == n.a }}", NULL, 0, NULL, "nested more than", NULL},
        {"a huge range", "{{ range(9223372036854775807)|length }}", NULL, 0, NULL, "it takes more than", NULL},
        {"a huge range of huge steps",
         "{{ range(-9000000000000000000, 9000000000000000000, 1)|length }}", NULL, 0, NULL,
         "it takes more than", NULL},
        {"a huge repetition", "{{ 'abc' * 9223372036854775807 }}", NULL, 0, NULL, "bytes of memory", NULL},
        {"a repetition of nothing", "{{ '' * 9223372036854775807 }}", NULL, 0, NULL, "steps", NULL},
        {"a huge indent", "{{ s|indent(9223372036854775807) }}", NULL, 0, NULL, "steps", NULL},
        {"a negative indent", "{{ s|indent(-1) }}", NULL, 0, NULL, "indent: the width is negative", NULL},
        {"a huge indent of JSON", "{{ l|tojson(indent=9223372036854775807) }}", NULL, 0, NULL, "too large", NULL},
        {"a text that doubles",
         "{% set n = namespace(a='x') %}{% for i in range(99) %}{% set n.a = n.a ~ n.a %}{% endfor %}",
         NULL, 0, NULL, "bytes of memory", NULL},
        {"a text that grows by replace",
         "{% set n = namespace(a='x') %}{% for i in range(99) %}{% set n.a = n.a|replace("
         "'x', 'xxxx') %}{% endfor %}", NULL, 0, NULL, "bytes of memory", NULL},
        {"a list times a number",
         "", "{% for i in l * 9 %}", 1, "{% endfor %}", "not for a value of the kind list and one of", NULL},
        {"loops in loops", "{% set q = range(300) %}{% for i in q %}{% for j in q %}{% for k in q %}", NULL, 0,
         "{% endfor %}{% endfor %}{% endfor %}", "it takes more than", NULL},
        {"a search in a long text",
         "{% set a = 'a' * 1000000 %}{% for i in range(1000) %}{{ 'aaaaaaaaaaaaaaaab' in a }}"
         "{% endfor %}", NULL, 0, NULL, "steps", NULL},
        {"a test of many values",
         "{% set l = range(100000) %}{% for i in range(10000) %}{% if l|select('eq', -1) %}{% endif %}{% endfor %}",
         NULL, 0, NULL, "steps", NULL},
        {"a comparison of long lists",
         "{% set l = range(100000) %}{% for i in range(10000) %}{{ l == l }}{% endfor %}", NULL, 0, NULL, "steps",
         NULL},
        {"long keys that begin alike",
         "{% set a = 'x' * 100000 %}{% set o = {a ~ '1': 1, a ~ '2': 2} %}{% set k = a ~ '2' %}"
         "{% for i in range(10000) %}{{ o[k] }}{% endfor %}", NULL, 0, NULL, "steps", NULL},
        {"integers behind many spaces",
         "{% set a = ' ' * 1000000 %}{% for i in range(10000) %}{{ a|int }}{% endfor %}", NULL, 0, NULL, "steps", NULL},
        {"numbers behind many spaces",
         "{% set a = ' ' * 1000000 %}{% for i in range(10000) %}{{ a|float }}{% endfor %}", NULL, 0, NULL, "steps",
         NULL},
        {"a modulo by 0", "{{ 1 % 0 }}", NULL, 0, NULL, "division by 0", NULL},
        {"divisible by 0", "{{ 1 is divisibleby(0) }}", NULL, 0, NULL, "division by 0", NULL},
        {"a slice with the step 0", "{{ l[::0] }}", NULL, 0, NULL, "the step of a slice is 0", NULL},
        {"a base of 99", "{{ '1'|int(base=99) }}", NULL, 0, NULL, "int: the base must be 0 or 2 to 36", NULL},
        {"a date in an unknown form", "{{ strftime_now('%Q') }}", NULL, 0, NULL, "has %Q, which is not", NULL},
        {"a date in a form that ends", "{{ strftime_now('%') }}", NULL, 0, NULL, "has %?, which is not", NULL},
        {"a break outside of a loop", "{% break %}", NULL, 0, NULL, "break outside of a loop", NULL},
        {"JSON that does not end", "x", NULL, 0, NULL, "JSON ends after 10 bytes", "{\"l\": [1, "},
        {"JSON that is not an object", "x", NULL, 0, NULL, "not a JSON object", "[1]"},
        {"JSON that is nothing", "x", NULL, 0, NULL, "JSON ends after 0 bytes", ""},
        {"JSON of 64 levels", "x", NULL, 0, NULL, "at most 63 levels",
         "{\"a\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1"
         "]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}"},
    };
    test_case("template: 70 templates by 12 conversations have the texts of llama.cpp's engine", equals_engine);
    test_case("template: 840 chats are adapted as llama.cpp's server does", equals_server);
    test_case("template: results, reasoning and parts are adapted to a family of models as llama.cpp does",
              adapts_families);
    test_case("template: answers end at the texts of llama.cpp's server", stops_equal_llama);
    test_case("template: chats of 30 templates equal jinja2's", equals_jinja2);
    test_case("template: 160 templates that llama.cpp does not have equal jinja2's in 5 conversations",
              equals_jinja2_cases);
    test_case("template: 104 templates equal jinja2's in 12 conversations", equals_jinja2_published);
    test_case("template: 70 templates of 401 messages equal jinja2's", renders_long);
    test_case("template: each part of the language is as in jinja2", has_language);
    test_case("template: times are written as by date and by the C library", has_times);
    test_case("template: limits of steps and memory end a rendering", ends_at_limits);
    test_case("template: 40 levels of each kind are rendered", accepts_nesting);
    test_case("template: messages of which the first two are merged can grow", grows_merged);
    test_case("template: a split with the smallest limit has no limit", splits_often);
    test_case("template: a prompt has one BOS of the tokenizer, and no EOS", has_one_bos);
    test_case("template: tools are told to a model whose template does not, in parts, too", tells_tools);
    test_case("template: bytes that are not UTF-8 are kept", keeps_bytes);
    TEST_ROWS("template: refuses ", refuses, rows);
}
