/* What a server has done, in the text format of Prometheus:
 * https://prometheus.io/docs/instrumenting/exposition_formats/. */

import { monitorEventLoopDelay } from 'node:perf_hooks';

/** @typedef {import('../engine/generation.js').Stats} Stats
 * @typedef {import('../serving/handler.js').Handler} Handler */

/** Milliseconds between two looks at the event loop. */
const RESOLUTION = 10;

export class Metrics {
  /** Requests by path and status. @type {Map<string, number>} */
  #requests = new Map();
  #seconds = 0;
  /** How long the event loop was busy, in nanoseconds. */
  #delays = monitorEventLoopDelay({ resolution: RESOLUTION });
  #totals = { prompt: 0, reused: 0, generated: 0, prefill: 0, decode: 0 };

  /** Watches the event loop from now on. */
  begin() { this.#delays.enable(); }

  /** @param {string} path @param {number} status @param {number} seconds */
  request(path, status, seconds) {
    const labels = `{path=${JSON.stringify(path)},status="${status}"}`;
    this.#requests.set(labels, (this.#requests.get(labels) ?? 0) + 1);
    this.#seconds += seconds;
  }

  /** Counts an answer. @param {Stats} stats */
  answer = ({ promptTokens, reusedTokens, tokens, prefillSeconds, decodeSeconds }) => {
    const totals = this.#totals;
    totals.prompt += promptTokens;
    totals.reused += reusedTokens;
    totals.generated += tokens;
    totals.prefill += prefillSeconds;
    totals.decode += decodeSeconds;
  };

  /** @param {number} percentile */
  #delay(percentile) {
    return Math.max(0, this.#delays.percentile(percentile) / 1e9 - RESOLUTION / 1000);
  }

  /** @param {Handler} handler @returns {Promise<string>} */
  async text({ models, turns }) {
    const loaded = models.list().flatMap(({ name, model }) => model ? [{ name, model }] : []);
    const sizes = await Promise.all(loaded.map(async ({ name, model }) =>
      [`{model=${JSON.stringify(name)}}`, (await model.info().catch(() => undefined))?.memoryBytes ?? 0]));
    const { prompt, reused, generated, prefill, decode } = this.#totals;
    /** @type {[string, 'counter' | 'gauge', string, (readonly (string | number)[])[]][]} */
    const all = [
      ['plumb_requests_total', 'counter', 'requests that were answered', [...this.#requests]],
      ['plumb_request_seconds_total', 'counter', 'time that their answers took', [['', this.#seconds]]],
      ['plumb_requests_running', 'gauge', 'requests that are being answered', [['', turns.running]]],
      ['plumb_requests_waiting', 'gauge', 'requests that wait for their turn', [['', turns.waiting]]],
      ['plumb_prompt_tokens_total', 'counter', 'tokens of prompts', [['', prompt]]],
      ['plumb_reused_tokens_total', 'counter', 'tokens of prompts that were not computed again', [['', reused]]],
      ['plumb_generated_tokens_total', 'counter', 'tokens of answers', [['', generated]]],
      ['plumb_prompt_seconds_total', 'counter', 'time in which prompts were computed', [['', prefill]]],
      ['plumb_generation_seconds_total', 'counter', 'time in which answers were computed', [['', decode]]],
      ['plumb_model_bytes', 'gauge', 'memory of a model that is loaded', sizes],
      ['plumb_event_loop_delay_seconds', 'gauge', 'how long the event loop was busy: median, 99 % and maximum',
        [['{quantile="0.5"}', this.#delay(50)], ['{quantile="0.99"}', this.#delay(99)],
          ['{quantile="1"}', this.#delay(100)]]],
      ['process_resident_memory_bytes', 'gauge', 'memory of the process', [['', process.memoryUsage.rss()]]],
    ];
    return all.map(([name, type, help, values]) => `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n${
      values.map(([labels, value]) => `${name}${labels} ${value}\n`).join('')}`).join('');
  }
}
