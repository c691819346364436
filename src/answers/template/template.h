/* Chat templates: the Jinja programs in tokenizer.chat_template, which turn a chat into a prompt.
 *
 *   source --lexer.c--> tokens --parser.c--> tree --evaluate.c (builtins.c, value.c)--> text
 *
 * The language is Jinja 2 as transformers sets it up; README.md describes it, what differs, and the limits.
 * chat.c adapts chats to what a template understands.
 */
#ifndef PLUMB_TEMPLATE_H
#define PLUMB_TEMPLATE_H

#include "template/value.h"

/* Upper bounds of one rendering.  A message of a chat takes about 10,000 steps and ten times its length.  Many
 * templates search all messages for each message, and some copy the prompt for each.  So the bounds grow with n
 * messages, up to 4096, in b bytes of JSON: by 64 n^2 steps, and by 64 n^2 + 4 n b bytes up to 1 GiB. */
struct template_limits { uint64_t work, bytes; };
#define TEMPLATE_LIMITS ((struct template_limits){1u << 28, 1u << 27})

/* What a template accepts, which small chats find out: contents that are texts, or lists of parts; system messages; and
 * arguments of calls that are objects and not JSON text. */
struct capabilities { bool are_known, text, parts, system, objects; };

struct chat_template {
    struct text source;
    struct text bos, eos;    /* what its variables bos_token and eos_token are */
    int64_t now;             /* seconds since 1970 on the clock of the place */
    struct capabilities *can;   /* kept from one chat to the next; NULL: found out for each */
    bool tells_tools;        /* a chat's system message tells the model about tools if the template does not */
};

/* Renders the template.  json: n_json bytes, an object whose members are the other variables.  is_chat: adapts the
 * messages as chat.c describes.  *text is to be freed, and has *n_text bytes, a final 0, and as many marks: the mark of
 * a byte is 1 if it comes from the variables, and else 0.  Fails with
 * PLUMB_ERROR_TEMPLATE and the place in the template, and with PLUMB_ERROR_ARGUMENT for JSON that is wrong. */
plumb_status template_render(const struct chat_template *t, const char *json, size_t n_json, bool is_chat,
                             struct template_limits limits, char **text, size_t *n_text, struct error *err);

/* Parses and runs the template, with the variables and those for BOS and EOS. */
void template_run(struct render *r, const struct chat_template *t, struct object *variables, struct output *out);

/* The same for a chat: adapts its variables before, and the text after that (chat.c). */
void chat_run(struct render *r, const struct chat_template *t, struct object *variables, struct output *out);
/* The template that a user, or a file, gives: "chatml", or nothing at all, stands for llama.cpp's ChatML
 * (CHATML_TEMPLATE_SRC in its common/chat.cpp), which its programs use for files without a template, too. */
struct text chat_source(struct text given);
/* A text that ends an answer of a model with this template, besides the tokens that do; NULL if there is none. */
const char *chat_stop(struct text source);

#endif
