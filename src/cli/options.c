/* One table holds every option of every command; the parser and the help texts read it.  The parser is strict: anything
 * unknown, malformed, out of range, missing or superfluous is refused with one line. */
#define _POSIX_C_SOURCE 200809L
#include "cli/cli.h"
#include "cli/names.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The type of an option's value.  COUNT: a U32 or "all"; RANGE: two U32, "0-3"; LORA, CONTROL: "FILE" or "FILE:0.5",
 * of which there may be several, as there may be of STOP and of MODEL, a file, and HUB, a name on huggingface.co.
 * FORMAT: "json" or a JSON Schema. */
enum kind { FLAG, TEXT, U32, U64, F32, F64, COUNT, RANGE, PRECISION, KV_TYPE, POOLING, WHITESPACE, SPECULATE, LORA,
            CONTROL, STOP, MODEL, HUB, FORMAT };

#define ON(command) (1u << COMMAND_##command)
#define TAKE_TEXTS (ON(EMBED) | ON(RANK))
#define CHATS (ON(RUN) | ON(CHAT))
#define TAKE_CTX (CHATS | ON(SCORE) | ON(BENCH) | TAKE_TEXTS)
#define TAKE_TOKENS (ON(TRACE) | ON(LOGITS) | ON(DIAGNOSE))
#define COMPUTE (TAKE_CTX | ON(TRACE) | ON(LOGITS) | ON(PERPLEXITY))
#define REPORTS (ON(DIFF) | ON(SELFCHECK) | ON(WEIGHTS) | ON(DIAGNOSE))
#define TWO_FILES (ON(DIFF) | ON(WEIGHTS))
#define TAKE_MODEL (COMPUTE | ON(INSPECT) | ON(TOKENIZE) | ON(SELFCHECK) | ON(DIAGNOSE))
#define AT(field) offsetof(struct options, field)
#define SAMPLING(type, name, low, high, standard, openai, option, label, step, hint, text) \
    { option, CHATS, KIND_OF_##type, AT(sampling.name), low, high, VALUE_OF_##type, text " (" #standard ")" },
#define KIND_OF_float F32
#define VALUE_OF_float "X"
#define KIND_OF_uint32_t U32
#define VALUE_OF_uint32_t "N"

static const struct option {
    const char *name;
    unsigned commands;
    enum kind kind;
    size_t target;         /* offset in struct options */
    double min, max;       /* bounds of U32, COUNT, F32 and F64, inclusive */
    const char *value, *help;
} table[] = {
    { "--model", TAKE_MODEL, MODEL, 0, 0, 0, "FILE", "the model; then the words are what comes after MODEL" },
    { "-hf", TAKE_MODEL, HUB, 0, 0, 0, "NAME", "a model on huggingface.co; it says how to download it" },
    { "-p", ON(RUN), TEXT, AT(prompt), 0, 0, "TEXT", "the prompt, instead of the words after MODEL" },
    { "--file", ON(RUN), TEXT, AT(input), 0, 0, "FILE", "read FILE instead of standard input" },
    { "--interactive", ON(RUN), FLAG, AT(interactive), 0, 0, NULL, "go on as a chat after the answer, as plumb chat" },
    { "-n", ON(RUN), U32, AT(n_predict), 1, UINT32_MAX, "N", "the largest number of tokens to generate (256)" },
    { "-n", ON(CHAT), U32, AT(n_predict), 1, UINT32_MAX, "N",
      "the largest number of tokens of an answer (until the context is full)" },
    { "--stop", CHATS, STOP, 0, 0, 0, "TEXT", "the answer ends before TEXT; several may be given" },
    { "--system", CHATS, TEXT, AT(system), 0, 0, "TEXT", "a system message before the prompt" },
    { "--chat-template", CHATS | TAKE_TOKENS, TEXT, AT(chat_template), 0, 0, "JINJA",
      "use this chat template instead of the file's: a file, the template itself, or chatml" },
    { "--chat-template-file", CHATS | TAKE_TOKENS, TEXT, AT(template_file), 0, 0, "FILE",
      "the same, always a file" },
    { "--tools", ON(RUN), TEXT, AT(tools), 0, 0, "FILE",
      "tell the model the tools in FILE, a JSON array as in OpenAI's API; a call is printed as the model writes it" },
    { "--raw", ON(RUN), FLAG, AT(raw), 0, 0, NULL, "continue the prompt as it is, without the model's chat template" },
    PLUMB_SAMPLING_TABLE(SAMPLING)
    { "--seed", CHATS, U64, AT(sampling.seed), 0, 0, "N",
      "the same seed gives the same text on every machine (a random one)" },
    { "--grammar", ON(RUN), TEXT, AT(grammar), 0, 0, "FILE",
      "a grammar in GBNF, llama.cpp's language: the answer is a text of its rule root; instead of FILE the grammar "
      "itself, which has ::=" },
    { "--gbnf", ON(RUN), TEXT, AT(gbnf), 0, 0, "TEXT", "the same, with the grammar itself" },
    { "--json-schema", ON(RUN), TEXT, AT(json_schema), 0, 0, "FILE",
      "a JSON Schema: the answer is the JSON text of a value that is valid by it; instead of FILE the schema itself, "
      "which begins with {" },
    { "--format", ON(RUN), FORMAT, AT(json_schema), 0, 0, "json", "the answer is a JSON object, or by a schema" },
    { "--regex", ON(RUN), TEXT, AT(regex), 0, 0, "RE",
      "a regular expression of JavaScript with its flag u: the whole answer matches it" },
    { "--json-schema", ON(GRAMMAR), TEXT, AT(json_schema), 0, 0, "FILE",
      "a JSON Schema in the place of the grammar, or the schema itself, which begins with {" },
    { "--regex", ON(GRAMMAR), TEXT, AT(regex), 0, 0, "RE",
      "a regular expression in the place of the grammar, which the whole text matches" },
    { "--no-strict", ON(RUN) | ON(GRAMMAR), FLAG, AT(schema.lenient), 0, 0, NULL,
      "with --json-schema: ignore keywords that cannot be kept, with a warning, instead of failing" },
    { "--any-order", ON(RUN) | ON(GRAMMAR), FLAG, AT(schema.any_order), 0, 0, NULL,
      "with --json-schema: the members of objects in any order, not in that of the schema" },
    { "--whitespace", ON(RUN) | ON(GRAMMAR), WHITESPACE, AT(schema.space), 0, 0, "NAME",
      "with --json-schema: compact (none), pretty (two spaces a level) or free (compact)" },
    { "-n", ON(GRAMMAR), U32, AT(n_repeat), 1, 1 << 20, "N", "sample, check: how many texts (1; check: 3)" },
    { "--seed", ON(GRAMMAR), U64, AT(sampling.seed), 0, 0, "N",
      "sample, check: the same seed gives the same texts (a random one; check: 0)" },
    { "--model", ON(GRAMMAR), TEXT, AT(model), 0, 0, "MODEL",
      "a model whose tokens the grammar names, as in <think>; only its header is read" },
    { "-p", TAKE_TOKENS, TEXT, AT(prompt), 0, 0, "TEXT", "the text to feed; - reads it from standard input" },
    { "-p", ON(TOKENIZE), TEXT, AT(text), 0, 0, "TEXT", "the text, instead of the word after MODEL" },
    { "--file", TAKE_TOKENS, TEXT, AT(input), 0, 0, "FILE", "the text to feed, instead of -p" },
    { "--file", ON(PERPLEXITY) | TAKE_TEXTS, TEXT, AT(text), 0, 0, "FILE", "FILE, as an option" },
    { "--tokens", TAKE_TOKENS, TEXT, AT(ids), 0, 0, "1,2,3", "the token ids to feed, instead of -p" },
    { "--chat", TAKE_TOKENS, FLAG, AT(chat), 0, 0, NULL,
      "put TEXT into the model's chat template; without --chat it is fed as it is" },
    { "--parse-special", ON(RUN), FLAG, AT(parse_special), 0, 0, NULL,
      "with --raw: text such as <|im_end|> becomes the special token of that name" },
    { "--parse-special", ON(TOKENIZE) | TAKE_TOKENS | TAKE_TEXTS, FLAG, AT(parse_special), 0, 0, NULL,
      "text such as <|im_end|> becomes the special token of that name" },
    { "--no-special", ON(TOKENIZE), FLAG, AT(no_special), 0, 0, NULL, "do not add the model's BOS and EOS" },
    { "--ids", ON(RUN), FLAG, AT(print_ids), 0, 0, NULL,
      "print the token ids instead of the text, on one line, including the end-of-turn token" },
    { "--ids", ON(TOKENIZE), FLAG, AT(print_ids), 0, 0, NULL, "print only the token ids, on one line" },
    { "--ids", ON(SCORE), TEXT, AT(ids), 0, 0, "1,2,3", "the token ids to feed (required)" },
    { "-p", ON(BENCH), U32, AT(n_prompt), 1, 1 << 24, "N", "tokens of the prompt (128)" },
    { "-n", ON(BENCH), U32, AT(n_predict), 1, 1 << 24, "N", "tokens to decode one by one, from an empty context (64)" },
    { "-r", ON(BENCH), U32, AT(n_repeat), 1, 1000, "N", "repetitions, after one to warm up (3)" },
    { "--n-prompt", ON(TRACE) | ON(DIAGNOSE), U32, AT(n_prompt), 1, 1 << 24, "N",
      "feed the first N tokens as a prompt and the others one by one (all)" },
    { "--taps", ON(TRACE), TEXT, AT(trace.taps), 0, 0, "NAMES",
      "taps to record, such as \"l_out-*,Qcur\": * matches any text, ? any character, a name without -LAYER all "
      "layers (all)" },
    { "--layers", ON(TRACE), RANGE, AT(trace.layer_first), 0, 0, "A-B",
      "layers to record, such as \"0-3\" or \"2\" (all)" },
    { "--values", ON(TRACE), COUNT, AT(trace.n_value), 0, UINT32_MAX, "N",
      "how many of the first values of each tap and token to record, or \"all\" (8); for the logits also the ten "
      "largest" },
    { "-o", ON(TRACE), TEXT, AT(output), 0, 0, "FILE",
      "write the trace to FILE: as GGUF if its name ends in .gguf, which needs --values all, otherwise as JSON" },
    { "--profile", ON(TRACE), FLAG, AT(profile), 0, 0, NULL,
      "print how long each operation takes, summed over all layers; the trace is written only with -o" },
    { "--against", ON(DIAGNOSE), TEXT, AT(against), 0, 0, "THEIRS",
      "a dump of what the other engine computed (required)" },
    { "--max", ON(DIAGNOSE), U32, AT(n_known), 1, 3, "N", "the largest number of mistakes in a set (3)" },
    { "--list", ON(DIAGNOSE), FLAG, AT(list), 0, 0, NULL, "print the known mistakes, or those that apply to MODEL" },
    { "--model", ON(DIFF), TEXT, AT(model), 0, 0, "MODEL", "a GGUF file; its vocabulary gives the texts of tokens" },
    { "--tolerance", ON(DIFF), F64, AT(tolerance), 1e-12, 1e12, "X",
      "the largest relative RMS error of taps that agree (0.01)" },
    { "--tolerance", ON(WEIGHTS), F64, AT(tolerance), 1e-12, 1e12, "X",
      "the largest relative RMS error of tensors that agree (depends on the precision of their types)" },
    { "--tolerance", ON(DIAGNOSE), F64, AT(tolerance), 1e-12, 1e12, "X",
      "the largest relative RMS error of taps that agree (0.01, or more if THEIRS has rounded activations)" },
    { "--all", ON(WEIGHTS), FLAG, AT(all), 0, 0, NULL, "print the tensors that agree too" },
    { "--html", ON(DIFF), TEXT, AT(html), 0, 0, "FILE", "also write the report to FILE, as one self-contained page" },
    { "--top", ON(LOGITS), U32, AT(n_top), 1, 1 << 24, "N", "how many of the likeliest tokens to print (10)" },
    { "-q", ON(RANK), TEXT, AT(query), 0, 0, "TEXT", "the query (required)" },
    { "--prefix", TAKE_TEXTS, TEXT, AT(prefix), 0, 0, "TEXT",
      "put TEXT in front of each line, such as \"query: \"; the model's card says which prefixes it was trained with" },
    { "--query-prefix", ON(RANK), TEXT, AT(query_prefix), 0, 0, "TEXT", "the same for the query" },
    { "--tokens", ON(EMBED), TEXT, AT(ids), 0, 0, "1,2,3", "the token ids of one text, instead of FILE" },
    { "--pooling", TAKE_TEXTS, POOLING, AT(pooling), 0, 0, "NAME",
      "how the vectors of the tokens become one: mean, cls (the first), last, or none to print all of them (as the "
      "file says)" },
    { "--dimensions", TAKE_TEXTS, U32, AT(n_dimension), 1, UINT32_MAX, "N",
      "keep only the first N elements of each vector, for models that were trained for that (all)" },
    { "--no-normalize", ON(EMBED), FLAG, AT(no_normalize), 0, 0, NULL, "do not divide each vector by its length" },
    { "--truncate", TAKE_TEXTS, FLAG, AT(truncate), 0, 0, NULL,
      "leave out the end of a line that is longer than the context, instead of failing" },
    { "--raw", ON(EMBED), FLAG, AT(raw), 0, 0, NULL, "print 32-bit floats, little-endian, instead of JSON" },
    { "--ctx", ON(PERPLEXITY), U32, AT(n_ctx), 4, PLUMB_MAX_CTX, "N",
      "tokens in a chunk, of which the second half is scored (512, or as in the saved run)" },
    { "--chunks", ON(PERPLEXITY), U32, AT(n_chunk), 1, 1 << 24, "N", "chunks to compute (all)" },
    { "--kl", ON(PERPLEXITY), TEXT, AT(base), 0, 0, "BASE",
      "compare with \"reference\", the slow pass that defines the correct result, or with the file of a saved run" },
    { "--save", ON(PERPLEXITY), TEXT, AT(save), 0, 0, "FILE",
      "save the run in the format of llama-perplexity's --kl-divergence-base" },
    { "--ctx", TAKE_CTX, U32, AT(n_ctx), 1, PLUMB_MAX_CTX, "N",
      "context size in tokens (what the model was trained for, or as many as have 512 MiB of K and V)" },
    { "--batch", COMPUTE, U32, AT(n_batch), 1, PLUMB_MAX_BATCH, "N",
      "prompt tokens computed at once (64, 128 or 256: fewer in larger models)" },
    { "--threads", COMPUTE, U32, AT(n_thread), 1, PLUMB_MAX_THREADS, "N",
      "threads that compute (one per available processor)" },
    { "--precision", COMPUTE, PRECISION, AT(precision), 0, 0, "NAME",
      "precision of activations: exact16, or fast8, which changes the text and is 0.8 to 1.1 times as fast on a Zen 4; "
      "on a Zen 5 its kernels alone are 1.1 to 1.7 times as fast (exact16)" },
    { "--kv-type", COMPUTE, KV_TYPE, AT(kv_type), 0, 0, "NAME",
      "how K and V are stored: i16, q8_0 or q4_0 (0.53 and 0.28 times the memory, less precise), or f32 (twice the "
      "memory, slow) (i16)" },
    { "--snapshots", COMPUTE, U32, AT(n_snapshot), 2, PLUMB_MAX_SNAPSHOTS, "N",
      "copies of the states of recurrent layers that are kept, to go back to (as many as fit into 64 MiB, 2 to 16)" },
    { "--shift", CHATS, U32, AT(n_keep), 1, PLUMB_MAX_CTX / 2, "N",
      "when the context is full, keep its first N tokens, such as 4, drop the older half of the others, and go on" },
    { "--speculate", CHATS, SPECULATE, AT(speculate), 0, 0, "NAME",
      "compute several tokens at once where the text is likely to repeat what came before, which changes no token: "
      "lookup, or off (lookup)" },
    { "--model-draft", CHATS, TEXT, AT(draft), 0, 0, "FILE",
      "a smaller model with the same vocabulary, which guesses the tokens that are computed at once where lookup "
      "cannot" },
    { "--draft-max", CHATS, U32, AT(n_draft_most), 1, PLUMB_MAX_DRAFT, "N",
      "tokens that are computed ahead at most (15)" },
    { "--draft-min", CHATS, U32, AT(n_draft_least), 0, PLUMB_MAX_DRAFT, "N",
      "tokens that are computed ahead at least, if any are likely (0: as many as pay on this machine)" },
    { "--load-state", ON(RUN), TEXT, AT(load_state), 0, 0, "FILE",
      "begin with the session in FILE: what the prompt has in common with it is not computed again" },
    { "--save-state", ON(RUN), TEXT, AT(save_state), 0, 0, "FILE", "save the session in FILE, with prompt and answer" },
    { "--lora", COMPUTE, LORA, 0, 0, 0, "FILE[:SCALE]",
      "use the LoRA adapter in FILE, a GGUF, times SCALE (1); several are used together" },
    { "--control-vector", COMPUTE, CONTROL, 0, 0, 0, "FILE[:SCALE]",
      "add the control vector in FILE, a GGUF, times SCALE (1); several are used together" },
    { "--control-vector-layer-range", COMPUTE, RANGE, AT(control_layers), 0, 0, "A-B",
      "the layers to which control vectors are added, counted from 0, such as \"10-20\" (all)" },
    { "--reference", COMPUTE, FLAG, AT(reference), 0, 0, NULL,
      "use the slow pass that defines the correct result" },
    { "--scalar", COMPUTE, FLAG, AT(scalar), 0, 0, NULL, "use only the portable kernels" },
    { "--json", CHATS, FLAG, AT(json), 0, 0, NULL,
      "print one JSON object for each answer: text, finishReason, stats, module, threads, seed" },
    { "--json", ON(INSPECT) | ON(TOKENIZE) | ON(SCORE) | ON(BENCH) | ON(TRACE) | ON(LOGITS) | ON(PERPLEXITY) | ON(RANK)
      | REPORTS,
      FLAG, AT(json), 0, 0, NULL, "print JSON" },
};

static const struct { const char *other, *name; } other_names[] = {
#define OTHER_NAME(other, name) { other, name },
    OTHER_NAMES(OTHER_NAME)
};

static const struct { const char *name; int n_value; const char *why; } ignored_options[] = {
#define IGNORED_OPTION(name, n_value, why) { name, n_value, why },
    IGNORED_OPTIONS(IGNORED_OPTION)
};

/* The model of embed and rank unless one is given: all-minilm-l6-v2 of models/manifest.json. */
#define DEFAULT_ENCODER "models/all-MiniLM-L6-v2.Q8_0.gguf"

#define REPORT_CODES(agree, differ) "Exit codes: 0 " agree ", 1 " differ ", 2 wrong usage, 3 failure.\n"

static const struct {
    const char *name, *usage, *summary, *text;
} commands[COMMAND_COUNT] = {
    [COMMAND_RUN] = { "run", "MODEL TEXT...", "answers a prompt",
        "The words after MODEL are the prompt.  Without a prompt, or if it is -, standard input is the prompt, and on\n"
        "a terminal a chat begins, as with plumb chat.  If there is a prompt and standard input is a pipe or a file,\n"
        "its text comes before the prompt, as in ollama.  Leading words that end in .gguf are further files of a\n"
        "split model, so a prompt that begins with such a word needs -p TEXT.  With -p, all words are files.\n\n"
        "Streams the answer to standard output, then prints speeds on standard error.  The prompt is put into the\n"
        "model's chat template unless --raw is given.  One newline at the end of\n"
        "standard input is not part of the prompt.  Stops at the model's end-of-turn token, after -n tokens or when\n"
        "the context is full.  The last line shows the seed, unless the temperature is 0.\n" },
    [COMMAND_CHAT] = { "chat", "MODEL", "starts a chat in the terminal",
        "Each line is a message.  For a message of several lines, end each line but the last with a backslash, or put\n"
        "\"\"\" before and after the message.  Ctrl-C stops an answer, and Ctrl-D exits.  /help lists the commands.\n"
        "When the context is full, the oldest turns are left out, or with --shift tokens are dropped.  If standard\n"
        "input is not a terminal, each of its lines is a message, even if it begins with a slash.\n" },
    [COMMAND_INSPECT] = { "inspect", "MODEL", "prints a file's keys and tensors",
        "Reads only the header, so it also works for a file whose tensors are cut off.  Only the first elements of\n"
        "arrays are shown.  Shapes begin with the fastest dimension.\n" },
    [COMMAND_TOKENIZE] = { "tokenize", "MODEL TEXT", "prints the tokens of a text",
        "Prints one token per line: its id and its bytes, escaped.  If TEXT is - or a pipe, all bytes of standard\n"
        "input are the text.\n" },
    [COMMAND_SCORE] = { "score", "MODEL --ids 1,2,3", "scores the given tokens",
        "Prints for each position: the token fed, the likeliest next token and its logit, the logarithm of the sum\n"
        "of the exponentials of all logits, the log-probability of the token that follows, and the FNV-1a 64 hash of\n"
        "the logits' bits, which allows hosts to be compared bit for bit.\n" },
    [COMMAND_BENCH] = { "bench", "MODEL", "measures prefill and decode",
        "Prints what was run, and the minimum, median and maximum of the repetitions in tokens per second.\n" },
    [COMMAND_TRACE] = { "trace", "MODEL -p TEXT", "records every step of the pass",
        "Records for each tap, under llama.cpp's names, and each token: shape, mean, RMS, extremes, NaN and Inf\n"
        "counts, the first values, and for attention weights the entropy of each head.  Prints a table, or with\n"
        "--json or -o writes the trace that `plumb diff` and `plumb diagnose` read.  Logits are computed after every\n"
        "token.  The text of -p gets the model's BOS; it is not put into the chat template unless --chat is given.\n" },
    [COMMAND_LOGITS] = { "logits", "MODEL -p TEXT", "prints the likeliest next tokens",
        "Prints their ids, texts, logits and probabilities after the last token.  The text of -p gets the model's\n"
        "BOS; it is not put into the chat template unless --chat is given.\n" },
    [COMMAND_PERPLEXITY] = { "perplexity", "MODEL FILE", "measures the perplexity of a text",
        "Works like llama-perplexity: FILE is cut into chunks of --ctx tokens, each chunk begins with BOS if the\n"
        "model asks for it, and the tokens of its second half are scored.  --kl also measures how far the\n"
        "probabilities are from those of the reference pass or of a saved run, which llama-perplexity may have\n"
        "written.  A saved run has 16 bits for each probability, so divergences from it below 1e-5 are rounding.\n" },
    [COMMAND_EMBED] = { "embed", "[MODEL] FILE", "prints embeddings of lines of text",
        "Each line of FILE is a text; - reads them from standard input.  Prints a line for each: a JSON array of\n"
        "numbers.  These vectors have the length 1, so that the product of two of them is their cosine similarity.\n"
        "With --pooling none a line is an array of arrays, one for each token.  MODEL is\n"
        DEFAULT_ENCODER " unless it is given.\n" },
    [COMMAND_RANK] = { "rank", "[MODEL] -q TEXT FILE", "sorts lines of text by a query",
        "Each line of FILE is a text; - reads them from standard input.  Prints the lines, the best answer to the\n"
        "query first, each with its score.  A reranker reads the query together with each line, joined as llama.cpp's\n"
        "server does; with any other model the score is the cosine similarity of the two embeddings, from -1 to 1.\n"
        "MODEL is\n"
        DEFAULT_ENCODER " unless it is given.\n" },
    [COMMAND_GRAMMAR] = { "grammar", "check|sample|match FILE", "tries out a grammar",
        "FILE is a grammar in GBNF, llama.cpp's language; - reads it from standard input.  With --json-schema or\n"
        "--regex there is no FILE.\n\n"
        "grammar check FILE: says whether it is correct, or what is wrong at which line and column.  If it is\n"
        "correct: which rules no text needs, or derive no text of finite length; a shortest text that a rule derives\n"
        "in two ways, or up to which length there is none; and a few random texts.\n\n"
        "grammar sample FILE: prints random texts of the grammar, each followed by a newline.\n\n"
        "grammar match FILE TEXT: says whether TEXT is a text of the grammar, or where it parts from it, what is\n"
        "allowed there and in which rules; if TEXT is -, all bytes of standard input are the text.\n\n"
        REPORT_CODES("it is correct or matches", "it is wrong or does not match") },
    [COMMAND_DIFF] = { "diff", "A B", "finds where two runs diverge",
        "A and B are traces of any engine: what `plumb trace` wrote, the text that llama-eval-callback prints, JSON\n"
        "as in docs/trace.md, or arrays of numpy.savez.  B is assumed to be correct.  Compares the tokens first, then\n"
        "prints one line for each tap, and a verdict, which names the first tap over the tolerance.\n\n"
        REPORT_CODES("they agree", "they differ") },
    [COMMAND_SELFCHECK] = { "selfcheck", "MODEL", "checks a file, and the engine with it",
        "Runs all checks that need no second engine: names, shapes and values of the tensors, prefill against single\n"
        "steps, scalar kernels against SIMD, the fast pass against the reference pass, a round trip of the\n"
        "tokenizer, and more.\n\n"
        REPORT_CODES("no check failed", "a check failed") },
    [COMMAND_WEIGHTS] = { "weights", "A.gguf B.gguf", "compares two files' tensors and keys",
        "Compares tensors by name and as dequantized, whatever their types.  B is assumed to be correct.  Prints the\n"
        "tensors that differ or are in one file only, and the keys that differ and decide what is computed.\n\n"
        REPORT_CODES("they agree", "they differ") },
    [COMMAND_DIAGNOSE] = { "diagnose", "MODEL --against THEIRS", "finds the mistake of another engine",
        "THEIRS is any file that `plumb diff` reads; it may have only a part of a run.  Looks for the known mistakes\n"
        "with which the reference pass reproduces its numbers.  If THEIRS does not list the tokens that were fed,\n"
        "--tokens or -p must.  The text of -p gets the model's BOS; it is not put into the chat template unless\n"
        "--chat is given.\n\n"
        REPORT_CODES("the numbers are correct", "they are wrong")
        "  4 if they are correct only as far as noise of an unknown kind allows to say.\n" },
};

/* ---- names ------------------------------------------------------------------------------------------------------- */

enum { N_OTHER = sizeof other_names / sizeof *other_names,
       N_IGNORED = sizeof ignored_options / sizeof *ignored_options };

static bool is_name(const char *name, const char *word, size_t n) {
    return strlen(name) == n && memcmp(name, word, n) == 0;
}

/* The option of this command whose name, or other name, is the first n bytes of word; NULL if there is none. */
static const struct option *find_option(enum command command, const char *word, size_t n) {
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if ((table[i].commands & 1u << command) && is_name(table[i].name, word, n)) return &table[i];
    }
    for (size_t i = 0; i < N_OTHER; i++) {
        const char *name = other_names[i].name;
        if (is_name(other_names[i].other, word, n)) return find_option(command, name, strlen(name));
    }
    return NULL;
}

