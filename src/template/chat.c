/* Adapts a chat to what its template understands, as llama.cpp's server does.
 *
 * Templates differ in what they accept: some have no system role, some want the content of a message as a string and
 * others as a list of parts, some want the arguments of a tool call as an object.  What a template accepts is found out
 * by rendering small chats: a template that understands a text prints it.  Some families of models need more; they are
 * known by texts in their templates.
 */
#include "template/template.h"

#include <time.h>

/* The text that small chats contain. */
#define MARK "STRING_MARKER"
#define USER "{\"role\":\"user\",\"content\":\"User message\"}"

/* A rendering of a small chat. */
struct trial {
    struct render r;
    struct error err;
    struct value variables;
    struct output out;
};

/* Makes the variables of a small chat.  The trial is to be freed with render_free. */
static void begin_trial(struct trial *trial, struct render *r, const struct chat_template *t, const char *json) {
    const uint64_t limit = 1u << 24;   /* of bytes and of work; enough for a small chat */
    *trial = (struct trial){.r = {.source = t->source, .now = t->now, .err = &trial->err,
                                  .max_bytes = r->max_bytes < limit ? r->max_bytes : limit,
                                  .max_work = r->max_work < limit ? r->max_work : limit}};
    trial->variables = value_from_json(&trial->r, "a small chat", json, strlen(json));
}

/* Renders it.  Returns whether the template accepts it. */
static bool run_trial(struct trial *trial, struct render *r, const struct chat_template *t) {
    if (trial->r.stop == STOP_NOT) template_run(&trial->r, t, trial->variables.as.object, &trial->out);
    if (trial->err.status == PLUMB_ERROR_MEMORY) render_no_memory(r, trial->out.n);
    return trial->r.stop == STOP_NOT;
}

/* Whether the template prints MARK for a chat with these messages, and not as the member of an object that is printed
 * as it is, {'text': 'MARK'}, or, unless as_json is allowed, as {"text": "MARK"}. */
static bool prints(struct render *r, const struct chat_template *t, const char *json, bool as_json) {
    struct trial trial;
    bool found = false;
    begin_trial(&trial, r, t, json);
    if (run_trial(&trial, r, t)) {
        struct text text = output_text(&trial.out);
        size_t at = text_find(&trial.r, text, text_of(MARK));
        const char *mark = at != SIZE_MAX ? text.data + at : NULL;
        bool is_member = mark && at >= 3 && mark[-3] == ':' && mark[-2] == ' ';
        found = mark && !(is_member && (mark[-1] == '\'' || (mark[-1] == '"' && !as_json)));
    }
    render_free(&trial.r);
    return found;
}

static struct value *member(struct render *r, struct value v, const char *name) {
    return v.kind == OBJECT ? object_find(r, v.as.object, value_string(text_of(name))) : NULL;
}

static bool is_word(const struct value *v, const char *word) {
    return v && v->kind == STRING && text_is_word(v->as.text, word);
}

static void set(struct render *r, struct value v, const char *name, struct value item) {
    object_set(r, v.as.object, value_string(text_of(name)), item);
}

/* Whether the template reads the parts of a content that has none.  If it does not, llama.cpp does not find out that it
 * takes parts. */
static bool reads_parts(struct render *r, const struct chat_template *t) {
    struct trial trial;
    begin_trial(&trial, r, t, "{\"messages\":[{\"role\":\"user\",\"content\":[]}]}");
    /* They are looked for before the template can change its variables. */
    struct value *messages = member(&trial.r, trial.variables, "messages");
    struct value *content = messages ? member(&trial.r, messages->as.list->items[0], "content") : NULL;
    const struct list *parts = content ? content->as.list : NULL;
    bool is_read = run_trial(&trial, r, t) && parts && parts->is_read;
    render_free(&trial.r);
    return is_read;
}

/* Writes a value that is a text or a number. */
static void put_text(struct render *r, struct output *out, struct value v) {
    if (v.kind >= BOOLEAN && v.kind <= STRING) value_write(r, out, v);
}

