#include "template/families.h"

#include "template/messages.h"

/* ---- changes of chats and prompts -------------------------------------------------------------------------------- */

/* Copies the reasoning to the name that the template looks for. */
static void name_thinking(struct render *r, struct list *messages) {
    for (size_t i = 0; i < messages->n && r->stop == STOP_NOT; i++) {
        struct value *reasoning = member(r, messages->items[i], "reasoning_content");
        if (reasoning && reasoning->kind == STRING) set_member(r, messages->items[i], "thinking", *reasoning);
    }
}

/* A message with calls has thinking, or a content. */
static void name_thinking_or_content(struct render *r, struct list *messages) {
    name_thinking(r, messages);
    for (size_t i = 0; i < messages->n && r->stop == STOP_NOT; i++) {
        struct value *thinking = member(r, messages->items[i], "thinking");
        if (thinking && thinking->kind == STRING && calls_of(r, messages->items[i])) {
            erase_member(r, messages->items[i], "content");
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
        if (reasoning && reasoning->kind == STRING) list_add(r, parts.as.list, content_part(r, "thinking", *reasoning));
        add_parts(r, parts.as.list, content);
        if (r->stop == STOP_NOT) set_member(r, message, "content", parts);
        erase_member(r, message, "reasoning_content");
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
        set_member(r, turn, "role", value_string(text_of("assistant")));
        set_member(r, turn, "tool_calls", (struct value){LIST, {.list = calls}});
        for (; i + 1 < messages->n && has_role(r, messages->items[i + 1], "tool"); i++) {
            struct value result = messages->items[i + 1], *content = member(r, result, "content");
            size_t k = responses.as.list->n;
            struct value *function = k < calls->n ? member(r, calls->items[k], "function") : NULL;
            struct value *name = function ? member(r, *function, "name") : NULL, response = value_empty(r, OBJECT);
            if (!name || (name->kind == STRING && name->as.text.n == 0)) name = member(r, result, "tool_call_id");
            if (r->stop != STOP_NOT) return;
            set_member(r, response, "name", name ? *name : value_string(text_of("")));
            set_member(r, response, "response", content ? json_or_text(r, *content) : (struct value){.kind = NONE});
            list_add(r, responses.as.list, response);
        }
        if (responses.as.list->n > 0) set_member(r, turn, "tool_responses", responses);
        struct value *answer = NULL;
        if (i + 1 < messages->n && has_role(r, messages->items[i + 1], "assistant")
            && !calls_of(r, messages->items[i + 1])) answer = member(r, messages->items[i + 1], "content");
        if (answer && (answer->kind == STRING ? answer->as.text.n > 0 : is_list(*answer) && answer->as.list->n > 0)) {
            set_member(r, turn, "content", *answer);
            i++;
        }
        if (reasoning && reasoning->kind == STRING) set_member(r, turn, "reasoning_content", *reasoning);
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

/* ---- the table --------------------------------------------------------------------------------------------------- */

/* Parts that several rows have. */
#define THINK .think = "<think>", .think_ends = {"</think>"}
#define THINK_OR(open) .think = "<think>", .think_ends = {"</think>", open}   /* a call ends the reasoning, too */
#define BRACKET_THINK .think = "[THINK]", .think_ends = {"[/THINK]"}
/* The XML of Qwen3-Coder, and the tags of GLM. */
#define XML .call = "<function={name}>{args}</function>", .arg = "<parameter={key}>\n{value}\n</parameter>"
#define GLM .call = "<tool_call>{name}{args}</tool_call>", \
            .arg = "<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>"
#define PYTHON {THINK, .section = {"<|tool_call_start|>", "<|tool_call_end|>"}, .call = "{python}"}
#define DSML(block) {THINK_OR("<｜DSML｜" block ">"), .section = {"<｜DSML｜" block ">", "</｜DSML｜" block ">"}, \
                     .call = "<｜DSML｜invoke name=\"{name}\">{args}</｜DSML｜invoke>", \
                     .arg = "<｜DSML｜parameter name=\"{key}\" string=\"{type}\">{value}</｜DSML｜parameter>"}
#define GEMMA {.think = "<|channel>thought", .think_ends = {"<channel|>"}, .thinks_again = true, \
               .call = "<|tool_call>call:{name}{gemma}<tool_call|>", .marks = {"<|channel>", "<channel|>"}}
#define BRACKETS {BRACKET_THINK, .call = "[TOOL_CALLS]{name}{id:[CALL_ID]}[ARGS]{json}"}
#define RESPONSE .marks = {"<response>", "</response>"}
#define HERMES {THINK, .call = "<tool_call>{call}</tool_call>", RESPONSE, .written = CALLS_IN_TAGS}

static const struct family families[] = {
    /* Ministral 3, Devstral */
    {{"[SYSTEM_PROMPT]", "[TOOL_CALLS]", "[ARGS]"}, .lacks = "[CALL_ID]",
     .adjust = reasoning_as_part, .format = BRACKETS},
    /* Mistral Small 3.2, Magistral */
    {{"[TOOL_CALLS]", "[ARGS]"}, .format = BRACKETS},
    /* gpt-oss */
    {{"<|channel|>"}, .adjust = name_thinking_or_content, .finish = end_last_turn, .format = {
        .think = "<|channel|>analysis<|message|>", .think_ends = {"<|end|>"}, .call = "{json}",
        .channels = {"final", "analysis", "functions."},
        .text_headers = {"<|channel|>analysis", "<|channel|>commentary", "<|channel|>final"},
        .call_headers = {"<|channel|>commentary to=functions.{name}", "<|channel|>analysis to=functions.{name}",
                         " to=functions.{name}<|channel|>commentary", " to=functions.{name}<|channel|>analysis"},
        .marks = {"<|start|>", "<|constrain|>", "<|call|>", "<|return|>"}, .prompts = {"<|start|>assistant"}}},
    /* Muse Glimmer */
    {{"<atem:function_calls>", "<|eom|>"}, .format = {
        .section = {"<atem:function_calls>", "</atem:function_calls>"},
        .call = "<atem:invoke name=\"{name}\">{args}</atem:invoke>",
        .arg = "<atem:parameter name=\"{key}\">{value}</atem:parameter>", .channels = {"user", "self", ""},
        .text_headers = {" to=self", " to=user"}, .call_headers = {" to={name}"},
        .marks = {"<|start|>", "<|message|>", "<|eom|>", "<|eot|>"}, .prompts = {"<|start|>assistant"}}},
    /* Functionary 3.2 */
    {{">>>all", ">>>${recipient}"}, .format = {
        .call = ">>>{name}\n{json}", .marks = {">>>all\n"}, .prompts = {">>>"}}},
    /* Kimi K2 */
    {{"<|tool_calls_section_begin|>", "<|tool_call_begin|>"}, .format = {
        .think = "<think>", .think_ends = {"</think>", "<|tool_calls_section_begin|>", "<|tool_call_begin|>"},
        .section = {"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"},
        .opens = {"<|tool_calls_section_begin|>", "<|tool_call_begin|>"},
        .call = "<|tool_call_begin|>{function}<|tool_call_argument_begin|>{json}<|tool_call_end|>"}},
    /* Kimi K3 */
    {{"<|open|>", "<|close|>", "<|end_of_msg|>"}, .format = {
        .think = "<|open|>think<|sep|>",
        .think_ends = {"<|close|>think<|sep|>", "<|open|>response<|sep|>", "<|open|>tools<|sep|>"},
        .section = {"<|open|>tools<|sep|>", "<|close|>tools<|sep|>"},
        .call = "<|open|>call tool=\"{name}\"{id: index=\"}\"<|sep|>{args}<|close|>call<|sep|>",
        .arg = "<|open|>argument key=\"{key}\" type=\"{type}\"<|sep|>{value}<|close|>argument<|sep|>",
        .marks = {"<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>"}}},
    /* Ling 3 */
    {{"<role>ASSISTANT</role>", "<arg_key>"}, .stop = "<|role_end|>", .format = {
        THINK_OR("<tool_call>"), GLM, .marks = {"<|role_end|>"}}},
    /* Command R7B, Command A, North Code */
    {{"<|START_ACTION|>"}, .format = {
        .think = "<|START_THINKING|>", .think_ends = {"<|END_THINKING|>"},
        .section = {"<|START_ACTION|>", "<|END_ACTION|>"}, .call = "{call}",
        .marks = {"<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"}}},
    /* LFM2 */
    {{"<|tool_list_start|>"}, .adjust = name_thinking, .format = PYTHON},
    /* LFM2.5 */
    {{"List of tools: ["}, .adjust = name_thinking, .format = PYTHON},
    /* GigaChat 3.1 */
    {{"<|function_call|>"}, .format = {.call = "<|function_call|>{call}"}},
    /* GigaChat 3 */
    {{"<|role_sep|>", "<|message_sep|>"}, .format = {
        .call = "<|message_sep|>\n\nfunction call<|role_sep|>\n{call}", .opens = {"<|message_sep|>"}}},
    /* MiniMax M3 */
    {{"]<]minimax[>[", "<tool_call>", "<invoke name="}, .format = {
        .think = "<mm:think>", .think_ends = {"</mm:think>"},
        .section = {"]<]minimax[>[<tool_call>", "]<]minimax[>[</tool_call>"},
        .call = "]<]minimax[>[<invoke name=\"{name}\">{nested}]<]minimax[>[</invoke>"}},
    /* MiniMax M2 */
    {{"minimax:tool_call"}, .format = {
        THINK, .section = {"<minimax:tool_call>", "</minimax:tool_call>"},
        .call = "<invoke name=\"{name}\">{args}</invoke>", .arg = "<parameter name=\"{key}\">{value}</parameter>"}},
    /* DeepSeek V3.2 */
    {{"dsml_token", "DSML", "function_calls"}, .format = DSML("function_calls")},
    /* DeepSeek V4 */
    {{"dsml_token", "DSML", "tool_calls"}, .adjust = sort_results, .format = DSML("tool_calls")},
    /* DeepSeek R1, V3 */
    {{"<｜tool▁calls▁begin｜>", "```json"}, .format = {
        THINK, .section = {"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"},
        .call = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{json}```<｜tool▁call▁end｜>"}},
    /* DeepSeek V3.1 */
    {{"<｜tool▁calls▁begin｜>"}, .format = {
        THINK, .section = {"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"},
        .call = "<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{json}<｜tool▁call▁end｜>"}},
    /* Gemma 4 */
    {{"'<|tool_call>call:'", "{#- OpenAI Chat Completions:"}, .finish = open_turn, .format = GEMMA},
    /* Gemma 4, its first template */
    {{"'<|tool_call>call:'"}, .adjust = put_results_into_calls, .finish = open_turn,
     .format = GEMMA},
    /* MiniCPM5 */
    {{"<function name=\"", "<param name=\""}, .format = {
        THINK, .call = "<function name=\"{name}\">{args}</function>", .has_cdata = true,
        .arg = "<param name=\"{key}\">{value}</param>"}},
    /* Seed-OSS */
    {{"<seed:tool_call>"}, .format = {
        .think = "<seed:think>", .think_ends = {"</seed:think>"},
        .section = {"<seed:tool_call>", "</seed:tool_call>"}, .call = "<function={name}>{args}</function>",
        .arg = "<parameter={key}>{value}</parameter>"}},
    /* Qwen3-Coder, Qwen3.5, Nemotron 3, StepFun 3.5 */
    {{"<tool_call>", "<function=", "<parameter="}, .format = {
        THINK_OR("<tool_call>"), .section = {"<tool_call>", "</tool_call>"}, .opens = {"<tool_call>", "<function="},
        XML}},
    /* Laguna */
    {{"laguna_glm_thinking"}, .stop = "</assistant>", .format = {THINK, GLM}},
    /* GLM 4.5 and later */
    {{"<arg_key>"}, .format = {THINK, GLM}},
    /* Functionary 3.1 */
    {{"<function="}, .format = {.call = "<function={name}>{json}</function>"}},
    /* Apertus */
    {{"<|tools_prefix|>"}, .format = {
        .think = "<|inner_prefix|>", .think_ends = {"<|inner_suffix|>"},
        .section = {"<|tools_prefix|>", "<|tools_suffix|>"}, .call = "{call}", .is_keyed = true}},
    /* Nemotron Nano 2 */
    {{"<TOOLCALL>"}, .format = {
        THINK, .section = {"<TOOLCALL>", "</TOOLCALL>"}, .call = "{call}"}},
    /* Apriel */
    {{"<tool_calls>"}, .format = {
        .think = "Here are my reasoning steps:\n", .think_ends = {"[BEGIN FINAL RESPONSE]"},
        .section = {"<tool_calls>", "</tool_calls>"}, .call = "{call}"}},
    /* Firefunction, Phi-4-mini's older template */
    {{"functools["}, .format = {.call = "functools{call}"}},
    /* Command R+ */
    {{"Action:", "```json"}, .format = {
        .section = {"Action:\n```json", "```"}, .call = "{call}",
        .marks = {"<|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>"}}},
    /* ChatML for files without a template, whose vocabulary may lack the token that ends a turn */
    {{CHATML_LINE}, .stop = "<|im_end|>", .format = HERMES},
    /* Hermes, Qwen2.5 and 3, SmolLM3, Granite 4 */
    {{"<tool_call>"}, .format = HERMES},
    /* Granite 3, Phi-4-mini */
    {{"<|tool_call|>"}, .format = {
        THINK, .call = "<|tool_call|>{call}", .opens = {"<|tool_call|>", "["}, .is_first = true,
        .marks = {"<|/tool_call|>", "<response>", "</response>"}, .written = CALLS_IN_LIST}},
    /* Mistral Nemo and others */
    {{"[TOOL_CALLS]"}, .format = {
        BRACKET_THINK, .call = "[TOOL_CALLS]{call}", .opens = {"[TOOL_CALLS]", "["}, .is_first = true,
        .written = CALLS_IN_LIST}},
    /* Llama 3.1 and later */
    {{"<|python_tag|>"}, .format = {
        .call = "<|python_tag|>{call}", .opens = {"<|python_tag|>", "{", "["}, .is_first = true}},
};
/* Any other template with tools: calls in JSON. */
static const struct family plain = {.format = {
    THINK, .call = "{call}", .opens = {"{", "["}, .is_first = true, RESPONSE}};
/* Any other template without tools: the model is told to write calls as Hermes does. */
static const struct family untold = {.format = HERMES};

bool describes_tools(struct text source) {
    for (size_t i = 0; i + 5 <= source.n; i++) {
        if (memcmp(source.data + i, "tools", 5) == 0 && (i == 0 || !is_word_byte(source.data[i - 1]))
            && (i + 5 == source.n || !is_word_byte(source.data[i + 5]))) return true;
    }
    return false;
}

const struct family *family_of(struct render *r, struct text source) {
    for (const struct family *f = families; f < families + sizeof families / sizeof *families; f++) {
        bool is_it = !f->lacks || !has_text(r, source, f->lacks);
        for (size_t i = 0; i < 3 && f->has[i] && is_it; i++) is_it = has_text(r, source, f->has[i]);
        if (is_it || r->stop != STOP_NOT) return f;
    }
    return describes_tools(source) ? &plain : &untold;
}

/* ---- for those who read answers ---------------------------------------------------------------------------------- */

static void set_text(struct render *r, struct value v, const char *name, const char *text) {
    if (text && r->stop == STOP_NOT) set_member(r, v, name, value_string(text_of(text)));
}

static void set_flag(struct render *r, struct value v, const char *name, bool is_set) {
    if (is_set && r->stop == STOP_NOT) set_member(r, v, name, value_bool(true));
}

/* Texts, up to a NULL; all: an empty list, too. */
static void set_list(struct render *r, struct value v, const char *name, const char *const *texts, size_t n, bool all) {
    struct value list = value_empty(r, LIST);
    for (size_t i = 0; i < n && texts[i] && r->stop == STOP_NOT; i++) {
        list_add(r, list.as.list, value_string(text_of(texts[i])));
    }
    if ((texts[0] || all) && r->stop == STOP_NOT) set_member(r, v, name, list);
}

/* text without white space at its ends, as a template may have it. */
static bool has_trimmed(struct render *r, struct text source, const char *text) {
    struct text trimmed = text_of(text);
    while (trimmed.n > 0 && is_space(trimmed.data[trimmed.n - 1])) trimmed.n--;
    return text_find(r, source, trimmed) != SIZE_MAX;
}

void family_write(struct render *r, struct output *out, const struct family *family, struct text source) {
    const struct format *f = &family->format;
    const char *named[MOST_TEXTS + 2] = {NULL};
    size_t n = 0;
    if (f->think && has_trimmed(r, source, f->think)) named[n++] = f->think;
    for (size_t i = 0; i < MOST_TEXTS && f->marks[i]; i++) {
        if (has_trimmed(r, source, f->marks[i])) named[n++] = f->marks[i];
    }
    struct value v = value_empty(r, OBJECT), think = value_empty(r, OBJECT), channels = value_empty(r, OBJECT);
    struct value headers = value_empty(r, OBJECT);
    set_text(r, think, "start", f->think);
    set_list(r, think, "ends", f->think_ends, MOST_TEXTS, true);
    set_flag(r, think, "again", f->thinks_again);
    set_text(r, channels, "user", f->channels.user);
    set_text(r, channels, "self", f->channels.self);
    set_text(r, channels, "tool", f->channels.tool);
    set_list(r, headers, "text", f->text_headers, MOST_TEXTS, true);
    set_list(r, headers, "calls", f->call_headers, MOST_TEXTS, true);
    if (f->think && r->stop == STOP_NOT) set_member(r, v, "think", think);
    set_list(r, v, "section", f->section, 2, false);
    set_text(r, v, "call", f->call);
    set_list(r, v, "opens", f->opens, MOST_TEXTS, false);
    set_text(r, v, "arg", f->arg);
    set_flag(r, v, "cdata", f->has_cdata);
    set_flag(r, v, "keyed", f->is_keyed);
    set_flag(r, v, "first", f->is_first);
    set_list(r, v, "marks", f->marks, MOST_TEXTS, false);
    set_list(r, v, "prompts", f->prompts, MOST_TEXTS, false);
    if (f->channels.user && r->stop == STOP_NOT) set_member(r, v, "channels", channels);
    if (f->channels.user && r->stop == STOP_NOT) set_member(r, v, "headers", headers);
    set_text(r, v, "stop", family->stop);
    set_flag(r, v, "describesTools", describes_tools(source));
    set_list(r, v, "named", named, MOST_TEXTS + 1, true);
    output_json(r, out, v);
}

void family_write_calls(struct render *r, struct output *out, const struct format *format, const struct list *calls) {
    if (format->written == CALLS_IN_LIST) {
        output_word(r, out, format->opens[0]);
        output_json(r, out, (struct value){LIST, {.list = (struct list *)calls}});
        return;
    }
    for (size_t i = 0; i < calls->n; i++) {
        output_word(r, out, i > 0 ? "\n<tool_call>\n" : "<tool_call>\n");
        output_json(r, out, calls->items[i]);
        output_word(r, out, "\n</tool_call>");
    }
}

/* Writes a pattern with words for its fields. */
static void write_pattern(struct render *r, struct output *out, const struct format *format, const char *pattern) {
    static const char *const fields[][2] = {
        {"{call}", "\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n"},
        {"{name}", "<function-name>"}, {"{json}", "<args-json-object>"}, {"{key}", "<argument-name>"},
        {"{value}", "<argument-value>"},
    };
    while (*pattern) {
        size_t i = 0, n = 1;
        while (i < 5 && strncmp(pattern, fields[i][0], strlen(fields[i][0])) != 0) i++;
        if (i < 5) {
            output_word(r, out, fields[i][1]);
            n = strlen(fields[i][0]);
        } else if (strncmp(pattern, "{args}", 6) == 0 && format->arg) {
            write_pattern(r, out, format, format->arg);
            n = 6;
        } else if (strncmp(pattern, "{id:", 4) == 0) {
            n = strcspn(pattern, "}") + 1;
        } else {
            output_put(r, out, pattern, 1);
        }
        pattern += n;
    }
}

void family_write_example(struct render *r, struct output *out, const struct format *format) {
    if (format->section[0]) output_word(r, out, format->section[0]);
    if (format->section[0]) output_word(r, out, "\n");
    write_pattern(r, out, format, format->call);
    if (format->section[0]) output_word(r, out, "\n");
    if (format->section[0]) output_word(r, out, format->section[1]);
}