/* The name that is most like a word: the one with the fewest characters to insert, to remove or to replace (Levenshtein
 * 1966), and of several the first in the order of their bytes.  web/cli/arguments.js has the same rule. */
struct nearest { const char *name; size_t distance; };

static void compare_name(struct nearest *best, const char *word, size_t n, const char *name) {
    size_t row[64], m = strlen(name);
    if (m >= 64) return;
    for (size_t k = 0; k <= m; k++) row[k] = k;
    for (size_t i = 0; i < n; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t k = 0; k < m; k++) {
            const size_t replaced = diagonal + (word[i] != name[k]), removed = row[k + 1] + 1, inserted = row[k] + 1;
            diagonal = row[k + 1];
            row[k + 1] = replaced < removed ? replaced : removed;
            if (inserted < row[k + 1]) row[k + 1] = inserted;
        }
    }
    bool is_first = best->name && row[m] == best->distance && strcmp(name, best->name) < 0;
    if (!best->name || row[m] < best->distance || is_first) *best = (struct nearest){ name, row[m] };
}

/* "; the nearest is NAME", or "" if nothing is similar: if more than half of the word differs. */
static const char *guess(struct nearest best, size_t n, char *text, size_t size) {
    if (!best.name || best.distance * 2 > n) return "";
    snprintf(text, size, "; the nearest is %s", best.name);
    return text;
}

