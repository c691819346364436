/* The messages of a chat, as values: what chat.c and families.c do with them. */
#ifndef PLUMB_TEMPLATE_MESSAGES_H
#define PLUMB_TEMPLATE_MESSAGES_H

#include "template/value.h"

/* Returns where a member of an object is; NULL if v is no object or has no such member. */
struct value *member(struct render *r, struct value v, const char *name);
void set_member(struct render *r, struct value v, const char *name, struct value item);
void erase_member(struct render *r, struct value v, const char *name);
/* Whether a value is a certain string; v may be NULL. */
bool is_word(const struct value *v, const char *word);
bool has_role(struct render *r, struct value message, const char *role);
/* The calls of a message, or NULL if it has none. */
struct list *calls_of(struct render *r, struct value message);
/* Whether a template contains a text. */
static inline bool has_text(struct render *r, struct text source, const char *text) {
    return text_find(r, source, text_of(text)) != SIZE_MAX;
}
/* A part of a content: {type: type, [type]: text}. */
struct value content_part(struct render *r, const char *type, struct value text);
/* Adds the parts of a content, a string or a list, to a list. */
void add_parts(struct render *r, struct list *parts, const struct value *content);
/* The value of a JSON text, or the text itself if it is none; any other value as it is. */
struct value json_or_text(struct render *r, struct value v);
/* Writes a value as JSON.stringify does. */
void output_json(struct render *r, struct output *out, struct value v);
/* Writes what the value is as a text: a string, a number, or the texts of the parts of a content. */
void output_content(struct render *r, struct output *out, const struct value *content);

#endif