/* Puts the text of a first system message before that of the next message. */
static void merge_system(struct render *r, struct list *messages) {
    struct value *system = member(r, messages->items[0], "content");
    if (messages->n > 1 && messages->items[1].kind == OBJECT && system) {
        struct value *next = member(r, messages->items[1], "content");
        struct output out = {NULL, 0, 0};
        put_text(r, &out, *system);
        output_put(r, &out, "\n", 1);
        if (next) put_text(r, &out, *next);
        set(r, messages->items[1], "content", value_output(&out));
    }
    messages->items++;
    messages->n--;
    messages->cap--;
}

/* Replaces the arguments of tool calls that are JSON text by its value. */
static void parse_arguments(struct render *r, struct value calls) {
    for (size_t i = 0; is_list(calls) && i < calls.as.list->n && r->stop == STOP_NOT; i++) {
        struct value *function = member(r, calls.as.list->items[i], "function");
        struct value *arguments = function ? member(r, *function, "arguments") : NULL;
        if (arguments && arguments->kind == STRING) {
            struct text json = arguments->as.text;
            *arguments = value_from_json(r, "the arguments of a tool call", json.data, json.n);
        }
    }
}

/* Joins the texts of the parts of a content. */
static struct value joined_parts(struct render *r, const struct list *parts) {
    struct output out = {NULL, 0, 0};
    for (size_t i = 0; i < parts->n && r->stop == STOP_NOT; i++) {
        struct value *text = member(r, parts->items[i], "text");
        if (!is_word(member(r, parts->items[i], "type"), "text") || !text) continue;
        if (out.n > 0) output_put(r, &out, "\n", 1);
        put_text(r, &out, *text);
    }
    return value_output(&out);
}

/* A part of a content: {type: type, [type]: text}. */
static struct value part(struct render *r, const char *type, struct value text) {
    struct value v = value_empty(r, OBJECT);
    if (r->stop != STOP_NOT) return text;
    set(r, v, "type", value_string(text_of(type)));
    set(r, v, type, text);
    return v;
}

/* The text as a list of one part. */
static struct value single_part(struct render *r, struct value text) {
    struct value parts = value_empty(r, LIST);
    if (r->stop == STOP_NOT) list_add(r, parts.as.list, part(r, "text", text));
    return r->stop == STOP_NOT ? parts : text;
}

/* Sets the variables that llama.cpp's server sets. */
static void set_variables(struct render *r, struct object *variables) {
    static const struct { const char *name, *format; } dates[] = {
        {"datetime", "%b %d %Y"}, {"date_string", "%d %b %Y"},
    };
    static const struct { const char *name; bool preserves; } names[] = {
        {"preserve_thinking", true}, {"clear_thinking", false}, {"truncate_history_thinking", false},
        {"drop_thinking", false},
    };
    time_t now = (time_t)r->now;
    struct tm *local = localtime(&now);
    for (size_t i = 0; i < sizeof dates / sizeof dates[0]; i++) {
        char date[32];
        struct output out = {NULL, 0, 0};
        output_put(r, &out, date, local ? strftime(date, sizeof date, dates[i].format, local) : 0);
        object_set_default(r, variables, dates[i].name, value_output(&out));
    }
    struct value *thinking = object_find(r, variables, value_string(text_of("enable_thinking")));
    if (thinking && thinking->kind == NONE) *thinking = value_undefined();
    if (thinking && thinking->kind != UNDEFINED && thinking->kind != BOOLEAN && r->stop == STOP_NOT) {
        r->stop = STOP_FAILED;   /* the text "false" would be true */
        error_set(r->err, PLUMB_ERROR_ARGUMENT, "enable_thinking is a %s, expected true or false",
                  kind_name(thinking->kind));
    }
    /* It does not set this one to false. */
    struct value *open = object_find(r, variables, value_string(text_of("add_generation_prompt")));
    if (open && open->kind == BOOLEAN && !open->as.truth) *open = value_undefined();
    struct value *preserve = object_find(r, variables, value_string(text_of("preserve_reasoning")));
    bool preserves = preserve && preserve->kind == BOOLEAN && preserve->as.truth;
    for (size_t i = 0; preserve && preserve->kind == BOOLEAN && i < sizeof names / sizeof names[0]; i++) {
        object_set_default(r, variables, names[i].name, value_bool(preserves == names[i].preserves));
    }
    struct value *effort = object_find(r, variables, value_string(text_of("reasoning_effort")));
    if (effort && effort->kind == STRING) object_set_default(r, variables, "reasoning_strength", *effort);
}

