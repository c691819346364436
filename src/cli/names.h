/* What llama.cpp and ollama call the options of plumb, for people who have their habits.
 *
 * These tables are the only place that has these names: options.c includes them here, and tools/tables.mjs makes
 * web/cli/names.js of them. */
#ifndef PLUMB_CLI_NAMES_H
#define PLUMB_CLI_NAMES_H

/* Another name, and the option that it stands for, in all commands that have that option.  Where a command has an
 * option of the first name itself, such as -r of bench, that one is meant. */
#define OTHER_NAMES(ROW) \
    ROW("-m", "--model") \
    ROW("-hfr", "-hf") \
    ROW("--hf-repo", "-hf") \
    ROW("--prompt", "-p") \
    ROW("-f", "--file") \
    ROW("-sys", "--system") \
    ROW("--system-prompt", "--system") \
    ROW("--n-predict", "-n") \
    ROW("--predict", "-n") \
    ROW("--temperature", "--temp") \
    ROW("--typical-p", "--typical") \
    ROW("-s", "--seed") \
    ROW("-r", "--stop") \
    ROW("--reverse-prompt", "--stop") \
    ROW("-i", "--interactive") \
    ROW("-cnv", "--interactive") \
    ROW("--conversation", "--interactive") \
    ROW("-no-cnv", "--raw") \
    ROW("--no-conversation", "--raw") \
    ROW("--grammar-file", "--grammar") \
    ROW("-j", "--json-schema") \
    ROW("-jf", "--json-schema") \
    ROW("--json-schema-file", "--json-schema") \
    ROW("-c", "--ctx") \
    ROW("--ctx-size", "--ctx") \
    ROW("-b", "--batch") \
    ROW("--batch-size", "--batch") \
    ROW("-t", "--threads") \
    ROW("-np", "--parallel") \
    ROW("-md", "--model-draft") \
    ROW("--draft", "--draft-max") \
    ROW("--draft-n", "--draft-max") \
    ROW("--draft-n-min", "--draft-min")

/* Options that have no effect here, how many values they have, and why. */
#define IGNORED_OPTIONS(ROW) \
    ROW("-ngl", 1, "plumb computes on the CPU") \
    ROW("--gpu-layers", 1, "plumb computes on the CPU") \
    ROW("--n-gpu-layers", 1, "plumb computes on the CPU") \
    ROW("--mlock", 0, "plumb reads the whole file into memory") \
    ROW("--no-mmap", 0, "plumb reads the whole file into memory") \
    ROW("--jinja", 0, "plumb always runs the chat template as Jinja") \
    ROW("--no-display-prompt", 0, "plumb does not print the prompt") \
    ROW("--verbose", 0, "plumb always prints the speeds")

#endif
