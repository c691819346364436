/* The methods of a worker that renders chat templates, for template.js. */
import { capabilitiesOf } from './capabilities.js';
import { renderBounded } from './jinja.js';

/** @type {import('../base/protocol.js').Methods} */
export const rendering = {
  render({ source, variables, limits }, { emit }) {
    emit('begun', null);
    return renderBounded(source, variables, limits);
  },
  capabilities({ source }, { emit }) {
    emit('begun', null);
    return capabilitiesOf(source);
  },
};
