/* A shared worker or a service worker that uses the package, for origins.test.mjs. */
import { Plumb } from '/web/index.js';

const TINY = '/tests/vectors/synth/f32.gguf', REAL = '/models/SmolLM2-135M-Instruct.Q4_1.gguf';
/** @param {string} source @param {unknown} prompt */
async function generate(source, prompt) {
  const model = await Plumb.load(source);
  let text = '';
  for await (const piece of model.generate(prompt, { temperature: 0, maxTokens: 4 })) text += piece;
  await model.close();
  return text;
}
const calls = {
  load: () => Plumb.load(TINY, { worker: true }),
  preflight: () => Plumb.preflight(TINY, { worker: true }),
  command: () => Plumb.command(['--help']),
  fits: async () => (await Plumb.preflight(TINY)).fits,
  text: () => generate(TINY, 'Hi'),
  chat: () => generate(REAL, [{ role: 'user', content: 'Hi' }]),
};
async function tell(port) {
  const results = {};
  for (const [name, call] of Object.entries(calls)) {
    results[name] = await call().catch(({ name, code, message }) => `${name} ${code} ${message}`);
  }
  port.postMessage(results);
}
self.onconnect = ({ ports: [port] }) => tell(port);
self.onmessage = event => event.waitUntil(tell(event.source));
