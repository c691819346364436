/** The catalogue of models. Ground truth: the tables of architectures in the engine's sources, models/manifest.json,
 * preflight of the real models, and what numbers of weights and of bits allow. */
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { CATALOGUE, DATE, LICENCES, USES, memoryOf, speedOf, writes } from '../../web/chat/models/catalogue.js';
import { OFFERED } from '../../web/chat/models/offered.js';
import { Plumb } from '../../web/node/index.js';
import { NAMES } from '../../web/loader/names.js';
import { hubName } from '../../web/loader/hub.js';
import { root } from './helpers.mjs';

const manifest = JSON.parse(readFileSync(`${root}models/manifest.json`, 'utf8'));
const architectures = new Set(['dense', 'sparse', 'recurrent', 'encoders'].flatMap(file =>
  [...readFileSync(`${root}src/engine/model/${file}.c`, 'utf8').matchAll(/^ {4}\{ "([^"]+)", steps_/gm)]
    .map(([, name]) => name)));
/** Bits of a weight in files of a type: the least of its blocks, and the most that embeddings of 6 or 8 bits and
 * metadata add in small models, which store a large vocabulary. @type {Record<string, [number, number]>} */
const BITS = { Q1_0: [1.1, 1.4], Q4_0: [4.5, 8.2], Q4_1: [5, 6.5], Q4_K_M: [4.5, 8.2], Q8_0: [8.4, 9.3] };

test('each entry of the catalogue has what the dialog shows, and only what can be so', () => {
  assert.match(DATE, /^\d{4}-\d\d-\d\d$/);
  assert.ok(CATALOGUE.length >= 25);
  assert.deepEqual(CATALOGUE.map(({ name }) => name).sort(), NAMES.map(({ name }) => name).sort(),
    'the models with a short name are those of the catalogue');
  for (const key of ['name', 'title', 'repository']) {
    assert.equal(new Set(CATALOGUE.map(one => one[key])).size, CATALOGUE.length, key);
  }
  assert.ok(architectures.size > 100);
  for (const one of CATALOGUE) {
    const { name, architecture, type, bytes, parameters, licence, languages, uses, about, active = parameters } = one;
    assert.ok(architectures.has(architecture), `${name}: ${architecture}`);
    assert.ok(parameters >= 20 && parameters < 5000 && active <= parameters, name);
    const [least, most] = BITS[type], bits = bytes * 8 / parameters / 1e6;
    assert.ok(bits > least && bits < most, `${name}: ${bits.toFixed(2)} bits for each weight in ${type}`);
    assert.ok(Number.isInteger(bytes) && memoryOf(one) < 4 * 2 ** 30, `${name} runs in a module of 4 GiB`);
    assert.ok(['Apache-2.0', 'MIT'].includes(licence) || licence in LICENCES, `${name}: ${licence}`);
    assert.match(languages, /^(\*|[a-z]{2}( [a-z]{2})*)$/, name);
    assert.ok(new Set(languages.split(' ')).size === languages.split(' ').length, name);
    assert.ok(uses.length > 0 && uses.every(use => use in USES), name);
    assert.match(about, /^[A-Z].{10,60}\.$/, name);
    assert.deepEqual(hubName(`hf:${one.repository}`), { repository: one.repository, revision: 'main' });
  }
  for (const use of Object.keys(USES)) assert.ok(CATALOGUE.some(({ uses }) => uses.includes(use)), use);
});

test('what is verified is in models/manifest.json with the same facts, and so is what the page offers', () => {
  const verified = CATALOGUE.filter(one => one.verified);
  const known = Object.fromEntries(manifest.map(one => [one.file, one]));
  const models = manifest.filter(({ name }) => !name.startsWith('vocab-'));
  assert.deepEqual(verified.map(({ bytes, licence }) => `${bytes} ${licence}`).sort(),
    models.map(({ bytes, licence }) => `${bytes} ${licence}`).sort());
  for (const { url, size, licence: shown, hub } of OFFERED) {
    const { bytes, licence } = known[url.split('/').at(-1)];
    assert.ok(size === Math.round(bytes / 1e6) && shown.includes(licence.replace('-', ' ')), `${size}, ${shown}`);
    if (hub) assert.equal(CATALOGUE.find(one => one.name === hub)?.bytes, bytes);
  }
});

test('the memory of the catalogue is a bound that preflight keeps, and speed is that of the weights', async () => {
  for (const one of CATALOGUE.filter(entry => entry.verified)) {
    const { file } = manifest.find(({ bytes }) => bytes === one.bytes), path = `${root}models/${file}`;
    if (!existsSync(path)) continue;   // only some models are fetched for tests
    const { memory, architecture, chat, hasLogits } = await Plumb.preflight(path, { measure: false, threads: 1 });
    assert.ok(memory.total <= memoryOf(one), `${one.name}: ${memory.total} of ${memoryOf(one)}`);
    assert.ok(memory.total >= one.bytes && architecture === one.architecture, one.name);
    assert.deepEqual([Boolean(hasLogits), Boolean(chat)], [writes(one), one.uses.includes('chat')], one.name);
  }
  const [small, half] = ['smollm2:135m', 'gemma4:e2b'].map(name => CATALOGUE.find(one => one.name === name));
  assert.equal(speedOf(small, 98362432 * 30), 30);
  assert.ok(Math.abs(speedOf(half, 3106736256 * 10) - 10 * 4647 / 2300) < 1e-9);
});