/* Says that a command has no option of this name, and which one is like it. */
static void print_unknown(enum command command, const char *word, size_t n) {
    struct nearest best = { NULL, 0 };
    char text[80];
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (table[i].commands & 1u << command) compare_name(&best, word, n, table[i].name);
    }
    for (size_t i = 0; i < N_OTHER; i++) {
        const char *other = other_names[i].other;
        if (find_option(command, other, strlen(other))) compare_name(&best, word, n, other);
    }
    print_error(0, "%s: unknown option %.*s%s; see plumb %s --help", commands[command].name, (int)n, word,
                guess(best, n, text, sizeof text), commands[command].name);
}

static void print_unknown_command(const char *name) {
    struct nearest best = { NULL, 0 };
    char text[80];
    for (int i = 0; i < COMMAND_COUNT; i++) compare_name(&best, name, strlen(name), commands[i].name);
    print_error(0, "unknown command %s%s; see plumb --help", name, guess(best, strlen(name), text, sizeof text));
}

/* ---- help -------------------------------------------------------------------------------------------------------- */

static void print_help(void) {
    out("plumb " PLUMB_VERSION ": GGUF language models in WebAssembly\n\n"
        "usage: plumb COMMAND MODEL... [options]\n\n");
    for (int i = 0; i < COMMAND_COUNT; i++) {
        out("  plumb %-10s %-23s %s\n", commands[i].name, commands[i].usage, commands[i].summary);
    }
    out("\n");
    out_wrapped("MODEL is a GGUF file; the files of a split model are given in order.  `plumb COMMAND --help` lists "
                "the options.  --version prints the version.\n\n"
                "Exit codes: 0 success, 1 failure, 2 wrong usage, 130 interrupted.  For grammar and the last four "
                "commands, 1 means that the two sides differ or a check failed, and 3 means failure; diagnose also has "
                "4: the numbers agree only if noise of an unknown kind is allowed for.", 0, 0);
}

