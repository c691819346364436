/** What messages and variables of a template may be: every function that takes messages refuses the same.  A tiny model
 * with three templates: one that prints any content, one that skips parts it does not know, and one that knows parts of
 * type thinking and image. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Plumb } from '../../web/node/index.js';
import { checkPart } from '../../web/base/options.js';
import { fails, tiny, withTemplate } from './helpers.mjs';
import { TEMPLATES } from './templates.mjs';

const PRINTS = '{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}';
const SKIPS = '{% for m in messages %}{{ m.role }}: {% if m.content is string %}{{ m.content }}{% else %}{% for p in '
  + "m.content %}{% if p.type == 'text' %}{{ p.text }}{% endif %}{% endfor %}{% endif %}\n{% endfor %}";
const KNOWS = SKIPS.replace('{% endif %}{% endfor %}{% endif %}', "{% elif p.type == 'thinking' %}<{{ p.thinking }}>"
  + "{% elif p['type'] == 'image' %}<image>{% endif %}{% endfor %}{% endif %}");
const text = { type: 'text', text: 'What is in it?' }, thinking = { type: 'thinking', thinking: 'Hm.' };
const url = 'data:image/png;base64,AAAA';
const MEDIA = [{ type: 'image_url', image_url: { url } }, { type: 'image', image: url }, { type: 'video', video: url },
  { type: 'input_audio', input_audio: { data: 'AA', format: 'wav' } }, { type: 'file', file: { file_data: 'AA' } }];
const WRONG = [{ type: 'text' }, { type: 'text', text: 5 }, { text: 'x' }, null, 'x', { type: 7 }, {}];

/** Every function that takes messages, with one whose content is these parts. */
function calls(model, content) {
  const messages = [{ role: 'user', content }], [message] = messages, options = { maxTokens: 1, temperature: 0 };
  const chat = model.chat(options), said = model.chat({ messages: [{ role: 'user', content: 'Hi' }] });
  const tools = { now: { execute: () => '12:00' } };
  return {
    generate: () => model.generate(messages, options), trace: () => model.trace(messages),
    applyChatTemplate: () => model.applyChatTemplate(messages), tokenizeChat: () => model.tokenizeChat(messages),
    chat: async () => model.chat({ messages }), 'chat.send': () => chat.send(message),
    'chat.edit': () => said.edit(0, message, options), 'chat.run': () => chat.run(message, { tools }),
    'chat.object': () => chat.object({ type: 'boolean' }, message),
    'chat.completions.create': () => model.chat.completions.create({ messages, max_tokens: 1 }),
  };
}

test('parts that no model takes are an error by name, everywhere', async t => {
  for (const template of [PRINTS, SKIPS, KNOWS]) {
    const model = await Plumb.load(withTemplate(tiny, template), { worker: false });
    t.after(() => model.close());
    for (const part of [...MEDIA, ...WRONG, ...template === KNOWS ? [] : [thinking]]) {
      for (const call of Object.values(calls(model, [text, part]))) {
        const why = part?.type === 'text' ? '.text is .+' : ` has type ${JSON.stringify(part?.type)}`;
        await fails(async () => { await call(); }, 'PLUMB_ERROR_ARGUMENT',
          new RegExp(`messages\\[0\\]\\.content\\[1\\]${why}, expected `));
      }
    }
    for (const [name, call] of Object.entries(calls(model, [text, text]))) {
      if (name !== 'chat.object') await call();
    }
  }
});

test('parts that the template knows are taken everywhere, and reach the prompt', async t => {
  const model = await Plumb.load(withTemplate(tiny, KNOWS), { worker: false });
  t.after(() => model.close());
  for (const [name, call] of Object.entries(calls(model, [text, thinking]))) if (name !== 'chat.object') await call();
  assert.equal(await model.applyChatTemplate([{ role: 'user', content: [text, thinking] }]),
    'user: What is in it?<Hm.>');
});

test('no template of llama.cpp\'s makes an image a text; those that know thoughts take them', () => {
  const takes = (part, source) => {
    try {
      checkPart('x', part, source);
      return true;
    } catch {
      return false;
    }
  };
  for (const [name, source] of TEMPLATES) {
    for (const part of [...MEDIA, ...WRONG]) assert.ok(!takes(part, source), `${name}: ${JSON.stringify(part)}`);
    assert.ok(takes(text, source));
    assert.equal(takes(thinking, source), /['"]thinking['"]/.test(source), name);
  }
});

test('enable_thinking is true or false, everywhere', async t => {
  const model = await Plumb.load(withTemplate(tiny, PRINTS), { worker: false });
  t.after(() => model.close());
  const messages = [{ role: 'user', content: 'Hi' }], options = { maxTokens: 1 };
  for (const enable_thinking of ['false', 'off', 'true', '', 0, 1, {}, []]) {
    const template = { enable_thinking };
    for (const call of [() => model.applyChatTemplate(messages, template), () => model.tokenizeChat(messages, template),
      () => model.generate(messages, { template }).next(), () => model.trace(messages, { template }),
      async () => model.chat({ template }), () => model.chat().send('Hi', { template }).next(),
      () => model.chat.completions.create({ messages, chat_template_kwargs: template })]) {
      await fails(call, 'PLUMB_ERROR_ARGUMENT', /enable_thinking is true or false, not /);
    }
  }
  for (const enable_thinking of [true, false, null, undefined]) {
    await model.generate(messages, { ...options, template: { enable_thinking } });
  }
});
