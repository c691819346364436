/** Whatever the hub answers, a load by name and a search end in a value of the documented form or in one error of
 * plumb's, ask only the hub, and ask it a bounded number of times. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { PlumbError } from '../../web/base/errors.js';
import { filesOf } from '../../web/loader/hub.js';
import { chosenOf, searchHub } from '../../web/loader/hub-search.js';

const RUNS = { numRuns: Number(process.env.RUNS ?? 1000), seed: Number(process.env.SEED ?? 1),
  includeErrorInReport: true };
const SITE = 'https://hub.example', MOST_REQUESTS = 3 * 100;

const odd = fc.oneof(fc.jsonValue({ maxDepth: 2 }), fc.constantFrom('__proto__', '../x.gguf', '/etc/x.gguf',
  'a\\b.gguf', 'x\0.gguf', '\u202e.gguf', 'a'.repeat(2000) + '.gguf', -1, 0.5, 1e300, 2 ** 53, '12'));
const path = fc.oneof(fc.constantFrom('m.gguf', 'm-Q4_K_M.gguf', 'Q8_0/m-00001-of-00002.gguf',
  'Q8_0/m-00002-of-00002.gguf', 'm-99999-of-00001.gguf', 'mmproj.gguf', 'README.md'), odd);
const file = fc.record({ type: fc.oneof({ weight: 9, arbitrary: fc.constant('file') }, odd), path,
  size: fc.oneof({ weight: 5, arbitrary: fc.nat() }, odd), lfs: fc.oneof(fc.record({ size: fc.oneof(fc.nat(), odd),
    oid: fc.oneof(fc.constant('a'.repeat(64)), odd) }, { requiredKeys: [] }), odd) },
{ requiredKeys: ['type', 'path'] });
const found = fc.record({ id: fc.oneof(fc.constantFrom('org/repo', 'a/b/c', '<img>/x', 'org/repo?x'), odd),
  downloads: odd, likes: odd, gated: odd, lastModified: fc.oneof(fc.constant('2026-01-02T03:04:05Z'), odd) },
{ requiredKeys: [] });
const body = fc.oneof({ weight: 8, arbitrary: fc.array(fc.oneof({ weight: 9, arbitrary: fc.oneof(file, found) }, odd),
  { maxLength: 6 }).map(list => JSON.stringify(list)) },
{ weight: 1, arbitrary: odd.map(value => JSON.stringify(value)) },
{ weight: 1, arbitrary: fc.constantFrom('', '[', 'null', '<html>', '['.repeat(100000), `[${'{"a":'.repeat(5000)}`) });
const link = fc.option(fc.constantFrom(`<${SITE}/next?cursor=1>; rel="next"`, '</api/next>; rel=next',
  '<>; rel="next"',
  '<https://evil.example/x>; rel="next"', '<javascript:alert(1)>; rel="next"',
  '<http://hub.example/>; rel="next"', ';;', '<'.repeat(1000)), { nil: undefined });
const answer = fc.record({ status: fc.constantFrom(200, 200, 200, 200, 401, 404, 429, 500, 503), body, link,
  retry: fc.constantFrom('0', '1', '99999999', '-1', 'soon', 'Thu, 01 Jan 1970 00:00:00 GMT') });

/** Answers with these, one after the other, and then always with the last.
 * @param {any[]} answers @param {URL[]} asked */
const hub = (answers, asked) => async url => {
  asked.push(new URL(url));
  const { status, body, link, retry } = answers[Math.min(asked.length, answers.length) - 1];
  return new Response(body, { status, headers: { 'Retry-After': retry, ...link !== undefined && { Link: link } } });
};

/** @param {unknown} error */
const isOwn = error => error instanceof PlumbError && error.code === 'PLUMB_ERROR_IO' && error.message.length < 5000;

test('the answers of the hub are read or refused', async () => {
  await fc.assert(fc.asyncProperty(fc.array(answer, { minLength: 1, maxLength: 4 }), async answers => {
    const calls = {
      files: options => filesOf(SITE, { repository: 'org/repo', revision: 'main' }, options),
      chosen: options => chosenOf(SITE, 'org/repo', 1e9, options),
      search: options => searchHub(SITE, 'words', options),
    };
    for (const [name, call] of Object.entries(calls)) {
      const asked = [], result = await call({ fetch: hub(answers, asked), pause: async () => {} })
        .catch(error => {
          if (!isOwn(error)) throw error;
        });
      assert.ok(asked.length <= MOST_REQUESTS, `${asked.length} requests`);
      assert.deepEqual(asked.filter(({ origin }) => origin !== SITE), [], 'only the hub is asked');
      if (!result) continue;
      for (const { path, size } of name === 'files' ? result : name === 'chosen' ? [result] : []) {
        assert.match(path, /^(?!.*(^|\/)\.{0,2}(\/|$))[^\0-\x1f\x7f\\]{1,1000}$/s);
        assert.ok(Number.isSafeInteger(size) && size >= 0);
      }
      for (const one of result.found ?? []) assert.match(one.repository, /^[\w.-]+\/[\w.-]+$/);
    }
  }), RUNS);
});
