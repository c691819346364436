/* The names that requests to a server on this machine may use. */
import { isIP } from 'node:net';

/** Normalizes a host's name for comparison, and removes its port. @param {string} host */
export const plainName = host => host.toLowerCase().replace(/:\d*$/, '').replace(/^\[(.*)\]$/, '$1').replace(/\.$/, '');

/** Whether a request uses a name of this machine that nobody else can register, or an address: a page of another site
 * can resolve its own name to this machine, but it cannot take an address for a name.
 * @param {string | undefined} host  the request's Host header @param {string[]} names  further names of this machine */
export function isLocalName(host, names) {
  const name = plainName(host ?? '');
  return /^(.+\.)?localhost$|^127(\.\d{1,3}){3}$|^::1$/.test(name) || isIP(name) !== 0
    || names.some(one => plainName(one) === name);
}
