/* Fetches models of models/manifest.json when a page asks for one that is not there yet.
 *
 *   GET or HEAD of /models/FILE     404 with the header Plumb-Model: absent, if it is not there
 *   POST of /models/FILE            fetches it with models/fetch.py.  The answer is a line of JSON for each step:
 *                                   {"bytes", "total"}, and at last {"done": true} or {"error": "a sentence"}
 *
 * Pages that ask for the same model watch the same download.  When the last of them has gone, it stops, and the next
 * one goes on where it stopped.  Only pages of this server may ask. */
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { urlOf } from '../loader/secrets.js';

/** Headers of the answer that a model is not there, but can be fetched. */
export const ABSENT = { 'Plumb-Model': 'absent' };

/** @typedef {{watchers: Set<import('node:http').ServerResponse>, stop: () => void, last: string}} Running  last: the
 *   line that was last sent */

/** How many characters of what the download says are kept, to name the reason of a failure. */
const KEPT = 2000;

export class ModelFetches {
  #command;
  /** The names of models by their paths at the server. @type {Map<string, string>} */
  #names;
  /** The downloads that run, by path. @type {Map<string, Running>} */
  #running = new Map();

  /** @param {string} root  the folder of plumb @param {{manifest?: string, command?: string[]}} [other]  another
   *   manifest, and the command that takes the name of a model and fetches it */
  constructor(root, { manifest = join(root, 'models/manifest.json'),
    command = ['python3', join(root, 'models/fetch.py'), '--json'] } = {}) {
    this.#command = command;
    /** @type {{name: string, file: string}[]} */
    const models = JSON.parse(readFileSync(manifest, 'utf8'));
    this.#names = new Map(models.map(({ name, file }) => [`/models/${file}`, name]));
  }

  /** Whether a path is that of a model that can be fetched. @param {string} path */
  has(path) { return this.#names.has(path); }

  /** How many downloads run. */
  get running() { return this.#running.size; }

  /** Answers a POST. @param {import('node:http').IncomingMessage} request
   * @param {import('node:http').ServerResponse} response @param {string} path
   * @param {Record<string, string>} headers */
  answer(request, response, path, headers) {
    const { origin, host } = request.headers;
    if (origin !== undefined && urlOf(origin)?.host !== host) {
      response.writeHead(403, { ...headers, 'Content-Type': 'text/plain; charset=utf-8' }).end('403\n');
      return;
    }
    response.writeHead(200, { ...headers, 'Content-Type': 'application/x-ndjson', 'Cache-Control': 'no-store' });
    const fetch = this.#running.get(path) ?? this.#start(path);
    fetch.watchers.add(response);
    if (fetch.last) response.write(fetch.last);
    response.once('close', () => {
      fetch.watchers.delete(response);
      if (fetch.watchers.size > 0) return;
      fetch.stop();
      this.#forget(path, fetch);   // who asks now starts another, which waits for this one to end
    });
  }

  /** @param {string} path */
  #start(path) {
    const [program, ...args] = this.#command;
    const child = spawn(program, [...args, this.#names.get(path) ?? ''], { stdio: ['ignore', 'pipe', 'pipe'] });
    /** @type {Running} */
    const fetch = { watchers: new Set(), stop: () => void child.kill('SIGINT'), last: '' };
    let said = '';
    child.stderr.on('data', data => { said = (said + data).slice(-KEPT); });
    createInterface({ input: child.stdout }).on('line', line => {
      fetch.last = `${line}\n`;
      for (const watcher of fetch.watchers) watcher.write(fetch.last);
    });
    /** @param {object} result */
    const end = result => {
      this.#forget(path, fetch);
      for (const watcher of fetch.watchers) watcher.end(`${JSON.stringify(result)}\n`);
    };
    child.once('error', error => end({ error: `${program}: ${error.message}` }));
    child.once('close', code => end(code === 0 ? { done: true }
      : { error: said.trim().split('\n').at(-1) || `${program} ended with ${code}` }));
    this.#running.set(path, fetch);
    return fetch;
  }

  /** @param {string} path @param {Running} fetch */
  #forget(path, fetch) {
    if (this.#running.get(path) === fetch) this.#running.delete(path);
  }
}
