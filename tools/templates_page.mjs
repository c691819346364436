/* Writes docs/templates.md: which chat templates plumb renders as llama.cpp does.
 *
 *   node tools/templates_page.mjs [--check]     --check: fails if the page is another one
 *
 * needs build/native/tests: the results are the notes of its test. */
import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url)), page = `${root}docs/templates.md`;
/** Template, conversation, the variables' number, llama.cpp's text, and its prompt. */
const rows = readFileSync(`${root}tests/vectors/templates/expected.tsv`, 'utf8').trimEnd().split('\n')
  .map(line => line.split('\t'));
const names = [...new Set(rows.map(([name]) => name))];

/** "# NAME: 12 texts" and "# NAME: 12 prompts". */
const tap = spawnSync(`${root}build/native/tests`, ['template: '], { cwd: root, encoding: 'utf8' }).stdout;
/** @param {string} name @param {string} what */
const equal = (name, what) => Number(tap.split('\n').map(line => /^# (.*): (\d+) (\w+)$/.exec(line) ?? [])
  .find(([, one, , of]) => one === name && of === what)?.[2] ?? NaN);

const table = names.map(name => [equal(name, 'texts'), equal(name, 'prompts'),
  rows.filter(([one, , , text]) => one === name && text.startsWith('"')).length]);
const isWhole = (/** @type {number} */ i) => table[i].join() === '12,12,0';
const total = (/** @type {number} */ column) => table.reduce((sum, row) => sum + row[column], 0);

const text = `# Chat templates

A chat template is a program in Jinja that comes with the model. plumb has an engine for it in C, which does as jinja2
does, set up as transformers sets it up. It makes the texts of jinja2 3.1.6 for 160 templates that llama.cpp does not
have, with 5 conversations each, and for 317 small ones (\`tests/vectors/jinja2\`, by a generator with a seed). Of the
${names.length} templates below and 34 others, of models that people train, with 12 conversations each, 1,089 texts are
those of jinja2, and 59 are refused with the same words. jinja2 refuses 96 more, as it joins no text to what is missing,
and escapes 4 for HTML, in which a template joins texts to one that is \`safe\`.

This page compares it with llama.cpp v0.5.0, for the ${names.length} templates of its \`models/templates\` and 12
conversations each: with and without a system message, several of them, empty contents, content in parts, no generation
prompt, thinking on and off, tools, calls with results, parallel calls, and earlier reasoning.
\`tests/vectors/templates\` has the templates, the conversations and llama.cpp's results.

- **text**: of 12 texts, how many equal those of llama.cpp's engine, given the variables that llama.cpp gives to it. If
  llama.cpp fails, plumb must fail.
- **prompt**: of 12 conversations, how many become the prompt of llama.cpp's server. Before it renders, llama.cpp finds
  out what the template can do, and changes messages and variables accordingly.
- **fails**: of 12, how many llama.cpp refuses; most of them because the template raises an exception.

Of ${rows.length} texts and ${rows.length} prompts, ${total(0)} and ${total(1)} are equal. \`tests/template_test.c\` \
checks every row on every host, and
\`tests/node/templates.test.mjs\` in the package's module.

Where llama.cpp's engine differs from jinja2, plumb does as jinja2 does:

- GigaChat3-10B-A1.8B, GigaChat3.1-10B-A1.8B: llama.cpp fails at \`in\` between two lists.
- openbmb-MiniCPM5-1B: llama.cpp prints a list of objects as nothing.
- google-gemma-4-31B-it, google-gemma-4-31B-it-interleaved: llama.cpp prints none as nothing, Python as None.

One template is rendered in 3 conversations that llama.cpp and jinja2 refuse:

- CohereForAI-c4ai-command-r-plus-tool_use: llama.cpp refuses a member of the method \`items\`, which jinja2 takes as
  undefined.

More differences of the same kind show in other templates: llama.cpp sees a variable of one iteration of a loop in the
next (\`[leak][][]\` becomes \`[leak][leak][leak]\`), forgets what an iteration has printed before \`break\` and
\`continue\`, counts the bytes of a text and not its characters, prints none as nothing and 1.0 as 1 in JSON, and calls
macros with the variables of the caller. What jinja2 refuses and llama.cpp does not, plumb does as llama.cpp or refuses:
a text plus none or a number, members of what is undefined, \`append\` and \`pop\` of lists. \`safe\` changes nothing:
in jinja2, what is joined to its result is escaped for HTML.

llama.cpp's server sets \`enable_thinking\` to true. plumb leaves it to the template unless the caller sets it, as
transformers and vLLM do: in 16 of the ${names.length} templates that makes a difference. The comparison sets it.

In one template the prompt has more than llama.cpp's:

- ibm-granite-granite-3.3-2B-Instruct: the template leaves out earlier calls; plumb writes them as the model did.

Changes that llama.cpp makes for families of models are made, too: reasoning as a part of the content (Ministral 3,
Devstral) or as \`thinking\` (gpt-oss, LFM2), results inside the message with the calls (the first template of Gemma 4)
or in the order of the calls (DeepSeek V4), contents without white space around them (StepFun). 50 more conversations
with such templates are equal (\`families.tsv\`), except for what Python prints otherwise, as above.

If a template does not tell the model about tools, a system message does, as the models of Hermes and Qwen are told; the
comparison leaves it out.

Long conversations: of 2,001 messages, all ${names.length} templates make a prompt in less than half a second. What a
rendering may do grows with the square of the number of messages, up to 4,096, because many templates search all
messages for each message ([security.md](security.md)).

Answers end where those of llama.cpp's server end: at the tokens that llama.cpp takes for ends (by their text or a key
of the file, \`src/engine/tokenizer/vocab.c\`), and at the texts that it adds for two families,
\`</assistant>\` (Laguna) and \`<|role_end|>\` (Ling 3).

A construct that plumb does not know is an error with line, column and its name.
[src/answers/template/README.md](../src/answers/template/README.md) describes the language and the limits.

| template | text | prompt | fails |
|---|---|---|---|
${table.flatMap((columns, i) => isWhole(i) ? [] : [`| ${[names[i], ...columns].join(' | ')} |`]).join('\n')}

The others have 12, 12 and 0: ${names.filter((_, i) => isWhole(i)).join(', ')}.

\`tools/templates_page.mjs\` writes this page.
`;

if (!process.argv.includes('--check')) {
  writeFileSync(page, text);
} else if (readFileSync(page, 'utf8') !== text) {
  console.error('docs/templates.md is not what tools/templates_page.mjs writes: run it');
  process.exitCode = 1;
}