/* Removes the white space at the ends of a text. */
static void trim(struct value *v) {
    if (!v || v->kind != STRING) return;
    struct text *s = &v->as.text;
    while (s->n > 0 && is_space(s->data[0])) s->data++, s->n--;
    while (s->n > 0 && is_space(s->data[s->n - 1])) s->n--;
}

static void trim_message(struct render *r, struct value message) {
    struct value *content = member(r, message, "content");
    trim(content);
    trim(member(r, message, "reasoning_content"));
    for (size_t i = 0; content && content->kind == LIST && i < content->as.list->n && r->stop == STOP_NOT; i++) {
        struct value part = content->as.list->items[i];
        if (is_word(member(r, part, "type"), "text")) trim(member(r, part, "text"));
    }
}

/* ---- families ---------------------------------------------------------------------------------------------------- */

static bool has_role(struct render *r, struct value message, const char *role) {
    return is_word(member(r, message, "role"), role);
}

/* The calls of a message, or NULL if it has none. */
static struct list *calls_of(struct render *r, struct value message) {
    struct value *calls = member(r, message, "tool_calls");
    return calls && calls->kind == LIST && calls->as.list->n > 0 ? calls->as.list : NULL;
}

/* Copies the reasoning to the name that the template looks for. */
static void name_thinking(struct render *r, struct list *messages) {
    for (size_t i = 0; i < messages->n && r->stop == STOP_NOT; i++) {
        struct value *reasoning = member(r, messages->items[i], "reasoning_content");
        if (reasoning && reasoning->kind == STRING) set(r, messages->items[i], "thinking", *reasoning);
    }
}

static void erase(struct render *r, struct value v, const char *name) {
    struct value *found = member(r, v, name);
    if (!found) return;
    struct object *o = v.as.object;
    size_t i = 0;
    while (&o->members[i].value != found) i++;
    memmove(&o->members[i], &o->members[i + 1], (--o->n - i) * sizeof *o->members);
}

/* A message with calls has thinking, or a content. */
static void name_thinking_or_content(struct render *r, struct list *messages) {
    name_thinking(r, messages);
    for (size_t i = 0; i < messages->n && r->stop == STOP_NOT; i++) {
        struct value *thinking = member(r, messages->items[i], "thinking");
        if (thinking && thinking->kind == STRING && calls_of(r, messages->items[i])) {
            erase(r, messages->items[i], "content");
        }
    }
}

/* Makes reasoning a part of the content. */
static void reasoning_as_part(struct render *r, struct list *messages) {
    for (size_t i = 0; i < messages->n && r->stop == STOP_NOT; i++) {
        struct value message = messages->items[i];
        if (!has_role(r, message, "system") && !has_role(r, message, "assistant")) continue;
        struct value *reasoning = member(r, message, "reasoning_content"), *content = member(r, message, "content");
        struct value parts = value_empty(r, LIST);
        if (r->stop != STOP_NOT) return;
        if (reasoning && reasoning->kind == STRING) list_add(r, parts.as.list, part(r, "thinking", *reasoning));
        if (content && content->kind == STRING) list_add(r, parts.as.list, part(r, "text", *content));
        for (size_t k = 0; content && content->kind == LIST && k < content->as.list->n && r->stop == STOP_NOT; k++) {
            list_add(r, parts.as.list, content->as.list->items[k]);
        }
        if (r->stop == STOP_NOT) set(r, message, "content", parts);
        erase(r, message, "reasoning_content");
    }
}

/* The place of the call whose result a message is, or 0. */
static size_t call_place(struct render *r, const struct list *calls, struct value result) {
    struct value *id = member(r, result, "tool_call_id");
    for (size_t i = calls->n; id && i-- > 0 && r->stop == STOP_NOT;) {
        struct value *own = member(r, calls->items[i], "id");
        if (own && value_equal(r, *own, *id)) return i;
    }
    return 0;
}