const char *command_name(enum command command) { return commands[command].name; }

static void print_command_help(enum command command) {
    enum { TEXT_COLUMN = 24 };
    out("usage: plumb %s %s [options]\n\n", commands[command].name, commands[command].usage);
    out_wrapped(commands[command].text, 0, 0);
    out("\n");
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (!(table[i].commands & 1u << command)) continue;
        char left[40], help[1024];
        int n = snprintf(left, sizeof left, "  %s %s", table[i].name, table[i].value ? table[i].value : "");
        int length = snprintf(help, sizeof help, "%s", table[i].help);
        const char *join = "; also ";
        for (size_t k = 0; k < N_OTHER && length < (int)sizeof help; k++) {
            if (find_option(command, other_names[k].other, strlen(other_names[k].other)) != &table[i]) continue;
            length += snprintf(help + length, sizeof help - (size_t)length, "%s%s", join, other_names[k].other);
            join = ", ";
        }
        if (n < TEXT_COLUMN) out("%-*s", TEXT_COLUMN, left);
        else out("%s\n%*s", left, TEXT_COLUMN, "");
        out_wrapped(help, TEXT_COLUMN, TEXT_COLUMN);
    }
    out("%-*sprint this help\n", TEXT_COLUMN, "  --help");
}

/* ---- parsing ----------------------------------------------------------------------------------------------------- */

