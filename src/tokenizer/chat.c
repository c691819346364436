/* Formats chats by known template families, for hosts without a Jinja engine.
 *
 * tokenizer.chat_template is searched for texts that identify its family (the same texts as in llama.cpp, where it
 * knows the family).  A row of a table then says how to format the chat.  The result is that of the template itself,
 * without the BOS token in front, which tokenizing adds.  A template of no known family is an error, not a guess.
 */
#include "tokenizer/tokenizer.h"

struct family {
    const char *name;
    const char *has[3];         /* texts that a template of the family contains, all of them */
    const char *has_not;        /* a text that it does not contain, or NULL */
    const char *system[2];      /* what is written before and after the text of a message */
    const char *user[2], *assistant[2];
    const char *open;           /* opens the assistant's turn */
    const char *user_separator; /* written before every user's turn but the first */
    unsigned flags;
};
enum {
    TRIM = 1,                   /* user and assistant texts lose white space at both ends */
    TRIM_ASSISTANT = 2,         /* assistant texts lose it */
    TRIM_SYSTEM = 4,            /* system texts lose it, also inside a user's turn */
    SYSTEM_FIRST = 8,           /* the system text has no turn of its own, but begins the next user's turn */
    SYSTEM_LAST = 16,           /* it begins the last message, if that is a user's turn */
    SYSTEM_ALWAYS = 32,         /* there is a system turn even without a system text */
    JOINED = 64,                /* with SYSTEM_FIRST and TRIM: both texts are trimmed as one */
    OPEN_AFTER_USER = 128,      /* the assistant's turn is opened only after a user's */
};

#define CHATML(role) {"<|im_start|>" role "\n", "<|im_end|>\n"}
#define LLAMA3(role) {"<|start_header_id|>" role "<|end_header_id|>\n\n", "<|eot_id|>"}
#define BARS(role, end) {"<|" role "|>\n", end "\n"}

/* In order of precedence: the first family that fits is used. */
static const struct family families[] = {
    {"phi4", {"<|im_start|>", "<|im_sep|>"}, NULL, {"<|im_start|>system<|im_sep|>", "<|im_end|>"},
     {"<|im_start|>user<|im_sep|>", "<|im_end|>"}, {"<|im_start|>assistant<|im_sep|>", "<|im_end|>"},
     "<|im_start|>assistant<|im_sep|>", "", OPEN_AFTER_USER},
    {"chatml", {"<|im_start|>"}, "<end_of_utterance>", CHATML("system"), CHATML("user"), CHATML("assistant"),
     "<|im_start|>assistant\n", "", 0},
    {"mistral-v1", {"' [INST] ' + system_message"}, NULL, {"", "\n\n"}, {" [INST] ", " [/INST]"}, {" ", "</s>"},
     "", "", SYSTEM_FIRST},
    {"mistral-v3-tekken", {"[AVAILABLE_TOOLS]", "\"[INST]\""}, "[SYSTEM_PROMPT]", {"", "\n\n"}, {"[INST]", "[/INST]"},
     {"", "</s>"}, "", "", SYSTEM_LAST},
    {"mistral-v3", {"[AVAILABLE_TOOLS]", "[INST]"}, "[SYSTEM_PROMPT]", {"", "\n\n"}, {"[INST] ", "[/INST]"},
     {" ", "</s>"}, "", "", SYSTEM_LAST | TRIM_ASSISTANT},
    {"llama2", {"[INST]", "<<SYS>>", "bos_token + '[INST]"}, "[SYSTEM_PROMPT]", {"<<SYS>>\n", "\n<</SYS>>\n\n"},
     {"[INST] ", " [/INST]"}, {" ", " </s>"}, "", "<s>", TRIM | SYSTEM_FIRST | JOINED},
    {"llama2 without BOS between turns", {"[INST]", "<<SYS>>"}, "[SYSTEM_PROMPT]", {"<<SYS>>\n", "\n<</SYS>>\n\n"},
     {"[INST] ", " [/INST]"}, {" ", " </s>"}, "", "", TRIM | SYSTEM_FIRST | JOINED},
    {"mistral", {"[INST]"}, "[SYSTEM_PROMPT]", {"", "\n\n"}, {"[INST] ", " [/INST]"}, {"", "</s>"}, "", "",
     SYSTEM_FIRST},
    {"phi3", {"<|assistant|>", "<|end|>"}, NULL, BARS("system", "<|end|>"), BARS("user", "<|end|>"),
     BARS("assistant", "<|end|>"), "<|assistant|>\n", "", 0},
    {"stablelm", {"<|user|>", "<|endoftext|>"}, "<sop>", BARS("system", "<|endoftext|>"), BARS("user", "<|endoftext|>"),
     BARS("assistant", "<|endoftext|>"), "<|assistant|>\n", "", 0},
    {"zephyr", {"<|user|>", "<|assistant|>", "eos_token"}, "<sop>", BARS("system", "</s>"), BARS("user", "</s>"),
     BARS("assistant", "</s>"), "<|assistant|>\n", "", 0},
    {"gemma", {"<start_of_turn>"}, NULL, {"", "\n\n"}, {"<start_of_turn>user\n", "<end_of_turn>\n"},
     {"<start_of_turn>model\n", "<end_of_turn>\n"}, "<start_of_turn>model\n", "", TRIM | SYSTEM_FIRST},
    {"llama3.1", {"<|start_header_id|>", "<|end_header_id|>", "Cutting Knowledge Date: December 2023\\n"}, NULL,
     {"<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\n"
      "Today Date: 26 Jul 2024\n\n", "<|eot_id|>"}, LLAMA3("user"), LLAMA3("assistant"),
     "<|start_header_id|>assistant<|end_header_id|>\n\n", "", TRIM | TRIM_SYSTEM | SYSTEM_ALWAYS},
    {"llama3", {"<|start_header_id|>", "<|end_header_id|>"}, NULL, LLAMA3("system"), LLAMA3("user"),
     LLAMA3("assistant"), "<|start_header_id|>assistant<|end_header_id|>\n\n", "", TRIM | TRIM_SYSTEM},
};