/* Sorts the results of calls by the order of the calls.  The users' messages between them stay where they are. */
static void sort_results(struct render *r, struct list *messages) {
    const struct list *calls = NULL;
    size_t first = 0;   /* of the messages since the last one of another role than user and tool */
    for (size_t i = 0; i < messages->n && r->stop == STOP_NOT; i++) {
        struct value message = messages->items[i];
        bool is_result = has_role(r, message, "tool");
        if (!is_result && !has_role(r, message, "user")) first = i + 1;
        if (has_role(r, message, "assistant") && calls_of(r, message)) calls = calls_of(r, message);
        if (!is_result || !calls) continue;
        size_t hole = i, place = call_place(r, calls, message);
        for (size_t k = i; k-- > first && render_work(r, 1);) {
            if (!has_role(r, messages->items[k], "tool")) continue;
            if (call_place(r, calls, messages->items[k]) <= place) break;
            messages->items[hole] = messages->items[k];
            hole = k;
        }
        messages->items[hole] = message;
    }
}

/* The value of a JSON text, or the text itself. */
static struct value json_or_text(struct render *r, struct value v) {
    if (v.kind != STRING) return v;
    struct error err = {PLUMB_OK, ""}, *own = r->err;
    r->err = &err;
    struct value parsed = value_from_json(r, "a result", v.as.text.data, v.as.text.n);
    r->err = own;
    if (r->stop == STOP_NOT) return parsed;
    if (err.status == PLUMB_ERROR_ARGUMENT) r->stop = STOP_NOT;
    else *own = err;
    return v;
}

/* Moves the results of calls, and the answer behind them, into the message with the calls. */
static void put_results_into_calls(struct render *r, struct list *messages) {
    size_t n = 0;
    for (size_t i = 0; i < messages->n && r->stop == STOP_NOT; i++) {
        struct value message = messages->items[i], *reasoning = member(r, message, "reasoning_content");
        struct list *calls = has_role(r, message, "assistant") ? calls_of(r, message) : NULL;
        messages->items[n++] = message;
        if (!calls) continue;
        struct value turn = value_empty(r, OBJECT), responses = value_empty(r, LIST);
        if (r->stop != STOP_NOT) return;
        set(r, turn, "role", value_string(text_of("assistant")));
        set(r, turn, "tool_calls", (struct value){LIST, {.list = calls}});
        for (; i + 1 < messages->n && has_role(r, messages->items[i + 1], "tool"); i++) {
            struct value result = messages->items[i + 1], *content = member(r, result, "content");
            size_t k = responses.as.list->n;
            struct value *function = k < calls->n ? member(r, calls->items[k], "function") : NULL;
            struct value *name = function ? member(r, *function, "name") : NULL, response = value_empty(r, OBJECT);
            if (!name || (name->kind == STRING && name->as.text.n == 0)) name = member(r, result, "tool_call_id");
            if (r->stop != STOP_NOT) return;
            set(r, response, "name", name ? *name : value_string(text_of("")));
            set(r, response, "response", content ? json_or_text(r, *content) : (struct value){.kind = NONE});
            list_add(r, responses.as.list, response);
        }
        if (responses.as.list->n > 0) set(r, turn, "tool_responses", responses);
        struct value *answer = NULL;
        if (i + 1 < messages->n && has_role(r, messages->items[i + 1], "assistant")
            && !calls_of(r, messages->items[i + 1])) answer = member(r, messages->items[i + 1], "content");
        if (answer && (answer->kind == STRING ? answer->as.text.n > 0 : is_list(*answer) && answer->as.list->n > 0)) {
            set(r, turn, "content", *answer);
            i++;
        }
        if (reasoning && reasoning->kind == STRING) set(r, turn, "reasoning_content", *reasoning);
        messages->items[n - 1] = turn;
    }
    messages->n = n;
}

/* The last answer of a chat ends as those before it do. */
static void end_last_turn(struct render *r, bool opens_turn, struct output *out) {
    static const char last[] = "<|return|>";
    const struct text text = output_text(out);
    size_t n = sizeof last - 1, at = text.n >= n ? text.n - n + 1 : 0;
    while (!opens_turn && at-- > 0 && render_work(r, 1)) {
        if (memcmp(text.data + at, last, n) != 0 || text_is_marked(text_part(text, at, n))) continue;
        struct output changed = {NULL, 0, 0};
        output_add(r, &changed, text_part(text, 0, at));
        output_word(r, &changed, "<|end|>");
        output_add(r, &changed, text_part(text, at + n, text.n - at - n));
        *out = changed;
        return;
    }
}

