/* Adapts a chat to what its template understands, as llama.cpp's server does.
 *
 * Templates differ in what they accept: some have no system role, some want the content of a message as a string and
 * others as a list of parts, some want the arguments of a tool call as an object.  What a template accepts is found out
 * by rendering small chats: a template that understands a text prints it.
 */
#include "template/template.h"

#include <stdlib.h>
#include <time.h>

/* The text that small chats contain. */
#define MARK "STRING_MARKER"
#define USER "{\"role\":\"user\",\"content\":\"User message\"}"

/* Whether the template prints MARK for a chat with these messages, and not as the member of an object that is printed
 * as it is, {'text': 'MARK'}, or, unless as_json is allowed, as {"text": "MARK"}. */
static bool prints(struct render *r, const struct chat_template *t, const char *json, bool as_json) {
    char *text;
    size_t n;
    struct error err = {PLUMB_OK, ""};
    bool found = false;
    struct template_limits limits = {1u << 24, 1u << 24};   /* enough for a small chat */
    if (r->max_work < limits.work) limits.work = r->max_work;
    if (r->max_bytes < limits.bytes) limits.bytes = r->max_bytes;
    plumb_status status = template_render(t, json, strlen(json), false, limits, &text, &n, &err);
    if (status == PLUMB_ERROR_MEMORY) render_no_memory(r, strlen(json));
    if (status == PLUMB_OK) {
        const char *mark = strstr(text, MARK);
        bool is_member = mark && mark - text >= 3 && mark[-3] == ':' && mark[-2] == ' ';
        found = mark && !(is_member && (mark[-1] == '\'' || (mark[-1] == '"' && !as_json)));
    }
    free(text);
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

/* Puts the text of a first system message before that of the next message. */
static void merge_system(struct render *r, struct list *messages) {
    struct value *system = member(r, messages->items[0], "content");
    if (messages->n > 1 && messages->items[1].kind == OBJECT && system) {
        struct value *next = member(r, messages->items[1], "content");
        struct output out = {NULL, 0, 0};
        value_print(r, &out, *system);
        output_put(r, &out, "\n", 1);
        if (next) value_print(r, &out, *next);
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
        value_print(r, &out, *text);
    }
    return value_output(&out);
}

/* The text as a list of one part. */
static struct value single_part(struct render *r, struct value text) {
    struct value parts = value_empty(r, LIST), part = value_empty(r, OBJECT);
    if (r->stop != STOP_NOT) return text;
    set(r, part, "type", value_string(text_of("text")));
    set(r, part, "text", text);
    list_add(r, parts.as.list, part);
    return parts;
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
    object_set_default(r, variables, "enable_thinking", value_bool(true));
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

/* The text without white space at its ends. */
static struct value trimmed(struct value v) {
    struct text s = v.as.text;
    while (s.n > 0 && is_space(s.data[0])) s.data++, s.n--;
    while (s.n > 0 && is_space(s.data[s.n - 1])) s.n--;
    return value_string(s);
}

void chat_adapt(struct render *r, const struct chat_template *t, struct object *variables) {
    set_variables(r, variables);
    struct value *found = object_find(r, variables, value_string(text_of("messages")));
    if (!found || found->kind != LIST) return;
    struct list *messages = found->as.list;
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
        if (trims && content && content->kind == STRING) *content = trimmed(*content);
        has_parts = has_parts || (content && content->kind == LIST);
    }
    bool takes_text = prints(r, t, "{\"messages\":[{\"role\":\"user\",\"content\":\"" MARK "\"}]}", false);
    bool takes_parts = (has_parts || !takes_text)
                       && prints(r, t, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\""
                                 MARK "\"}]}]}", false);
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
