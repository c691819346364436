// Uses all of the package in a page whose policy allows little.
const violations = [];
document.addEventListener('securitypolicyviolation', ({ violatedDirective, blockedURI }) =>
  violations.push(`${violatedDirective} ${blockedURI}`));
const show = result => { document.body.textContent = JSON.stringify({ ...result, violations }); };
try {
  const { Plumb } = await import('/plumb/index.js');
  const model = await Plumb.load('/models/SmolLM2-135M-Instruct.Q4_1.gguf', { contextLength: 256 });
  const { threads } = await model.info();
  let text = '';
  for await (const piece of model.generate([{ role: 'user', content: 'Hello' }], { maxTokens: 4 })) text += piece;
  const { taps } = await model.trace('Hello', { taps: 'l_out-0' });
  await model.close();
  show({ threads, text, taps: taps.length });
} catch ({ name, code, message }) {
  show({ name, code, message });
}