/* Accepts decimal digits only: strtoull by itself would skip the space of " 1" and take "-1" too. */
static bool parse_u64(const char *word, uint64_t max, uint64_t *out_value) {
    if (*word == '\0' || word[strspn(word, "0123456789")] != '\0') return false;
    errno = 0;
    unsigned long long value = strtoull(word, NULL, 10);
    if (errno != 0 || value > max) return false;
    *out_value = value;
    return true;
}

/* Accepts decimal numbers only: strtod by itself would also take "nan", "inf", " 1" and "0x1". */
static bool parse_f64(const char *word, double *out_value) {
    if (*word == '\0' || word[strspn(word, "+-.0123456789eE")] != '\0') return false;
    char *end;
    *out_value = strtod(word, &end);
    return *end == '\0' && end != word;
}

/* Parses "0-3", or "2" as "2-2", into two numbers. */
static bool parse_range(const char *word, uint32_t *first_last) {
    const char *dash = strchr(word, '-');
    char first[12] = "";
    size_t n = dash ? (size_t)(dash - word) : strlen(word);
    if (n >= sizeof first) return false;
    memcpy(first, word, n);
    uint64_t a, b;
    if (!parse_u64(first, UINT32_MAX, &a) || !parse_u64(dash ? dash + 1 : first, UINT32_MAX, &b) || b < a) return false;
    first_last[0] = (uint32_t)a;
    first_last[1] = (uint32_t)b;
    return true;
}

