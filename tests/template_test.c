/* Chat templates.  The ground truth is llama.cpp's engine (tests/vectors/templates) and jinja2 (chat.txt). */
#include "template/template.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>

#define FOLDER "tests/vectors/templates/"
enum { NOW = 1784980800 };   /* 25 July 2026, 12:00 UTC */

/* Renders a template of n bytes; returns the status.  The text is to be freed. */
static plumb_status render(const char *source, size_t n, const char *json, bool is_chat, struct template_limits limits,
                           char **text, size_t *n_text, struct error *err) {
    struct chat_template t = {{source, n}, text_of(is_chat ? "<s>" : ""), text_of(is_chat ? "</s>" : ""), NOW};
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

/* llama.cpp changes these chats for these templates in ways of their own: reasoning becomes a part of a list, the names
 * of tools are added to their results, the arguments of a call stay JSON text. */
static bool is_special(const char *name, const char *conversation) {
    static const char *const templates[] = {
        "mistralai-Ministral-3-14B-Reasoning-2512", "unsloth-mistral-Devstral-Small-2507",
        "google-gemma-4-31B-it-interleaved",
    };
    static const char *const pairs[][2] = {
        {"LFM2.5-8B-A1B", "content parts"}, {"LFM2.5-8B-A1B", "reasoning beside tool calls"},
        {"StepFun3.5-Flash", "content parts"}, {"openai-gpt-oss-120b", "reasoning beside tool calls"},
    };
    for (size_t i = 0; i < sizeof templates / sizeof templates[0]; i++) {
        if (strcmp(name, templates[i]) == 0) return true;
    }
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        if (strcmp(name, pairs[i][0]) == 0 && strcmp(conversation, pairs[i][1]) == 0) return true;
    }
    return false;
}

/* A conversation with add_generation_prompt, and with the members of "variables" as its own. */
static char *as_variables(const char *conversation) {
    char *json = malloc(strlen(conversation) + 64);
    const char *variables = strstr(conversation, "\"variables\": {"), *end = variables ? strchr(variables, '}') : NULL;
    if (!json) return NULL;
    strcpy(json, "{\"add_generation_prompt\":true,");
    if (variables) strncat(json, variables + 14, (size_t)(end - variables) - 14);
    if (variables) strcat(json, ",");
    return strcat(json, conversation + 1);
}

static void equals_llama(bool is_chat) {
    size_t n, n_row = 0;
    char *expected = test_read_all(FOLDER "expected.tsv", &n), *rest = expected, *source = NULL, *list[MAX_CONTEXTS];
    char *json = test_read_all(is_chat ? FOLDER "conversations.json" : FOLDER "contexts.json", &n), name[128] = "";
    size_t n_context = json ? elements(json, is_chat ? "\n {\"name\"" : "\n{", list, MAX_CONTEXTS) : 0, n_source = 0;
    if (is_chat) {
        for (size_t i = 0; i < n_context; i++) list[i]++;   /* the space before an element */
        CHECK(n_context == N_CONVERSATIONS, "%zu conversations", n_context);
    }
    for (char *line, *fields[5] = {NULL}; expected && n_context > 0 && (line = next_line(&rest)) != NULL;) {
        REQUIRE(split_line(line, fields, 5), "expected.tsv: %s", line);
        if (strcmp(name, fields[0]) != 0) {
            char path[200];
            snprintf(name, sizeof name, "%s", fields[0]);
            snprintf(path, sizeof path, FOLDER "sources/%s.jinja", name);
            free(source);
            source = test_read_all(path, &n_source);
        }
        size_t at = is_chat ? n_row % N_CONVERSATIONS : (size_t)atoi(fields[2]), n_text;
        n_row++;
        REQUIRE(source && at < n_context, "%s, %s", name, fields[1]);
        if (is_chat && is_special(name, fields[1])) continue;
        char *text, *variables = is_chat ? as_variables(list[at]) : list[at];
        struct error err = {PLUMB_OK, ""};
        plumb_status status = render(source, n_source, variables, is_chat, TEMPLATE_LIMITS, &text, &n_text, &err);
        CHECK(is_expected(status, text, n_text, fields[3]), "%s, %s: expected %s, got %zu bytes, %s:\n%s", name,
              fields[1], fields[3], n_text, err.message, text ? text : "");
        if (is_chat) free(variables);
        free(text);
    }
    CHECK(n_row == 840, "%zu rows", n_row);
    free(source);
    free(json);
    free(expected);
}

