// Uses every part of the package in a page with a strict policy.
const violations = [];
document.addEventListener('securitypolicyviolation', ({ violatedDirective, blockedURI }) =>
  violations.push(`${violatedDirective} ${blockedURI}`));
const show = result => { document.body.textContent = JSON.stringify({ ...result, violations }); };
try {
  const { Plumb } = await import('/plumb-llm/index.js');
  const url = '/models/SmolLM2-135M-Instruct.Q4_1.gguf';
  await (await Plumb.load(url)).close();
  const [{ complete: cached }] = await Plumb.listCached();
  const { supported } = await Plumb.preflight(url);
  const phases = new Set();
  const model = await Plumb.load(url, { contextLength: 256, onProgress: ({ phase }) => phases.add(phase) });
  const { threads } = await model.info();
  let text = '';
  for await (const piece of model.generate([{ role: 'user', content: 'Hello' }], { maxTokens: 4 })) text += piece;
  const { taps } = await model.trace('Hello', { taps: 'l_out-0' });
  await model.close();
  const { code } = await Plumb.command(['inspect', 'tiny.gguf'],
    { files: { 'tiny.gguf': await (await fetch('/tiny.gguf')).blob() } });
  show({ threads, text, taps: taps.length, cached, downloaded: phases.has('download'), code, supported });
} catch ({ name, code, message }) {
  show({ name, code, message });
}