/* Takes the word apart at its last colon, if a number follows.  Returns false if there is no room.  The path is never
 * freed: like argv, it lives as long as the process. */
static bool take_adapter(struct options *options, const char *word, bool is_control) {
    const char *colon = strrchr(word, ':');
    double scale = 1;
    bool has_scale = colon && colon != word && parse_f64(colon + 1, &scale);
    size_t n = has_scale ? (size_t)(colon - word) : strlen(word);
    if (options->n_adapter == MAX_ADAPTERS) return false;
    char *path = allocate(n + 1);
    memcpy(path, word, n);
    path[n] = '\0';
    options->adapters[options->n_adapter++] = (struct adapter_option) { path, (float)scale, is_control };
    return true;
}

/* The name of value i of an option that takes one of several names; NULL after the last. */
static const char *name_of(enum kind kind, int i) {
    static const char *const poolings[] = { "none", "mean", "cls", "last", NULL };   /* as plumb_pooling has them */
    static const char *const speculations[] = { "lookup", "off", NULL };             /* as enum speculate */
    static const char *const spaces[] = { "compact", "pretty", "free", NULL };       /* as plumb_json_space */
    switch (kind) {
    case PRECISION: return plumb_precision_name((plumb_precision)i);
    case KV_TYPE: return plumb_kv_type_name((plumb_kv_type)i);
    case POOLING: return poolings[i];
    case WHITESPACE: return spaces[i];
    case SPECULATE: return speculations[i];
    default: return NULL;
    }
}

/* Sets *value to the one with this name, or prints what is expected. */
static bool find_name(const char *command, const struct option *o, const char *word, int *value) {
    char names[80] = "";
    for (int i = 0; name_of(o->kind, i); i++) {
        if (strcmp(word, name_of(o->kind, i)) == 0) {
            *value = i;
            return true;
        }
        size_t n = strlen(names);
        const char *join = i == 0 ? "" : name_of(o->kind, i + 1) ? ", " : " or ";
        snprintf(names + n, sizeof names - n, "%s%s", join, name_of(o->kind, i));
    }
    print_error(0, "%s: %s: \"%s\" is not %s", command, o->name, word, names);
    return false;
}

/* Joins words.  The result is never freed: like argv, it lives as long as the process. */
static const char *join_words(const char *const *words, size_t n, const char *between) {
    size_t size = 1;
    for (size_t i = 0; i < n; i++) size += strlen(words[i]) + strlen(between);
    char *text = allocate(size), *at = text;
    for (size_t i = 0; i < n; i++) {
        at += snprintf(at, size - (size_t)(at - text), "%s%s", i > 0 ? between : "", words[i]);
    }
    return text;
}

/* Adds a file of the model.  Returns false after a message. */
static bool take_file(struct options *options, const char *path) {
    if (options->n_file < MAX_FILES) {
        options->files[options->n_file++] = path;
        return true;
    }
    print_error(0, "%s: at most %d files can be given", commands[options->command].name, MAX_FILES);
    return false;
}

/* Parses word as the value of option o and stores it.  Returns false after a message. */
static bool store(struct options *options, const struct option *o, const char *word) {
    void *target = (char *)options + o->target;
    const char *command = commands[options->command].name;
    uint64_t integer;
    double real;
    int value;
    switch (o->kind) {
    case FLAG: *(bool *)target = true; return true;
    case TEXT: *(const char **)target = word; return true;
    case COUNT:
        if (strcmp(word, "all") == 0) {
            *(uint32_t *)target = UINT32_MAX;
            return true;
        }
        /* fall through */
    case U32:
        if (parse_u64(word, (uint64_t)o->max, &integer) && integer >= (uint64_t)o->min) {
            *(uint32_t *)target = (uint32_t)integer;
            return true;
        }
        print_error(0, "%s: %s: \"%s\" is not an integer from %.0f to %.0f%s", command, o->name, word, o->min, o->max,
                 o->kind == COUNT ? " or \"all\"" : "");
        return false;
    case U64:
        options->has_seed = true;   /* --seed is the only U64 option */
        if (parse_u64(word, UINT64_MAX, (uint64_t *)target)) return true;
        print_error(0, "%s: %s: \"%s\" is not an integer from 0 to 18446744073709551615", command, o->name, word);
        return false;
    case F32:
    case F64:
        if (parse_f64(word, &real) && real >= o->min && real <= o->max) {
            if (o->kind == F32) *(float *)target = (float)real;
            else *(double *)target = real;
            return true;
        }
        print_error(0, "%s: %s: \"%s\" is not a number from %g to %g", command, o->name, word, o->min, o->max);
        return false;
    case RANGE:
        if (parse_range(word, target)) return true;
        print_error(0, "%s: %s: \"%s\" is not a range such as 0-3 or 2", command, o->name, word);
        return false;
    case MODEL:
        return take_file(options, word);
    case HUB:
        return take_file(options, join_words((const char *const[]){ "hf:", word }, 2, ""));
    case FORMAT:
        *(const char **)target = strcmp(word, "json") == 0 ? "{\"type\": \"object\"}" : word;
        if (strcmp(word, "json") == 0 || word[strspn(word, " \t\r\n")] == '{') return true;
        print_error(0, "%s: %s: \"%s\" is neither json nor a JSON Schema", command, o->name, word);
        return false;
    case STOP:
        if (options->n_stop < MAX_STOPS && *word) {
            options->stops[options->n_stop++] = word;
            return true;
        }
        print_error(0, *word ? "%s: %s: at most %d texts can be given" : "%s: %s: the text is empty", command, o->name,
                    MAX_STOPS);
        return false;
    case LORA: case CONTROL:
        if (take_adapter(options, word, o->kind == CONTROL)) return true;
        print_error(0, "%s: at most %d adapters can be used together", command, MAX_ADAPTERS);
        return false;
    case PRECISION: case POOLING: case KV_TYPE: case WHITESPACE: case SPECULATE:
        options->has_pooling |= o->kind == POOLING;
        if (!find_name(command, o, word, &value)) return false;
        memcpy(target, &value, sizeof value);   /* an enum has the size of an int */
        return true;
    }
    return false;
}

