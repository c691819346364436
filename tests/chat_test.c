/* Texts of a chat never become control tokens, whatever they contain.  Each of llama.cpp's 70 templates gets a
 * vocabulary whose control tokens are those that its own prompts contain.  The ground truth is the prompt of a harmless
 * chat: a chat with the text of a control token in one place, or in two places that the template joins, has that text
 * in its prompt, and as many control tokens as the harmless one. */
#include "bytes.h"
#include "fixture.h"
#include "plumb.h"
#include "test.h"

#include <stdio.h>

#define FOLDER "tests/vectors/templates/"

/* What a user, a program or a model writes.  A harmless text is a word that only it has: Q0Q, Q1Q... */
enum place { SYSTEM, USER, FIRST, SECOND, ANSWER, REASONING, RESULT, NAME, ARGUMENT, DESCRIPTION, N_PLACE };
enum { MAX_TOKEN = 64, MAX_TEXT = 64, MAX_IDS = 1 << 14 };

struct texts { char at[N_PLACE][MAX_TEXT]; };

/* Templates differ in what they accept; the first of these chats that one accepts is its own.  %N is the text N. */
static const char *const chats[] = {
    "{\"messages\":[{\"role\":\"system\",\"content\":\"%0\"},{\"role\":\"user\",\"content\":\"%1\"},"
    "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"call00001\",\"type\":\"function\",\"function\":"
    "{\"name\":\"%7\",\"arguments\":\"{\\\"x\\\":\\\"%8\\\"}\"}}]},"
    "{\"role\":\"tool\",\"name\":\"%7\",\"tool_call_id\":\"call00001\",\"content\":\"%6\"},"
    "{\"role\":\"assistant\",\"content\":\"%4\",\"reasoning_content\":\"%5\"},"
    "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"%2\"},{\"type\":\"text\",\"text\":\"%3\"}]}],"
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"%7\",\"description\":\"%9\",\"parameters\":"
    "{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"string\",\"description\":\"%9\"}}}}}],"
    "\"add_generation_prompt\":true,\"enable_thinking\":true}",
    "{\"messages\":[{\"role\":\"system\",\"content\":\"%0\"},{\"role\":\"user\",\"content\":\"%1\"},"
    "{\"role\":\"assistant\",\"content\":\"%4\",\"reasoning_content\":\"%5\"},"
    "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"%2\"},{\"type\":\"text\",\"text\":\"%3\"}]}],"
    "\"add_generation_prompt\":true,\"enable_thinking\":true}",
};

/* A model that has nothing but a template and a vocabulary: <unk>, <s>, </s>, the control tokens and all bytes. */
struct chat_model {
    plumb_model *model;
    const char *chat;
    char tokens[MAX_TOKEN][MAX_TEXT];
    uint32_t n_token;
};

static void put_text_key(struct bytes *b, const char *name, const char *text, size_t n) {
    put_key(b, name, 8);
    put_string(b, text, n);
}

static bool load(struct chat_model *m, const char *source, size_t n) {
    static const char *const first[] = {"<unk>", "<s>", "</s>"};
    struct bytes b = {NULL, 0, 0};
    const uint32_t n_control = 3 + m->n_token, n_token = n_control + 256;
    put(&b, "GGUF\3\0\0\0" "\0\0\0\0\0\0\0\0" "\7\0\0\0\0\0\0\0", 24);
    put_text_key(&b, "general.architecture", "llama", 5);
    put_text_key(&b, "tokenizer.ggml.model", "llama", 5);
    put_text_key(&b, "tokenizer.chat_template", source, n);
    put_key(&b, "tokenizer.ggml.add_bos_token", 7);
    put_number(&b, 0, 1);
    put_key(&b, "tokenizer.ggml.tokens", 9);
    put_number(&b, 8, 4);
    put_number(&b, n_token, 8);
    for (uint32_t i = 0; i < n_token; i++) {
        char byte[8];
        snprintf(byte, sizeof byte, "<0x%02X>", (i - n_control) & 255);
        const char *text = i < 3 ? first[i] : i < n_control ? m->tokens[i - 3] : byte;
        put_string(&b, text, strlen(text));
    }
    put_key(&b, "tokenizer.ggml.scores", 9);
    put_number(&b, 6, 4);
    put_number(&b, n_token, 8);
    for (uint32_t i = 0; i < n_token; i++) put_number(&b, 0, 4);
    put_key(&b, "tokenizer.ggml.token_type", 9);
    put_number(&b, 5, 4);
    put_number(&b, n_token, 8);
    for (uint32_t i = 0; i < n_token; i++) put_number(&b, i == 0 ? 2 : i < n_control ? 3 : 6, 4);
    plumb_model_free(m->model);
    m->model = plumb_model_create();
    plumb_status status = plumb_model_begin(m->model, b.n);
    if (status == PLUMB_OK) status = fixture_give(m->model, b.data, 0, b.n, b.n);
    if (status == PLUMB_OK) status = plumb_model_load_vocab(m->model);
    free(b.data);
    return CHECK(status == PLUMB_OK, "%s", plumb_model_error(m->model));
}

