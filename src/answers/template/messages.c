#include "template/messages.h"

struct value *member(struct render *r, struct value v, const char *name) {
    return v.kind == OBJECT ? object_find(r, v.as.object, value_string(text_of(name))) : NULL;
}

void set_member(struct render *r, struct value v, const char *name, struct value item) {
    object_set(r, v.as.object, value_string(text_of(name)), item);
}

void erase_member(struct render *r, struct value v, const char *name) {
    struct value *found = member(r, v, name);
    if (!found) return;
    struct object *o = v.as.object;
    size_t i = 0;
    while (&o->members[i].value != found) i++;
    memmove(&o->members[i], &o->members[i + 1], (--o->n - i) * sizeof *o->members);
}

bool is_word(const struct value *v, const char *word) {
    return v && v->kind == STRING && text_is_word(v->as.text, word);
}

bool has_role(struct render *r, struct value message, const char *role) {
    return is_word(member(r, message, "role"), role);
}

struct list *calls_of(struct render *r, struct value message) {
    struct value *calls = member(r, message, "tool_calls");
    return calls && calls->kind == LIST && calls->as.list->n > 0 ? calls->as.list : NULL;
}

struct value content_part(struct render *r, const char *type, struct value text) {
    struct value v = value_empty(r, OBJECT);
    if (r->stop != STOP_NOT) return text;
    set_member(r, v, "type", value_string(text_of(type)));
    set_member(r, v, type, text);
    return v;
}

void add_parts(struct render *r, struct list *parts, const struct value *content) {
    if (content && content->kind == STRING) list_add(r, parts, content_part(r, "text", *content));
    for (size_t i = 0; content && content->kind == LIST && i < content->as.list->n && r->stop == STOP_NOT; i++) {
        list_add(r, parts, content->as.list->items[i]);
    }
}

struct value json_or_text(struct render *r, struct value v) {
    if (v.kind != STRING || r->stop != STOP_NOT) return v;
    struct error err = {PLUMB_OK, ""}, *own = r->err;
    r->err = &err;
    struct value parsed = value_from_json(r, "a text", v.as.text.data, v.as.text.n);
    r->err = own;
    if (r->stop == STOP_NOT) return parsed;
    if (err.status == PLUMB_ERROR_ARGUMENT) r->stop = STOP_NOT;
    else *own = err;
    return v;
}

void output_json(struct render *r, struct output *out, struct value v) {
    const struct json_style style = {-1, {",", 1, 0}, {":", 1, 0}};
    value_write_json(r, out, v, &style, 0);
}

void output_content(struct render *r, struct output *out, const struct value *content) {
    if (content && content->kind >= BOOLEAN && content->kind <= STRING) value_write(r, out, *content);
    bool has_text = false;
    for (size_t i = 0; content && content->kind == LIST && i < content->as.list->n && r->stop == STOP_NOT; i++) {
        struct value part = content->as.list->items[i], *text = member(r, part, "text");
        if (!is_word(member(r, part, "type"), "text") || !text) continue;
        if (has_text) output_put(r, out, "\n", 1);
        has_text = true;
        output_content(r, out, text->kind == LIST ? NULL : text);
    }
}