/* Stores the option at argv[i] and its value.  Returns the index of the next word, or 0 after a message. */
static int take_option(int argc, char **argv, int i, struct options *options) {
    const char *word = argv[i], *command = commands[options->command].name;
    const char *equals = strncmp(word, "--", 2) == 0 ? strchr(word, '=') : NULL;
    size_t n = equals ? (size_t)(equals - word) : strlen(word);
    const struct option *o = find_option(options->command, word, n);
    for (size_t k = 0; k < N_IGNORED && !o; k++) {
        if (!is_name(ignored_options[k].name, word, n)) continue;
        print_error(0, "%s: %s has no effect: %s", command, ignored_options[k].name, ignored_options[k].why);
        const int next = i + 1 + (equals ? 0 : ignored_options[k].n_value);
        return next < argc ? next : argc;
    }
    if (!o) {
        print_unknown(options->command, word, n);
        return 0;
    }
    if (o->kind == FLAG && equals) return print_error(0, "%s: %s takes no value", command, o->name);
    if (o->kind != FLAG && !equals && ++i == argc) return print_error(0, "%s: %s needs a value", command, o->name);
    return store(options, o, equals ? equals + 1 : argv[i]) ? i + 1 : 0;
}

/* Takes the words of the command grammar: check, sample or match, then the file unless an option has the grammar, then
 * the text to match.  Returns what is wrong, or NULL. */
static const char *take_grammar_words(struct options *o) {
    if (o->n_file == 0) return "check, sample or match is needed";
    bool is_match = strcmp(o->files[0], "match") == 0, has_file = !o->json_schema && !o->regex;
    if (o->n_file == 1 && has_file && !is_match && has_input()) o->files[o->n_file++] = "-";
    if (!is_match && strcmp(o->files[0], "check") != 0 && strcmp(o->files[0], "sample") != 0) {
        return "the first word is check, sample or match";
    }
    if (o->n_file != 1 + (size_t)has_file + (size_t)is_match) {
        if (has_file) return is_match ? "FILE and TEXT are needed" : "one FILE is needed";
        return is_match ? "TEXT is needed, and no FILE beside --json-schema or --regex"
                        : "there is no FILE beside --json-schema or --regex";
    }
    if (is_match) o->text = o->files[o->n_file - 1];
    if (has_file) o->grammar = o->files[1];
    return NULL;
}

const char *belongs_to_one(const struct options *o) {
    return o->raw ? "a chat cannot be combined with --raw"
         : o->grammar || o->gbnf || o->json_schema || o->regex ? "a chat cannot be combined with a grammar or schema"
         : o->tools ? "a chat cannot be combined with --tools" : o->print_ids ? "a chat cannot be combined with --ids"
         : o->load_state || o->save_state ? "a chat cannot be combined with --load-state or --save-state" : NULL;
}

/* Says which option or file is missing, or which options contradict each other; NULL if none do.  Also moves the last
 * word of commands that read a text to o->text, and sets o->raw for the commands that need --chat to use the
 * template. */
static const char *check_options(struct options *o) {
    bool takes_texts = 1u << o->command & TAKE_TEXTS && !o->ids;
    bool last_is_text = o->command == COMMAND_TOKENIZE || o->command == COMMAND_PERPLEXITY || takes_texts;
    const bool is_model = o->n_file == 1 && (!takes_texts || has_gguf_suffix(o->files[0]));
    const bool lacks_text = last_is_text && !o->text && (is_model || (takes_texts && o->n_file == 0));
    if (lacks_text && has_input()) o->text = "-";
    else if (last_is_text && !o->text && o->n_file > 0) o->text = o->files[--o->n_file];
    if (o->command == COMMAND_GRAMMAR) {
        const char *wrong = take_grammar_words(o);
        if (wrong) return wrong;
    }
    const char *const grammars[] = { o->grammar, o->gbnf, o->json_schema, o->regex };
    int n_grammar = 0;
    for (size_t i = 0; i < sizeof grammars / sizeof *grammars; i++) n_grammar += grammars[i] != NULL;
    if (n_grammar > 1) return "--grammar, --gbnf, --json-schema and --regex exclude each other";
    if (!o->json_schema && (o->schema.lenient || o->schema.any_order || o->schema.space != PLUMB_JSON_COMPACT)) {
        return "--no-strict, --any-order and --whitespace need --json-schema";
    }
    const uint32_t *layers = o->control_layers;
    bool has_control = false, has_layers = layers[0] > 0 || layers[1] < UINT32_MAX;
    for (size_t i = 0; i < o->n_adapter; i++) has_control |= o->adapters[i].is_control;
    if (has_layers && !has_control) return "--control-vector-layer-range needs --control-vector";
    if (layers[1] == 0) return "--control-vector-layer-range: there is no control vector of layer 0";
    if (o->input && o->prompt && strcmp(o->prompt, "-") == 0) o->prompt = NULL;   /* --file is in its place */
    const char *const inputs[] = { o->grammar, o->json_schema, o->prompt, o->text, o->tools, o->input };
    int n_stdin = 0;
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) n_stdin += inputs[i] && strcmp(inputs[i], "-") == 0;
    if (n_stdin > 1) return "only one input can be - (standard input)";
    if (o->command == COMMAND_GRAMMAR) return NULL;
    if (1u << o->command & TWO_FILES) return o->n_file == 2 ? NULL : "exactly two files, A and B, are needed";
    if (o->list && (o->against || o->prompt || o->ids)) {
        return "--list cannot be combined with --against, -p or --tokens";
    }
    if (o->list) return NULL;
    if (takes_texts && (!o->text || has_gguf_suffix(o->text))) return "FILE is needed";
    if (o->command == COMMAND_RANK && !o->query) return "-q TEXT is needed";
    if (o->command == COMMAND_RANK && o->has_pooling && o->pooling == PLUMB_POOLING_NONE) {
        return "--pooling none leaves no vectors to compare";
    }
    if (o->n_file == 0 && 1u << o->command & TAKE_TEXTS) {
        if (file_size(DEFAULT_ENCODER) == PLUMB_SIZE_UNKNOWN) {
            return "MODEL is needed, as " DEFAULT_ENCODER " is not there (python3 models/fetch.py all-minilm-l6-v2)";
        }
        o->files[o->n_file++] = DEFAULT_ENCODER;
    }
    if (o->n_file == 0) {
        return o->command == COMMAND_TOKENIZE ? "MODEL and TEXT are needed"
             : o->command == COMMAND_PERPLEXITY ? "MODEL and FILE are needed" : "MODEL is needed";
    }
    if (o->chat_template && o->template_file) return "--chat-template and --chat-template-file exclude each other";
    if (o->interactive && o->command == COMMAND_RUN && belongs_to_one(o)) return belongs_to_one(o);
    if (o->command == COMMAND_RUN && o->raw && o->system) return "--system needs the chat template, which --raw omits";
    if (o->command == COMMAND_RUN && o->raw && o->tools) return "--tools needs the chat template, which --raw omits";
    if (o->print_ids && o->json && o->command == COMMAND_RUN) return "--ids and --json exclude each other";
    if (o->command == COMMAND_SCORE && !o->ids) return "--ids is needed";
    if (o->command == COMMAND_DIAGNOSE && !o->against) return "--against THEIRS is needed";
    if (1u << o->command & TAKE_TOKENS) {
        bool is_needed = o->command != COMMAND_DIAGNOSE || o->n_prompt != UINT32_MAX || o->chat || o->parse_special;
        bool has_text = o->prompt || o->input;
        if (is_needed && !has_text && !o->ids) {
            if (!has_input()) return "-p TEXT or --tokens is needed";
            o->prompt = "-";
        }
        if (o->prompt && o->input) return "-p and --file cannot be combined";
        if (has_text && o->ids) return "-p and --tokens cannot be combined";
        if (o->ids && (o->chat || o->parse_special)) return "--chat and --parse-special need -p, not --tokens";
        if (!o->chat && (o->chat_template || o->template_file)) return "--chat-template needs --chat";
        o->raw = !o->chat;
    }
    if (o->output && has_gguf_suffix(o->output) && o->trace.n_value != UINT32_MAX) {
        return "-o FILE.gguf needs --values all";
    }
    if (o->profile && o->output && strcmp(o->output, "-") == 0) {
        return "-o - and --profile would both write to standard output";
    }
    if (o->reference && o->precision) return "--precision applies only to the fast pass, not to --reference";
    if (o->reference && o->kv_type) return "--kv-type applies only to the fast pass, not to --reference";
    if (o->reference && o->n_snapshot) return "--snapshots applies only to the fast pass, not to --reference";
    if (o->n_draft_least > (o->n_draft_most > 0 ? o->n_draft_most : PLUMB_MAX_DRAFT)) {
        return "--draft-min is above --draft-max";
    }
    if (o->reference && o->scalar) return "--reference and --scalar cannot be combined";
    return NULL;
}

