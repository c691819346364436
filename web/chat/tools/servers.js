/* The servers of tools that the reader has added, with the tools that they had when the page last asked them.  They are
 * kept in this browser.  Only the reader adds one: no conversation can, wherever it is from. */
import { recall, remember } from '../dom.js';
import { addressOf } from './bounded.js';
import { SERVERS } from './kept.js';
import { McpServer, MOST_TOOLS, VERSIONS } from './mcp.js';
import { describedTool } from './mcp-tools.js';

/** @typedef {import('./mcp.js').Known} Known */

/** Servers at most. */
export const MOST_SERVERS = 20;

/** @type {Known[]} */
let servers = stored();
addEventListener('storage', () => { servers = stored(); });   // another tab has changed them
/** Those that this page has asked, by address. @type {Map<string, McpServer>} */
const clients = new Map();

/** @param {any} value @returns {Known | undefined} */
function knownOf(value) {
  const { address, version, tools } = value ?? {};
  try {
    if (addressOf(String(address)).href !== address) return undefined;
  } catch {
    return undefined;
  }
  if (!VERSIONS.includes(version) || !Array.isArray(tools)) return undefined;
  return { address, version, tools: tools.slice(0, MOST_TOOLS).map(describedTool) };
}

/** Those that are kept; another tab may have changed them. @returns {Known[]} */
function stored() { return [recall(SERVERS)].flat().slice(0, MOST_SERVERS).flatMap(value => knownOf(value) ?? []); }

export const knownServers = () => servers;

/** Keeps what a server has said of itself. @param {Known} known */
export function keepServer(known) {
  closeServer(known.address);   // it may speak another version than before
  servers = stored();
  const at = servers.findIndex(({ address }) => address === known.address);
  servers = at < 0 ? [...servers, known] : servers.with(at, known);
  remember(SERVERS, servers);
}

/** Forgets a server. @param {string} address */
export function forgetServer(address) {
  closeServer(address);
  servers = stored().filter(one => one.address !== address);
  remember(SERVERS, servers.length > 0 ? servers : undefined);
}

/** The client of a server that is known. @param {Known} known */
export function clientOf({ address, version }) {
  const client = clients.get(address) ?? new McpServer(address, version);
  clients.set(address, client);
  return client;
}

/** Ends what was begun at a server. @param {string} address */
export function closeServer(address) {
  void clients.get(address)?.close();
  clients.delete(address);
}

addEventListener('pagehide', () => [...clients.keys()].forEach(closeServer));
