/* What a handler answers: functions by method and path. */

/** @typedef {object} Call
 * @property {any} body  the JSON of the request
 * @property {string[]} names  the parts of the path that the route names
 * @property {{signal: AbortSignal}} options */
/** @typedef {(call: Call) => Promise<Response | object> | Response | object} Endpoint  an object is answered as JSON */
/** @typedef {ReturnType<typeof route>} Route */
/** @typedef {(where: string, name?: string, signal?: AbortSignal) => Promise<{model: import('../api/plumb.js').Model,
 *   free: (stats?: import('../engine/generation.js').Stats[]) => void}>} Hold  as Models.hold */

/** @param {'GET' | 'POST' | 'DELETE'} method @param {string} path  in which * stands for any text
 * @param {Endpoint} endpoint
 * @param {{waits?: boolean}} [how]  waits: whether a request with a body waits for its turn to compute */
export const route = (method, path, endpoint, { waits = true } = {}) => ({
  method, path, endpoint, waits, pattern: new RegExp(`^${path.replaceAll('.', '\\.').replaceAll('*', '(.+)')}$`),
});