/* The template opens no turn behind an answer that follows the results of calls. */
static void open_turn(struct render *r, bool opens_turn, struct output *out) {
    static const char end[] = "<turn|>\n";
    size_t n = sizeof end - 1;
    if (opens_turn && out->n >= n && memcmp(out->data + out->n - n, end, n) == 0) output_word(r, out, "<|turn>model\n");
}

/* A template belongs to the first family of which it has all texts and not the one that it lacks. */
static const struct family {
    const char *has[3], *lacks;
    void (*adjust)(struct render *r, struct list *messages);
    void (*finish)(struct render *r, bool opens_turn, struct output *out);   /* changes the prompt */
    const char *stop;                                                        /* ends an answer */
} families[] = {
    {.has = {"[SYSTEM_PROMPT]", "[TOOL_CALLS]", "[ARGS]"}, .lacks = "[CALL_ID]",   /* Ministral 3 */
     .adjust = reasoning_as_part},
    {.has = {"<|channel|>"}, .adjust = name_thinking_or_content, .finish = end_last_turn},   /* gpt-oss */
    {.has = {"<atem:function_calls>", "<|eom|>"}},
    {.has = {">>>all", ">>>${recipient}"}},
    {.has = {"<|tool_calls_section_begin|>", "<|tool_call_begin|>"}},
    {.has = {"<|open|>", "<|close|>", "<|end_of_msg|>"}},
    {.has = {"<role>ASSISTANT</role>", "<arg_key>"}, .stop = "<|role_end|>"},   /* Ling 3 */
    {.has = {"<|START_TEXT|>", "<|START_ACTION|>"}},
    {.has = {"<|tool_list_start|>", "<|tool_list_end|>"}, .adjust = name_thinking},   /* LFM2 */
    {.has = {"List of tools: ["}, .lacks = "<|tool_list_start|>", .adjust = name_thinking},   /* LFM2.5 */
    {.has = {"<|role_sep|>", "<|message_sep|>"}, .lacks = "<|function_call|>"},
    {.has = {"]<]minimax[>[", "<tool_call>", "<invoke name="}},
    {.has = {"dsml_token", "DSML", "function_calls"}},
    {.has = {"dsml_token", "DSML", "tool_calls"}, .adjust = sort_results},   /* DeepSeek V4 */
    {.has = {"'<|tool_call>call:'", "{#- OpenAI Chat Completions:"}, .finish = open_turn},   /* Gemma 4 */
    {.has = {"'<|tool_call>call:'"}, .adjust = put_results_into_calls, .finish = open_turn},   /* its first one */
    {.has = {"laguna_glm_thinking"}, .stop = "</assistant>"},   /* Laguna */
    {.has = {NULL}},
};

static const struct family *family_of(struct render *r, struct text source) {
    for (const struct family *f = families;; f++) {
        bool is_it = !f->lacks || text_find(r, source, text_of(f->lacks)) == SIZE_MAX;
        for (size_t i = 0; i < 3 && f->has[i] && is_it; i++) {
            is_it = text_find(r, source, text_of(f->has[i])) != SIZE_MAX;
        }
        if (is_it || r->stop != STOP_NOT) return f;
    }
}

const char *chat_stop(struct text source) {
    struct error err = {PLUMB_OK, ""};
    struct render r = {.source = source, .err = &err, .max_work = UINT64_MAX};
    return family_of(&r, source)->stop;
}

/* ---- the chat ---------------------------------------------------------------------------------------------------- */

