/* What families of models need: how a chat is changed for their templates, and how they write reasoning and calls of
 * tools.  There is one table for both; a template belongs to the first row whose texts it has. */
#ifndef PLUMB_TEMPLATE_FAMILIES_H
#define PLUMB_TEMPLATE_FAMILIES_H

#include "template/value.h"

enum { MOST_TEXTS = 4 };

/* The line of ChatML in chat_source that is in no other template. */
#define CHATML_LINE "  {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}\n"

/* How calls of earlier answers are written, if the template has no place for them. */
enum calls_written { CALLS_NOT_WRITTEN, CALLS_IN_TAGS, CALLS_IN_LIST };

/* The texts of a model's answers.  Arrays of texts end with a NULL if they are not full.
 *
 * A pattern describes one call.  It is text with fields:
 *
 *   {name}      the name of a tool
 *   {function}  the call's id, functions.NAME:INDEX
 *   {id:TEXT}   the call's id, if TEXT comes next
 *   {json}      its arguments, as a JSON object
 *   {call}      a JSON object with the name and the arguments, or a list of them
 *   {python}    a list of calls as Python writes them, [f(a=1), g()]
 *   {gemma}     arguments as Gemma 4 writes them, {a:<|"|>text<|"|>,b:[1]}
 *   {nested}    arguments as MiniMax M3 writes them, a tag for each, also for the parts of their values
 *   {args}      arguments one by one, each by the pattern `arg`, with the fields {key}, {value}, and {type}: whether
 *               the value is a text ("true" or "string"), or JSON
 *
 * White space between the parts of a pattern may differ, and there may be any where a pattern has a line break, but not
 * around {value}. */
struct format {
    const char *think, *think_ends[MOST_TEXTS];   /* the tags of reasoning; an end that begins a call is not skipped */
    bool thinks_again;               /* there may be reasoning behind a text, too */
    const char *section[2];          /* what surrounds all calls of an answer */
    const char *call;                /* the pattern of a call */
    const char *opens[MOST_TEXTS];   /* with what a call may begin, if not with the beginning of section or call */
    const char *arg;                 /* the pattern of an argument */
    bool has_cdata;                  /* a value may stand between <![CDATA[ and ]]> */
    bool is_keyed;                   /* {call} is an object whose only key is the name */
    bool is_first;                   /* calls come at the start of an answer, not behind a text */
    const char *marks[MOST_TEXTS];   /* texts that surround the answer, which are not part of it */
    const char *prompts[MOST_TEXTS]; /* ends of a prompt that are part of the answer's format, besides think */
    /* An answer is a sequence of messages for these, whose headers are written so: of reasoning first, of other texts
     * and of calls. */
    struct { const char *user, *self, *tool; } channels;
    const char *text_headers[MOST_TEXTS], *call_headers[MOST_TEXTS];
    enum calls_written written;
};

struct family {
    const char *has[3], *lacks;       /* texts of the template */
    void (*adjust)(struct render *r, struct list *messages);
    void (*finish)(struct render *r, bool opens_turn, struct output *out);   /* changes the prompt */
    const char *stop;                /* ends an answer, besides the tokens that do */
    struct format format;
};

/* The family of a template; one that needs nothing if it belongs to none. */
const struct family *family_of(struct render *r, struct text source);
/* Whether a template describes tools to the model. */
bool describes_tools(struct text source);
/* Writes the family as a JSON object for programs that read answers, with the names of the members of struct format in
 * camel case, "stop", "describesTools", and "named": which of think and marks the template has. */
void family_write(struct render *r, struct output *out, const struct family *family, struct text source);
/* Writes calls, a list of {"name", "arguments"}, as the family's models write them. */
void family_write_calls(struct render *r, struct output *out, const struct format *format, const struct list *calls);
/* Writes a call with words for its parts, to show it to a model. */
void family_write_example(struct render *r, struct output *out, const struct format *format);

#endif