/* Returns where word begins in s, or NULL. */
static const char *find(struct gguf_string s, const char *word) {
    size_t n = strlen(word), size = (size_t)s.n;
    for (size_t i = 0; n <= size && i <= size - n; i++) {
        if (memcmp(s.data + i, word, n) == 0) return s.data + i;
    }
    return NULL;
}

static const struct family *recognize(struct gguf_string text) {
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        const struct family *f = &families[i];
        bool fits = f->has_not == NULL || find(text, f->has_not) == NULL;
        for (size_t k = 0; k < 3 && f->has[k] != NULL; k++) fits = fits && find(text, f->has[k]) != NULL;
        if (fits) return f;
    }
    return NULL;
}

/* Returns the default system text of a ChatML template, such as '<|im_start|>system\nYou are...<|im_end|>', or one with
 * n = 0 if the template has none.  In that case "system\n" is at the end of a string literal, so that a quote follows
 * before <|im_end|>. */
static struct gguf_string default_system(struct gguf_string text) {
    static const char *const starts[] = {"<|im_start|>system\\n", "<|im_start|>system\n"};
    for (size_t k = 0; k < 2; k++) {
        struct gguf_string rest = text;
        for (const char *at; (at = find(rest, starts[k])) != NULL;) {
            at += strlen(starts[k]);
            rest = (struct gguf_string){at, (uint64_t)(text.data + text.n - at)};
            const char *end = find(rest, "<|im_end|>");
            if (end == NULL) break;
            uint64_t n = (uint64_t)(end - at);
            if (n > 0 && memchr(at, '\'', (size_t)n) == NULL && memchr(at, '"', (size_t)n) == NULL &&
                memchr(at, '\\', (size_t)n) == NULL && memchr(at, '{', (size_t)n) == NULL) {
                return (struct gguf_string){at, n};
            }
        }
    }
    return (struct gguf_string){"", 0};
}

struct out {
    char *buf;
    size_t cap;
    uint64_t n;
};