/* A prompt: its text, and how many control tokens it has. */
struct prompt { char *text; size_t n, n_control; };

/* Replaces %N in a chat and renders it.  text is NULL if the template refuses it. */
static struct prompt render(const struct chat_model *m, const char *chat, const struct texts *texts) {
    static char json[1 << 14];
    static int32_t ids[MAX_IDS];
    struct prompt prompt = {NULL, 0, 0};
    size_t n_json = 0;
    for (const char *at = chat; *at && n_json + MAX_TEXT < sizeof json; at++) {
        if (*at == '%') n_json += (size_t)snprintf(json + n_json, MAX_TEXT, "%s", texts->at[*++at - '0']);
        else json[n_json++] = *at;
    }
    const char *text;
    const uint8_t *marks;
    int64_t n = plumb_chat_render(m->model, json, n_json, &text, &marks);
    if (n < 0) return prompt;
    int64_t n_id = plumb_tokenize_marked(m->model, text, marks, (size_t)n, PLUMB_PARSE_SPECIAL, ids, MAX_IDS);
    if (!CHECK(n_id >= 0 && n_id <= MAX_IDS, "%lld tokens: %s", (long long)n_id, plumb_model_error(m->model))) n_id = 0;
    for (int64_t i = 0; i < n_id; i++) prompt.n_control += ids[i] > 0 && (uint32_t)ids[i] < 3 + m->n_token;
    prompt.n = (size_t)n;
    prompt.text = malloc(prompt.n + 1);
    if (prompt.text) memcpy(prompt.text, text, prompt.n + 1);
    return prompt;
}

static void add_token(struct chat_model *m, const char *text, size_t n) {
    if (n >= MAX_TEXT || m->n_token == MAX_TOKEN) return;
    if (strncmp(text, "</s>", n) == 0 || strncmp(text, "<s>", n) == 0) return;   /* the vocabulary has these */
    for (uint32_t i = 0; i < m->n_token; i++) {
        if (strlen(m->tokens[i]) == n && memcmp(m->tokens[i], text, n) == 0) return;
    }
    memcpy(m->tokens[m->n_token], text, n);
    m->tokens[m->n_token++][n] = 0;
}

/* Finds what looks like a control token in a prompt: <...> and [...] without white space, quotes and words of the
 * chat. */
static void find_tokens(struct chat_model *m, const char *prompt) {
    for (const char *at = prompt; (at = strpbrk(at, "<[")) != NULL; at++) {
        size_t n = 1 + strcspn(at + 1, *at == '<' ? "<> \n\t\"'\\{}Q" : "[]<> \n\t\"'\\{}Q,:.");
        if (at[n] == (*at == '<' ? '>' : ']') && n > 2) add_token(m, at, n + 1);
    }
}

/* The harmless prompt with other texts in the places.  To be freed. */
static char *expected(const struct prompt *harmless, const struct texts *texts) {
    char *text = malloc((harmless->n + 1) * MAX_TEXT / 3), *end = text;
    for (const char *at = harmless->text; text && *at; at++) {
        bool is_place = at[0] == 'Q' && at[1] >= '0' && at[1] <= '9' && at[2] == 'Q';
        if (is_place) end += sprintf(end, "%s", texts->at[at[1] - '0']);
        else *end++ = *at;
        if (is_place) at += 2;
    }
    if (text) *end = 0;
    return text;
}

struct counts { size_t n, n_read, n_wrong; };

/* n_read counts the texts that the template itself reads, so that it writes something else: they show nothing. */
static void try(const struct chat_model *m, const struct prompt *harmless, const struct texts *texts, const char *what,
                const char *token, struct counts *counts) {
    struct prompt prompt = render(m, m->chat, texts);
    char *wanted = expected(harmless, texts);
    counts->n++;
    if (!prompt.text || !wanted || strcmp(prompt.text, wanted) != 0) {
        counts->n_read++;
    } else if (prompt.n_control != harmless->n_control && counts->n_wrong++ == 0) {
        CHECK(false, "%s, %s: %zu control tokens instead of %zu:\n%s", what, token, prompt.n_control,
              harmless->n_control, prompt.text);
    }
    free(wanted);
    free(prompt.text);
}