/* Returns an output file that is also an input and would be overwritten; NULL if there is none. */
static const char *find_overwritten(const struct options *o) {
    const char *outputs[] = { o->output, o->html, o->save };
    const char *inputs[] = { o->text, o->model, o->against, o->base };
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++) {
        if (!outputs[i]) continue;
        for (size_t k = 0; k < sizeof inputs / sizeof *inputs; k++) {
            if (inputs[k] && same_file(outputs[i], inputs[k])) return outputs[i];
        }
        for (size_t k = 0; k < o->n_file; k++) {
            if (same_file(outputs[i], o->files[k])) return outputs[i];
        }
        for (size_t k = 0; k < o->n_adapter; k++) {
            if (same_file(outputs[i], o->adapters[k].path)) return outputs[i];
        }
    }
    return NULL;
}

/* Stores the words that are not options: files, unless --model gave them, and for `run` without -p the prompt.  Returns
 * false after a message. */
static bool take_words(struct options *o, const char *const *words, size_t n) {
    size_t n_file = n;
    if (o->command == COMMAND_RUN && !o->prompt) {
        const bool has_model = o->n_file > 0;
        for (n_file = !has_model && n > 0; !has_model && n_file < n && has_gguf_suffix(words[n_file]);) n_file++;
        if (n_file < n) o->prompt = join_words(words + n_file, n - n_file, " ");
    }
    for (size_t i = 0; i < n_file; i++) {
        if (!take_file(o, words[i])) return false;
    }
    return true;
}

bool parse_options(int argc, char **argv, struct options *options, int *exit_code) {
    *options = (struct options){ .n_prompt = 128, .n_repeat = 3, .n_top = 10,
                                 .n_chunk = UINT32_MAX, .control_layers = { 0, UINT32_MAX },
                                 .trace = { NULL, 0, UINT32_MAX, 8 },
                                 .sampling = plumb_sampling_default() };
    *exit_code = EXIT_USAGE;
    if (argc < 2) {
        print_error(0, "no command; see plumb --help");
        return false;
    }
    bool is_help = strcmp(argv[1], "help") == 0;
    if ((is_help && argc == 2) || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_help();
        *exit_code = out_close(EXIT_OK);
        return false;
    }
    if (strcmp(argv[1], "--version") == 0) {
        out("plumb " PLUMB_VERSION "\n");
        *exit_code = out_close(EXIT_OK);
        return false;
    }
    int command = 0;
    const char *name = argv[is_help ? 2 : 1];
    while (command < COMMAND_COUNT && strcmp(name, commands[command].name) != 0) command++;
    if (command == COMMAND_COUNT) {
        print_unknown_command(name);
        return false;
    }
    if (is_help) {
        print_command_help((enum command)command);
        *exit_code = out_close(EXIT_OK);
        return false;
    }
    options->command = (enum command)command;
    if (command == COMMAND_BENCH) options->n_predict = 64;
    if (command == COMMAND_TRACE || command == COMMAND_DIAGNOSE) options->n_prompt = UINT32_MAX;
    if (command == COMMAND_GRAMMAR) options->n_repeat = 0;   /* the default of its first word */
    if (1u << command & (REPORTS | ON(GRAMMAR))) exit_failed = 3;

    bool only_words = false;   /* set by --: no options follow */
    const char **words = allocate((size_t)argc * sizeof *words);
    size_t n_word = 0;
    for (int i = 2; i < argc;) {
        const char *word = argv[i];
        if (!only_words && (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)) {
            print_command_help(options->command);
            *exit_code = out_close(EXIT_OK);
            free(words);
            return false;
        } else if (!only_words && strcmp(word, "--") == 0) {
            only_words = true;
            i++;
        } else if (!only_words && word[0] == '-' && word[1] != '\0') {
            i = take_option(argc, argv, i, options);
            if (i == 0) {
                free(words);
                return false;
            }
        } else {
            words[n_word++] = argv[i++];
        }
    }
    bool ok = take_words(options, words, n_word);
    free(words);
    if (!ok) return false;
    const char *missing = check_options(options), *overwritten = missing ? NULL : find_overwritten(options);
    if (missing) print_error(0, "%s: %s; see plumb %s --help", commands[command].name, missing, commands[command].name);
    if (overwritten) {
        print_error(0, "%s: %s is also an input and would be overwritten", commands[command].name, overwritten);
    }
    return !missing && !overwritten;
}