/* Changes the messages to what the template accepts. */
static void adapt(struct render *r, const struct chat_template *t, struct list *messages) {
    bool has_parts = false, has_calls = false;
    /* The models of these templates do not bear spaces around a text. */
    bool trims = text_find(r, t->source, text_of("You have access to the following functions in JSONSchema format"))
                 != SIZE_MAX;
    bool has_developer = text_find(r, t->source, text_of("<|channel|>")) != SIZE_MAX;
    for (size_t i = 0; i < messages->n && r->stop == STOP_NOT; i++) {
        struct value message = messages->items[i], *role = member(r, message, "role");
        struct value *content = member(r, message, "content");
        if (!has_developer && is_word(role, "developer")) *role = value_string(text_of("system"));
        if (member(r, message, "tool_calls")) {
            has_calls = true;
            if (!content || content->kind == NONE) set(r, message, "content", value_string(text_of("")));
        }
        if (trims) trim_message(r, message);
        has_parts = has_parts || (content && content->kind == LIST);
    }
    bool takes_text = prints(r, t, "{\"messages\":[{\"role\":\"user\",\"content\":\"" MARK "\"}]}", false);
    bool takes_parts = (has_parts || !takes_text)
                       && prints(r, t, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\""
                                 MARK "\"}]}]}", false)
                       && (!takes_text || reads_parts(r, t));
    for (size_t i = 0; i < messages->n && r->stop == STOP_NOT && takes_text != takes_parts; i++) {
        struct value *content = member(r, messages->items[i], "content");
        if (content && content->kind == STRING && !takes_text) *content = single_part(r, *content);
        if (content && content->kind == LIST && !takes_parts) *content = joined_parts(r, content->as.list);
    }
    bool has_system = messages->n > 0 && is_word(member(r, messages->items[0], "role"), "system");
    if (has_system
        && !prints(r, t, "{\"messages\":[{\"role\":\"system\",\"content\":\"" MARK "\"}," USER "]}", false)) {
        merge_system(r, messages);
    }
    if (has_calls && prints(r, t, "{\"messages\":[" USER ",{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":"
                            "[{\"id\":\"call00001\",\"type\":\"function\",\"function\":{\"name\":\"tool1\","
                            "\"arguments\":{\"arg\":\"" MARK "\"}}}]},{\"role\":\"tool\",\"content\":\"Tool response\","
                            "\"tool_call_id\":\"call00001\"},{\"role\":\"assistant\",\"content\":\"The response\"},"
                            USER "]}", true)) {
        for (size_t i = 0; i < messages->n && r->stop == STOP_NOT; i++) {
            struct value *calls = member(r, messages->items[i], "tool_calls");
            if (calls) parse_arguments(r, *calls);
        }
    }
}

/* A role is a word of the program that calls and not a text of a user.  Templates make control tokens of it, such as
 * <|user|>. */
static void trust_roles(struct render *r, struct list *messages) {
    for (size_t i = 0; i < messages->n && r->stop == STOP_NOT; i++) {
        struct value *role = member(r, messages->items[i], "role");
        bool is_word = role && role->kind == STRING;
        for (size_t k = 0; is_word && k < role->as.text.n; k++) {
            const char c = role->as.text.data[k];
            is_word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
        }
        if (is_word) role->as.text.marks = 0;
    }
}

/* The tools may be JSON text, which then has to be a list. */
static void parse_tools(struct render *r, struct object *variables) {
    struct value *tools = object_find(r, variables, value_string(text_of("tools")));
    if (!tools || tools->kind != STRING) return;
    *tools = value_from_json(r, "the tools", tools->as.text.data, tools->as.text.n);
    if (r->stop != STOP_NOT || tools->kind == LIST) return;
    r->stop = STOP_FAILED;
    error_set(r->err, PLUMB_ERROR_ARGUMENT, "the tools are not a JSON array");
}

void chat_run(struct render *r, const struct chat_template *t, struct object *variables, struct output *out) {
    const struct family *family = family_of(r, t->source);
    set_variables(r, variables);
    struct value *open = object_find(r, variables, value_string(text_of("add_generation_prompt")));
    bool opens_turn = open && open->kind == BOOLEAN && open->as.truth;   /* the template may change the variable */
    struct value *messages = object_find(r, variables, value_string(text_of("messages")));
    parse_tools(r, variables);
    if (messages && messages->kind == LIST && r->stop == STOP_NOT) {
        trust_roles(r, messages->as.list);
        adapt(r, t, messages->as.list);
        if (family->adjust && r->stop == STOP_NOT) family->adjust(r, messages->as.list);
    }
    if (r->stop == STOP_NOT) template_run(r, t, variables, out);
    if (r->stop == STOP_NOT && family->finish) family->finish(r, opens_turn, out);
}