static void put(struct out *out, const char *s, uint64_t n) {
    uint64_t room = out->n < out->cap ? out->cap - out->n : 0;
    if (room > 0) memcpy(out->buf + out->n, s, (size_t)(n < room ? n : room));
    out->n += n;
}

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static void put_text(struct out *out, const char *text, bool trim_begin, bool trim_end) {
    size_t begin = 0, end = strlen(text);
    while (trim_begin && begin < end && is_space(text[begin])) begin++;
    while (trim_end && begin < end && is_space(text[end - 1])) end--;
    put(out, text + begin, end - begin);
}

static void put_word(struct out *out, const char *word) { put(out, word, strlen(word)); }

static void put_turn(struct out *out, const char *const around[2], const char *text, bool trim) {
    put_word(out, around[0]);
    put_text(out, text, trim, trim);
    put_word(out, around[1]);
}

/* Writes a user's turn.  system, if not NULL, is the system text that begins it. */
static void put_user(struct out *out, const struct family *f, const char *system, const char *text, bool first) {
    if (!first) put_word(out, f->user_separator);
    put_word(out, f->user[0]);
    if (system != NULL) {
        put_turn(out, f->system, system, (f->flags & TRIM_SYSTEM) != 0);
    }
    bool joined = system != NULL && (f->flags & JOINED);
    put_text(out, text, (f->flags & TRIM) && !joined, (f->flags & TRIM) != 0);
    put_word(out, f->user[1]);
}

int64_t chat_format(const struct gguf_string *chat_template, const plumb_message *messages, size_t n,
                    bool add_assistant, char *buf, size_t cap, struct error *err) {
    if (chat_template == NULL) {
        return error_set(err, PLUMB_ERROR_TEMPLATE, "chat: the file has no tokenizer.chat_template");
    }
    const struct family *f = recognize(*chat_template);
    if (f == NULL) {
        struct shown shown;
        return error_set(err, PLUMB_ERROR_TEMPLATE, "chat: tokenizer.chat_template belongs to no known family: \"%s\"",
                         show_bytes(&shown, chat_template->data, (size_t)chat_template->n));
    }
    enum role { SYSTEM, USER, ASSISTANT };
    static const char *const names[] = {"system", "user", "assistant"};
    struct out out = {buf, cap, 0};
    const char *pending_system = NULL;   /* a system text for a later user's turn */
    bool first_user = true;
    if (n == 0 || strcmp(messages[0].role, names[SYSTEM]) != 0) {
        struct gguf_string text = strcmp(f->name, "chatml") == 0 ? default_system(*chat_template)
                                                                 : (struct gguf_string){"", 0};
        if (text.n > 0 || (f->flags & SYSTEM_ALWAYS)) {
            put_word(&out, f->system[0]);
            put(&out, text.data, text.n);
            put_word(&out, f->system[1]);
        }
    }
    for (size_t i = 0; i < n; i++) {
        const char *content = messages[i].content;
        size_t role = 0;
        while (role < 3 && strcmp(messages[i].role, names[role]) != 0) role++;
        switch (role) {
        case SYSTEM:
            if (f->flags & (SYSTEM_FIRST | SYSTEM_LAST)) pending_system = content;
            else put_turn(&out, f->system, content, (f->flags & TRIM_SYSTEM) != 0);
            break;
        case USER: {
            bool with_system = i + 1 == n || !(f->flags & SYSTEM_LAST);
            put_user(&out, f, with_system ? pending_system : NULL, content, first_user);
            if (with_system) pending_system = NULL;
            first_user = false;
            break;
        }
        case ASSISTANT:
            put_turn(&out, f->assistant, content, (f->flags & (TRIM | TRIM_ASSISTANT)) != 0);
            break;
        default: {
            struct shown shown;
            return error_set(err, PLUMB_ERROR_ARGUMENT,
                             "chat: message %zu has the role \"%s\", expected system, user or assistant", i,
                             show_bytes(&shown, messages[i].role, strlen(messages[i].role)));
        }
        }
    }
    bool after_user = n > 0 && strcmp(messages[n - 1].role, names[USER]) == 0;
    if (add_assistant && (after_user || !(f->flags & OPEN_AFTER_USER))) put_word(&out, f->open);
    return (int64_t)out.n;
}