static void equals_engine(void) { equals_llama(false); }
static void equals_server(void) { equals_llama(true); }

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
            struct chat_template t = {{source, n}, text_of("<s>"), text_of("</s>"), 1721995200};
            plumb_status status = template_render(&t, all, strlen(all), false, TEMPLATE_LIMITS, &text, &n_text, &err);
            size_t n_bos = n_text >= 3 && memcmp(text, "<s>", 3) == 0 ? 3 : 0;   /* the file has no BOS */
            CHECK(status == PLUMB_OK && n_text - n_bos == n_expected
                  && memcmp(text + n_bos, line + 2, n_expected) == 0, "%s: %s\n%s\nexpected\n%s", name, err.message,
                  text ? text : "", line + 2);
            free(text);
        }
    }
    free(file);
    CHECK(n_case > 150 && n_template > 20, "%zu cases", n_case);
}

/* ---- the language ------------------------------------------------------------------------------------------------ */

static void has_language(void) {
    size_t n, n_row = 0, n_refused = 0;
    char *file = test_read_all(FOLDER "language.tsv", &n), *rest = file, *variables = file ? next_line(&rest) : NULL;
    for (char *line, *fields[2] = {NULL}; variables && (line = next_line(&rest)) != NULL; n_row++) {
        REQUIRE(split_line(line, fields, 2), "language.tsv: %s", line);
        struct error err = {PLUMB_OK, ""};
        char *text;
        bool refused = strcmp(fields[1], "!") == 0;
        size_t n_text, n_source = unescape(fields[0]), n_expected = unescape(fields[1]);
        plumb_status status = render(fields[0], n_source, variables, false, TEMPLATE_LIMITS, &text, &n_text, &err);
        bool equal = status == PLUMB_OK && n_text == n_expected && memcmp(text, fields[1], n_text) == 0;
        CHECK(refused ? status == PLUMB_ERROR_TEMPLATE : equal, "%s: %s%s, expected %s", fields[0], text ? text : "",
              err.message, fields[1]);
        n_refused += refused;
        free(text);
    }
    free(file);
    CHECK(n_row > 90 && n_refused > 40, "%zu rows, %zu of them refused", n_row, n_refused);
}

/* ---- hostile templates and variables ----------------------------------------------------------------------------- */

struct refused { const char *name, *source, *json, *message; };

static void refuses(const void *row) {
    const struct refused *r = row;
    struct error err = {PLUMB_OK, ""};
    char *text;
    size_t n;
    plumb_status status = render(r->source, strlen(r->source), r->json ? r->json : "{}", false, TEMPLATE_LIMITS, &text,
                                 &n, &err);
    CHECK(status != PLUMB_OK && strstr(err.message, r->message), "\"%s\", expected \"%s\"", err.message, r->message);
    free(text);
}

void test_template(void) {
    static const struct refused rows[] = {
        {"an expression that does not end", "a\n{{ x", NULL, "line 2, column 5: expected }}, but the template ends"},
        {"an if that does not end", "{% if x %}", NULL, "column 4: the block is not closed: there is no {% endif %}"},
    };
    test_case("template: 70 templates by 12 conversations have the texts of llama.cpp's engine", equals_engine);
    test_case("template: chats are adapted to 67 templates as llama.cpp's server does", equals_server);
    test_case("template: chats of 22 templates equal jinja2's", equals_jinja2);
    test_case("template: each part of the language is as in llama.cpp's engine", has_language);
    TEST_ROWS("template: refuses ", refuses, rows);
}
