/* Writes docs/templates.md: which chat templates plumb renders as llama.cpp does.
 *
 *   TZ=UTC node tools/templates_page.mjs
 *
 * needs `make wasm build/native/tests`.  The C results are the notes of the native test. */
import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { mock } from 'node:test';
import {
  DEFECTS, equals, fails, MORE, names, NOW, promptOf, RENDERED, rows, textOf,
} from '../tests/node/template-results.mjs';

mock.timers.enable({ apis: ['Date'], now: NOW });
const root = fileURLToPath(new URL('..', import.meta.url));

/** C's results: "# NAME: 12 texts" and "# NAME: 12 prompts". */
const tap = spawnSync(`${root}build/native/tests`, ['template: '], { cwd: root, encoding: 'utf8' }).stdout;
/** @param {string} name @param {string} what */
const inC = (name, what) => tap.split('\n').map(line => /^# (.*): (\d+) (\w+)$/.exec(line) ?? [])
  .find(([, one, , of]) => one === name && of === what)?.[2] ?? '-';

/** The reason for each template, once. @param {string[][]} list */
const reasons = list => [...new Set(list.map(([name, , why]) => `- ${name}: ${why}.`))].join('\n');

const table = names.map(name => {
  const own = rows.filter(row => row.name === name);
  const text = own.filter(row => equals(textOf(row), row.text)).length;
  const prompt = own.filter(row => equals(promptOf(row), row.prompt)).length;
  return [text, prompt, inC(name, 'texts'), inC(name, 'prompts'), own.filter(row => fails(row.text)).length];
});
const total = (/** @type {number} */ column) => table.reduce((sum, row) => sum + (Number(row[column]) || 0), 0);

writeFileSync(`${root}docs/templates.md`, `# Chat templates

A chat template is a program in Jinja that comes with the model. plumb has an engine for it in JavaScript (the package)
and one in C (the command line). Both do as jinja2 does, set up as transformers sets it up. The engine in C makes the
texts of jinja2 3.1.6 for 160 templates that llama.cpp does not have, with 5 conversations each, and for 316 small ones
(\`tests/vectors/jinja2\`, by a generator with a seed). Of these the engine in JavaScript makes 260 of 800 and 235 of
316. Others are errors that name what it does not know: in all of the first, \`with\`, \`raw\`, \`recursive\`, \`{%+\`,
\`loop.changed\`, \`loop.depth\`, \`%\` of texts, \`partition()\` and \`sort\` of objects, 540 times; in 58 of the small
ones, further filters, methods and literals, too. 23 small ones have other texts: numbers are doubles, tuples print as
lists, and what \`tests/node/template-jinja2.test.mjs\` lists.

This page compares both with llama.cpp v0.5.0, for the ${names.length} templates of its
\`models/templates\` and 12 conversations each: with and without a system message, several of them, empty contents,
content in parts, no generation prompt, thinking on and off, tools, calls with results, parallel calls, and earlier
reasoning. \`tests/vectors/templates\` has the templates, the conversations and llama.cpp's results.

- **text**: of 12 texts, how many equal those of llama.cpp's engine, given the variables that llama.cpp gives to it. If
  llama.cpp fails, plumb must fail, and the message that the template raises must be the same.
- **prompt**: of 12 conversations, how many become the prompt of llama.cpp's server. Before it renders, llama.cpp finds
  out what the template can do, and changes messages and variables accordingly.
- **fails**: of 12, how many llama.cpp refuses; most of them because the template raises an exception.

Of ${rows.length} texts and ${rows.length} prompts, ${total(0)} and ${total(1)} are equal in JavaScript, \
${total(2)} and ${total(3)} in C.
The tests \`tests/node/templates.test.mjs\` and \`tests/template_test.c\` check every row.

Where llama.cpp's engine differs from jinja2, plumb does as jinja2 does:

${reasons(DEFECTS)}

The engine in C renders one template in 3 conversations that llama.cpp and jinja2 refuse:

${reasons(RENDERED)}

More differences of the same kind show in other templates: llama.cpp sees a variable of one iteration of a loop in the
next (\`[leak][][]\` becomes \`[leak][leak][leak]\`), forgets what an iteration has printed before \`break\` and
\`continue\`, counts the bytes of a text and not its characters, prints none as nothing and 1.0 as 1 in JSON, and calls
macros with the variables of the caller. What jinja2 refuses and llama.cpp does not, plumb does as llama.cpp or refuses:
a text plus none or a number, members of what is undefined, \`append\` and \`pop\` of lists. \`safe\` changes nothing:
in jinja2, what is joined to its result is escaped for HTML.

llama.cpp's server sets \`enable_thinking\` to true. plumb leaves it to the template unless the caller sets it, as
transformers and vLLM do: in 16 of the ${names.length} templates that makes a difference. The comparison sets it.

In one template the prompt has more than llama.cpp's:

${reasons(MORE)}

Both engines make the changes that llama.cpp makes for families of models: reasoning as a part of the content
(Ministral 3, Devstral) or as \`thinking\` (gpt-oss, LFM2), results inside the message with the calls (the first
template of Gemma 4) or in the order of the calls (DeepSeek V4), contents without white space around them (StepFun).
50 more conversations with such templates are equal too (\`families.tsv\`), except for what Python prints otherwise, as
above. JavaScript prints the number 1.0 in the arguments of a call as 1, because \`JSON.parse\` does not tell the two
apart.

Long conversations: of 2,001 messages, all ${names.length} templates make a prompt in C in less than half a second.
What a rendering may do grows with the square of the number of messages, up to 4,096, because many templates search all
messages for each message ([security.md](security.md)).

Answers end where those of llama.cpp's server end: at the tokens that llama.cpp takes for ends (by their text or a key
of the file, \`src/tokenizer/vocab.c\`), and at the texts that it adds for two families, \`</assistant>\` (Laguna) and
\`<|role_end|>\` (Ling 3).

A construct that plumb does not know is an error that names it, for example
\`tokenizer.chat_template: Unknown StringValue filter: urlize\`. [security.md](security.md) describes the limits.

| template | text | prompt | text, C | prompt, C | fails |
|---|---|---|---|---|---|
${table.map((columns, i) => `| ${[names[i], ...columns].join(' | ')} |`).join('\n')}

\`tools/templates_page.mjs\` writes this page.
`);