/* Two tokens whole in each place; one of them split at each of its characters over two parts of a content, and once
 * over a system message and a user's. */
static void try_all(const struct chat_model *m, const struct prompt *harmless, const struct texts *words,
                    struct counts *counts) {
    static const struct { enum place first, second; } neighbours[] = {{FIRST, SECOND}, {SYSTEM, USER}};
    for (uint32_t k = 0; k < m->n_token; k += m->n_token > 2 ? m->n_token - 1 : 1) {   /* the first and the last */
        const char *token = m->tokens[k];
        char what[40];
        for (int place = 0; place < N_PLACE; place++) {
            struct texts texts = *words;
            snprintf(texts.at[place], MAX_TEXT, "x%.50sy", token);
            snprintf(what, sizeof what, "place %d", place);
            try(m, harmless, &texts, what, token, counts);
        }
        for (size_t i = 0; i < 2 && k == 0; i++) {
            for (size_t at = i == 0 ? 1 : strlen(token) / 2; at < strlen(token) && strlen(token) < 50; at++) {
                struct texts texts = *words;
                if ((token[at] & 0xc0) == 0x80) continue;   /* inside a character */
                snprintf(texts.at[neighbours[i].first], MAX_TEXT, "x%.*s", (int)at, token);
                snprintf(texts.at[neighbours[i].second], MAX_TEXT, "%sy", token + at);
                snprintf(what, sizeof what, "neighbours %zu, byte %zu", i, at);
                try(m, harmless, &texts, what, token, counts);
                if (i == 1) break;
            }
        }
    }
}

static void stays_text(void) {
    static char names[80][100];
    size_t n, n_name = 0, n_tried = 0, n_without = 0;
    struct counts all = {0, 0, 0};
    char *rows = test_read_all(FOLDER "expected.tsv", &n);
    for (char *line = rows; line && *line; line = strchr(line, '\n') + 1) {
        size_t length = strcspn(line, "\t");
        if (n_name > 0 && strncmp(names[n_name - 1], line, length) == 0 && names[n_name - 1][length] == 0) continue;
        REQUIRE(n_name < 80 && length < 100, "too many templates");
        memcpy(names[n_name++], line, length);
    }
    free(rows);
    struct texts words;
    for (int i = 0; i < N_PLACE; i++) snprintf(words.at[i], MAX_TEXT, "Q%dQ", i);
    for (size_t i = 0; i < n_name; i++) {
        if (!test_repeats(i)) continue;
        static struct chat_model m;
        m.n_token = 0;
        n_tried++;
        char path[200];
        snprintf(path, sizeof path, FOLDER "sources/%.100s.jinja", names[i]);
        char *source = test_read_all(path, &n);
        if (!source || !load(&m, source, n)) break;
        struct prompt harmless = {NULL, 0, 0};
        for (size_t k = 0; k < 2 && !harmless.text; k++) harmless = render(&m, m.chat = chats[k], &words);
        CHECK(harmless.text, "%s: %s", names[i], plumb_model_error(m.model));
        if (harmless.text) find_tokens(&m, harmless.text);
        free(harmless.text);
        struct counts counts = {0, 0, 0};
        n_without += m.n_token == 0;
        if (load(&m, source, n)) {
            harmless = render(&m, m.chat, &words);
            if (harmless.text) try_all(&m, &harmless, &words, &counts);
            free(harmless.text);
        }
        CHECK(counts.n_wrong == 0, "%s: %zu of %zu texts became tokens", names[i], counts.n_wrong, counts.n);
        if (counts.n_read > 0) test_note("%s: reads %zu of %zu texts", names[i], counts.n_read, counts.n);
        all.n += counts.n;
        all.n_read += counts.n_read;
        free(source);
        plumb_model_free(m.model);
        m.model = NULL;
    }
    test_note("%zu texts in %zu templates", all.n, n_tried);
    CHECK(n_name == 70 && n_without == 0, "%zu templates, %zu without tokens", n_name, n_without);
    CHECK(all.n > 28 * n_tried && all.n_read < 5, "%zu texts, %zu of them read by a template", all.n, all.n_read);
}

void test_chat(void) {
    test_case("chat: no text becomes a control token in 70 templates", stays_text);
}
