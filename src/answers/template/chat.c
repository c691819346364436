/* Adapts a chat to what its template understands, as llama.cpp's server does.
 *
 * Templates differ in what they accept: some have no system role, some want the content of a message as a string and
 * others as a list of parts, some want the arguments of a tool call as an object.  What a template accepts is found out
 * by rendering small chats: a template that understands a text prints it.  Some families of models need more
 * (families.c).
 */
#include "template/builtins.h"
#include "template/families.h"
#include "template/messages.h"
#include "template/template.h"

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

/* Sets the variables that llama.cpp's server sets. */
static void set_variables(struct render *r, struct object *variables) {
    static const struct { const char *name, *format; } dates[] = {
        {"datetime", "%b %d %Y"}, {"date_string", "%d %b %Y"},
    };
    static const struct { const char *name; bool preserves; } names[] = {
        {"preserve_thinking", true}, {"clear_thinking", false}, {"truncate_history_thinking", false},
        {"drop_thinking", false},
    };
    for (size_t i = 0; i < sizeof dates / sizeof dates[0]; i++) {
        struct output out = {NULL, 0, 0};
        output_time(r, &out, r->now, text_of(dates[i].format));
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

/* ---- the chat ---------------------------------------------------------------------------------------------------- */

/* Members in the order in which llama.cpp has them, since templates may print an object as JSON; those that are empty
 * are left out, except the first n_kept, and all others follow. */
static void order_members(struct render *r, struct value v, size_t n_kept, const char *const names[], size_t n) {
    struct value ordered = value_empty(r, OBJECT);
    for (size_t i = 0; i < n && r->stop == STOP_NOT; i++) {
        struct value *found = member(r, v, names[i]);
        if (found && (i < n_kept || value_truth(*found))) set_member(r, ordered, names[i], *found);
    }
    for (size_t i = 0; i < v.as.object->n && r->stop == STOP_NOT; i++) {
        const struct member *m = &v.as.object->members[i];
        bool is_named = false;
        for (size_t k = 0; k < n; k++) is_named = is_named || is_word(&m->key, names[k]);
        if (!is_named) object_set(r, ordered.as.object, m->key, m->value);
    }
    if (r->stop == STOP_NOT) *v.as.object = *ordered.as.object;
}

static void order_call(struct render *r, struct value call) {
    static const char *const names[] = {"type", "function", "id"}, *const of_function[] = {"name", "arguments"};
    struct value *function = member(r, call, "function");
    if (!function) return;   /* the template may refuse it */
    if (function->kind == OBJECT) order_members(r, *function, 2, of_function, 2);
    if (!member(r, call, "type")) set_member(r, call, "type", value_string(text_of("function")));
    if (r->stop == STOP_NOT) order_members(r, call, 0, names, 3);
}

static void order_message(struct render *r, struct value message) {
    static const char *const names[] = {"role", "content", "reasoning_content", "name", "tool_call_id", "tool_calls"};
    if (message.kind != OBJECT) return;
    struct value *content = member(r, message, "content");
    struct value kept = content && content->kind != NONE ? *content : value_string(text_of(""));
    struct list *calls = calls_of(r, message);
    for (size_t i = 0; calls && i < calls->n && r->stop == STOP_NOT; i++) order_call(r, calls->items[i]);
    set_member(r, message, "content", value_bool(true));   /* it keeps its place, even if it is empty */
    if (r->stop == STOP_NOT) order_members(r, message, 1, names, 6);
    if (r->stop == STOP_NOT) set_member(r, message, "content", kept);
}

/* A tool has a name, a description and parameters, and nothing else. */
static struct value ordered_tool(struct render *r, struct value tool) {
    struct value *function = member(r, tool, "function");
    if (!is_word(member(r, tool, "type"), "function") || !function || function->kind != OBJECT) return tool;
    struct value ordered = value_empty(r, OBJECT), inner = value_empty(r, OBJECT);
    struct value *name = member(r, *function, "name"), *description = member(r, *function, "description");
    struct value *parameters = member(r, *function, "parameters"), none = value_empty(r, OBJECT);
    if (r->stop != STOP_NOT) return tool;
    if (name) set_member(r, inner, "name", *name);
    set_member(r, inner, "description", description && description->kind != NONE ? *description
                                                                                 : value_string(text_of("")));
    set_member(r, inner, "parameters", parameters && parameters->kind != NONE ? *parameters : none);
    set_member(r, ordered, "type", value_string(text_of("function")));
    set_member(r, ordered, "function", inner);
    return ordered;
}

/* Whether a content is a list of nothing but texts. */
static bool is_all_text(struct render *r, const struct value *content) {
    if (!content || content->kind != LIST) return false;
    for (size_t i = 0; i < content->as.list->n; i++) {
        struct value part = content->as.list->items[i], *text = member(r, part, "text");
        if (!is_word(member(r, part, "type"), "text") || !text || text->kind != STRING) return false;
    }
    return true;
}

/* Joins parts of text to one text, or makes one part of a text, if the template needs it. */
static void fit_content(struct render *r, struct value message, const struct capabilities *can) {
    struct value *content = member(r, message, "content");
    if (can->text && !can->parts && is_all_text(r, content)) {
        struct output out = {NULL, 0, 0};
        output_content(r, &out, content);
        *content = value_output(&out);
    } else if (!can->text && can->parts && content && content->kind == STRING) {
        struct value parts = value_empty(r, LIST);
        if (r->stop == STOP_NOT) add_parts(r, parts.as.list, content);
        if (r->stop == STOP_NOT) *content = parts;
    }
}

/* Puts the content of a first system message before that of the next message. */
static void merge_system(struct render *r, struct list *messages) {
    struct value *system = member(r, messages->items[0], "content");
    if (messages->n > 1 && messages->items[1].kind == OBJECT && system) {
        struct value *next = member(r, messages->items[1], "content"), joined = *system;
        if ((!next || next->kind != LIST) && system->kind != LIST) {
            struct output out = {NULL, 0, 0};
            output_content(r, &out, system);
            output_put(r, &out, "\n", 1);
            output_content(r, &out, next);
            joined = value_output(&out);
        } else {
            joined = value_empty(r, LIST);
            if (r->stop == STOP_NOT) add_parts(r, joined.as.list, system);
            if (r->stop == STOP_NOT) add_parts(r, joined.as.list, next);
        }
        if (r->stop == STOP_NOT) set_member(r, messages->items[1], "content", joined);
    }
    messages->items++;
    messages->n--;
    messages->cap--;
}

/* ---- calls and tools --------------------------------------------------------------------------------------------- */

/* What a template says of calls. */
struct calling {
    const struct format *format;
    bool takes_objects;    /* the arguments of a call are an object, and not JSON text */
    bool has_own_roles;    /* Granite 3.0 has its own roles for calls and results */
    bool wants_nine;       /* ids have nine letters and digits (Mistral) */
    bool writes_calls;     /* the template has no place for calls, so they become text */
};

/* Whether the template compares a length with 9. */
static bool compares_with_nine(struct text source) {
    for (size_t i = 0; i + 6 <= source.n; i++) {
        if (memcmp(source.data + i, "length", 6) != 0) continue;
        size_t at = i + 6;
        while (at < source.n && is_space(source.data[at])) at++;
        if (at + 2 >= source.n || memcmp(source.data + at, "!=", 2) != 0) continue;
        for (at += 2; at < source.n && is_space(source.data[at]);) at++;
        if (at < source.n && source.data[at] == '9'
            && (at + 1 == source.n || source.data[at + 1] < '0' || source.data[at + 1] > '9')) return true;
    }
    return false;
}

/* The last nine letters and digits of an id, behind zeros if there are fewer. */
static void shorten_id(struct render *r, struct value v, const char *name) {
    struct value *id = member(r, v, name);
    struct text given = id ? value_text(r, *id) : text_of("");
    char *nine = render_alloc(r, 9);
    if (!nine) return;
    memset(nine, '0', 9);
    for (size_t i = given.n, n = 9; i-- > 0 && n > 0;) {
        char c = given.data[i];
        if ((c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z')) nine[--n] = c;
    }
    set_member(r, v, name, value_string((struct text){nine, 9, 0}));
}

/* The calls as a list of {"name", "arguments"}. */
static struct list *plain_calls(struct render *r, const struct list *calls) {
    struct value plain = value_list(r, calls->n);
    for (size_t i = 0; i < calls->n && r->stop == STOP_NOT; i++) {
        struct value *function = member(r, calls->items[i], "function"), one = value_empty(r, OBJECT);
        struct value *name = function ? member(r, *function, "name") : NULL;
        struct value *arguments = function ? member(r, *function, "arguments") : NULL;
        if (r->stop == STOP_NOT && name) set_member(r, one, "name", *name);
        if (r->stop == STOP_NOT && arguments) set_member(r, one, "arguments", json_or_text(r, *arguments));
        list_add(r, plain.as.list, one);
    }
    return plain.as.list;
}

/* Puts the calls of a message behind its content, as the family's models write them. */
static void write_calls(struct render *r, struct value message, const struct format *format, const char *between) {
    struct output out = {NULL, 0, 0};
    output_content(r, &out, member(r, message, "content"));
    if (out.n > 0) output_word(r, &out, between);
    struct list *calls = plain_calls(r, calls_of(r, message));
    if (r->stop == STOP_NOT) family_write_calls(r, &out, format, calls);
    if (r->stop != STOP_NOT) return;
    set_member(r, message, "content", value_output(&out));
    erase_member(r, message, "tool_calls");
}

/* Changes calls and results to the form that the template expects. */
static void fit_calls(struct render *r, struct value message, const struct calling *how) {
    struct list *calls = calls_of(r, message);
    bool is_result = has_role(r, message, "tool");
    if (is_result && how->has_own_roles) set_member(r, message, "role", value_string(text_of("tool_response")));
    else if (is_result && how->wants_nine) shorten_id(r, message, "tool_call_id");
    for (size_t i = 0; calls && i < calls->n && r->stop == STOP_NOT; i++) {
        struct value *function = member(r, calls->items[i], "function");
        struct value *arguments = function ? member(r, *function, "arguments") : NULL;
        if (function && how->wants_nine) shorten_id(r, calls->items[i], "id");
        if (arguments && how->takes_objects) *arguments = json_or_text(r, *arguments);
    }
    if (!calls || r->stop != STOP_NOT) return;
    if (how->has_own_roles) {
        struct output out = {NULL, 0, 0};
        struct list *plain = plain_calls(r, calls);
        if (r->stop == STOP_NOT) output_json(r, &out, (struct value){LIST, {.list = plain}});
        if (r->stop != STOP_NOT) return;
        set_member(r, message, "role", value_string(text_of("assistant_tool_call")));
        set_member(r, message, "content", value_output(&out));
        erase_member(r, message, "tool_calls");
    } else if (how->writes_calls) {
        write_calls(r, message, how->format, "");
    }
}

/* Tells the model about tools in a system message, as the models of Hermes and Qwen are told about them, if the
 * template does not.  Results of calls become messages of the user. */
static void describe_tools(struct render *r, const struct format *format, bool writes_calls, struct list *messages,
                           const struct list *tools) {
    struct output out = {NULL, 0, 0};
    bool has_system = messages->n > 0 && (has_role(r, messages->items[0], "system")
                                          || has_role(r, messages->items[0], "developer"));
    struct value *content = has_system ? member(r, messages->items[0], "content") : NULL;
    bool has_parts = content && content->kind == LIST;
    if (!has_parts) output_content(r, &out, content);
    if (out.n > 0) output_word(r, &out, "\n\n");
    output_word(r, &out, "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are "
                         "provided with function signatures within <tools></tools> XML tags:\n<tools>\n");
    for (size_t i = 0; i < tools->n && r->stop == STOP_NOT; i++) {
        output_json(r, &out, tools->items[i]);
        output_word(r, &out, "\n");
    }
    output_word(r, &out, "</tools>\n\nFor each function call, answer with:\n");
    family_write_example(r, &out, format);
    for (size_t i = has_system; i < messages->n && r->stop == STOP_NOT; i++) {
        struct value message = messages->items[i];
        if (has_role(r, message, "tool")) {
            struct output result = {NULL, 0, 0};
            output_word(r, &result, "<tool_response>\n");
            output_content(r, &result, member(r, message, "content"));
            output_word(r, &result, "\n</tool_response>");
            if (r->stop == STOP_NOT) message.as.object->n = 0;
            set_member(r, message, "role", value_string(text_of("user")));
            set_member(r, message, "content", value_output(&result));
        } else if (writes_calls && calls_of(r, message)) {
            write_calls(r, message, format, "\n");
        }
    }
    if (r->stop != STOP_NOT) return;
    if (has_parts) {
        list_add(r, content->as.list, content_part(r, "text", value_output(&out)));
    } else if (has_system) {
        set_member(r, messages->items[0], "content", value_output(&out));
    } else {
        struct value first = value_empty(r, OBJECT), all = value_list(r, messages->n + 1);
        if (r->stop != STOP_NOT) return;
        set_member(r, first, "role", value_string(text_of("system")));
        set_member(r, first, "content", value_output(&out));
        list_add(r, all.as.list, first);
        for (size_t i = 0; i < messages->n; i++) list_add(r, all.as.list, messages->items[i]);
        if (r->stop == STOP_NOT) *messages = *all.as.list;
    }
}

/* ---- the chat ---------------------------------------------------------------------------------------------------- */

/* Finds out what the template accepts. */
static struct capabilities capabilities_of(struct render *r, const struct chat_template *t) {
    struct capabilities can = {.are_known = true};
    can.text = prints(r, t, "{\"messages\":[{\"role\":\"user\",\"content\":\"" MARK "\"}]}", false);
    can.parts = prints(r, t, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"" MARK
                       "\"}]}]}", false)
                && (!can.text || reads_parts(r, t));
    can.system = prints(r, t, "{\"messages\":[{\"role\":\"system\",\"content\":\"" MARK "\"}," USER "]}", false);
    can.objects = prints(r, t, "{\"messages\":[" USER ",{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":"
                         "[{\"id\":\"call00001\",\"type\":\"function\",\"function\":{\"name\":\"tool1\","
                         "\"arguments\":{\"arg\":\"" MARK "\"}}}]},{\"role\":\"tool\",\"content\":\"Tool response\","
                         "\"tool_call_id\":\"call00001\"},{\"role\":\"assistant\",\"content\":\"The response\"},"
                         USER "]}", true);
    return can;
}

/* Changes the messages to what the template accepts. */
static void adapt(struct render *r, const struct chat_template *t, const struct family *family,
                  const struct list *tools, struct list *messages) {
    struct capabilities own = {.are_known = false}, *can = t->can ? t->can : &own;
    if (!can->are_known) *can = capabilities_of(r, t);
    const bool describes = describes_tools(t->source), tells = t->tells_tools && !describes && tools && tools->n > 0;
    bool is_written = family->format.written != CALLS_NOT_WRITTEN && !has_text(r, t->source, "tool_calls");
    const struct calling how = {
        .format = &family->format, .takes_objects = can->objects,
        .has_own_roles = has_text(r, t->source, "'assistant_tool_call'")
                         || has_text(r, t->source, "\"assistant_tool_call\""),
        .wants_nine = compares_with_nine(t->source), .writes_calls = is_written && describes,
    };
    /* The models of these templates do not bear spaces around a text. */
    bool trims = has_text(r, t->source, "You have access to the following functions in JSONSchema format");
    bool has_developer = has_text(r, t->source, "<|channel|>");
    if (tells) describe_tools(r, &family->format, is_written, messages, tools);
    for (size_t i = 0; i < messages->n && r->stop == STOP_NOT; i++) {
        struct value message = messages->items[i];
        order_message(r, message);
        struct value *role = member(r, message, "role");
        if (!has_developer && is_word(role, "developer")) *role = value_string(text_of("system"));
        if (trims) trim_message(r, message);
        fit_content(r, message, can);
    }
    if (messages->n > 0 && has_role(r, messages->items[0], "system") && !can->system) merge_system(r, messages);
    for (size_t i = 0; i < messages->n && r->stop == STOP_NOT; i++) fit_calls(r, messages->items[i], &how);
}

/* Checks in templates that refuse what is valid, as llama.cpp removes them. */
static struct text without_checks(struct render *r, struct text source) {
    static const char *const checks[] = {
        "{%- if \"<|channel|>analysis<|message|>\" in message.content or "
        "\"<|channel|>final<|message|>\" in message.content %}",
        "{%- if (message['content'] is none or message['content'] == '' or message['content']|length == 0) and "
        "(message['tool_calls'] is not defined or message['tool_calls'] is none or message['tool_calls']|length == 0) "
        "%}",
    };
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        struct output out = {NULL, 0, 0};
        size_t n = strlen(checks[i]), found = text_find(r, source, text_of(checks[i]));
        if (found == SIZE_MAX) continue;
        for (; found != SIZE_MAX && r->stop == STOP_NOT; found = text_find(r, source, text_of(checks[i]))) {
            output_add(r, &out, text_part(source, 0, found));
            output_word(r, &out, "{%- if false %}");
            source = text_part(source, found + n, source.n - found - n);
        }
        output_add(r, &out, source);
        source = output_text(&out);
    }
    return source;
}

/* A role is a word of the program that calls and not a text of a user.  Templates make control tokens of it, such as
 * <|user|>. */
static void trust_roles(struct render *r, struct list *messages) {
    for (size_t i = 0; i < messages->n && r->stop == STOP_NOT; i++) {
        struct value *role = member(r, messages->items[i], "role");
        bool is_word = role && role->kind == STRING;
        for (size_t k = 0; is_word && k < role->as.text.n; k++) is_word = is_word_byte(role->as.text.data[k]);
        if (is_word) role->as.text.marks = 0;
    }
}

/* The tools, which may be JSON text, in the form that templates expect; NULL if there are none. */
static struct list *fit_tools(struct render *r, struct object *variables) {
    struct value *tools = object_find(r, variables, value_string(text_of("tools")));
    if (!tools || tools->kind == NONE || r->stop != STOP_NOT) return NULL;
    if (tools->kind == STRING) *tools = value_from_json(r, "the tools", tools->as.text.data, tools->as.text.n);
    if (r->stop == STOP_NOT && tools->kind != LIST) {
        r->stop = STOP_FAILED;
        error_set(r->err, PLUMB_ERROR_ARGUMENT, "the tools are not a JSON array");
    }
    if (r->stop != STOP_NOT) return NULL;
    struct list *given = tools->as.list;
    struct value fitting = value_list(r, given->n);
    for (size_t i = 0; i < given->n && r->stop == STOP_NOT; i++) {
        list_add(r, fitting.as.list, ordered_tool(r, given->items[i]));
    }
    *tools = given->n > 0 ? fitting : value_undefined();
    return given;
}

struct text chat_source(struct text given) {
    static const char chatml[] = "{%- for message in messages -%}\n" CHATML_LINE "{%- endfor -%}\n"
        "{%- if add_generation_prompt -%}\n  {{- '<|im_start|>assistant\\n' -}}\n{%- endif -%}";
    return given.n == 0 || (given.n == 6 && memcmp(given.data, "chatml", 6) == 0) ? text_of(chatml) : given;
}

/* ---- answers that are continued ---------------------------------------------------------------------------------- */

/* What transformers appends to the text that is to be continued, to find it in the prompt.  A template that keeps the
 * space keeps the white space before it, too. */
#define END_OF_TEXT "CONTINUE_FINAL_MESSAGE_TAG"

static void refuse(struct render *r, plumb_status status, const char *message) {
    if (r->stop != STOP_NOT) return;
    r->stop = STOP_FAILED;
    error_set(r->err, status, "continue_final_message: %s", message);
}

static bool has_characters(const struct value *v) { return v && v->kind == STRING && v->as.text.n > 0; }

/* Marks the end of the last message's content, or of its reasoning if it has no content, where the prompt is to end:
 * the variable continue_final_message is true, or names one of them.  Returns whether the chat is to be continued. */
static bool mark_end(struct render *r, struct object *variables, const struct value *messages) {
    struct value *how = object_find(r, variables, value_string(text_of("continue_final_message")));
    const bool names_reasoning = is_word(how, "reasoning_content"), names_content = is_word(how, "content");
    if (!how || !(names_reasoning || names_content || (how->kind == BOOLEAN && how->as.truth))) return false;
    const struct list *list = messages && messages->kind == LIST ? messages->as.list : NULL;
    if (!list || list->n == 0 || !has_role(r, list->items[list->n - 1], "assistant")) {
        refuse(r, PLUMB_ERROR_ARGUMENT, "the last message is not the assistant's");
        return false;
    }
    struct value last = list->items[list->n - 1], *content = member(r, last, "content");
    if (calls_of(r, last)) refuse(r, PLUMB_ERROR_ARGUMENT, "the last message has calls of tools");
    struct value *reasoning = member(r, last, "reasoning_content"), *text = content;
    const bool is_empty = !has_characters(content) && !(content && content->kind == LIST && content->as.list->n > 0);
    if (names_reasoning || (!names_content && is_empty && has_characters(reasoning))) text = reasoning;
    if (text && text->kind == LIST) {
        struct list *parts = text->as.list;
        size_t n = parts->n;
        text = NULL;
        while (n > 0 && !text) text = member(r, parts->items[--n], "text");
    }
    if (!text || text->kind != STRING) refuse(r, PLUMB_ERROR_ARGUMENT, "the last message has no text to continue");
    if (r->stop != STOP_NOT) return false;
    struct output out = {NULL, 0, 0};
    output_add(r, &out, text->as.text);
    output_word(r, &out, END_OF_TEXT " ");
    *text = value_output(&out);
    struct value *open = object_find(r, variables, value_string(text_of("add_generation_prompt")));
    if (open) *open = value_undefined();
    return true;
}

/* Cuts off what follows the end that mark_end has marked. */
static void cut_at_end(struct render *r, struct output *out) {
    const size_t n = sizeof END_OF_TEXT - 1;
    size_t at = out->n < n ? SIZE_MAX : out->n - n;
    while (at != SIZE_MAX && memcmp(out->data + at, END_OF_TEXT, n) != 0) at--;
    if (at == SIZE_MAX) {
        refuse(r, PLUMB_ERROR_TEMPLATE, "the template does not print the last message");
        return;
    }
    const bool keeps_space = at + n < out->n && out->data[at + n] == ' ';
    out->n = at;
    while (!keeps_space && out->n > 0 && is_space(out->data[out->n - 1])) out->n--;
}

void chat_run(struct render *r, const struct chat_template *t, struct object *variables, struct output *out) {
    struct chat_template patched = *t;
    r->source = patched.source = without_checks(r, t->source);
    const struct family *family = family_of(r, patched.source);
    set_variables(r, variables);
    struct value *messages = object_find(r, variables, value_string(text_of("messages")));
    const bool is_continued = mark_end(r, variables, messages);
    struct value *open = object_find(r, variables, value_string(text_of("add_generation_prompt")));
    bool opens_turn = open && open->kind == BOOLEAN && open->as.truth;   /* the template may change the variable */
    const struct list *tools = fit_tools(r, variables);
    if (messages && messages->kind == LIST && r->stop == STOP_NOT) {
        trust_roles(r, messages->as.list);
        adapt(r, &patched, family, tools, messages->as.list);
        if (family->adjust && r->stop == STOP_NOT) family->adjust(r, messages->as.list);
    }
    if (r->stop == STOP_NOT) template_run(r, &patched, variables, out);
    if (r->stop == STOP_NOT && family->finish) family->finish(r, opens_turn, out);
    if (r->stop == STOP_NOT && is_continued) cut_at_end(r, out);
}

const char *chat_stop(struct text source) {
    struct error err = {PLUMB_OK, ""};
    struct render r = {.source = source, .err = &err, .max_work = UINT64_MAX};
    return family_of(&r, source)->stop;
}
