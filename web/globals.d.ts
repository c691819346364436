/* Names of the platform that the package's types use.  Where the project has the types of the DOM or of Node, these
 * merge with those; where it has neither, they are opaque. */
interface AbortController {}
interface AbortSignal {}
interface Blob {}
interface Headers {}
interface ReadableStream<R = any> {}
interface Request {}
interface RequestInit {}
interface Response {}
interface URL {}
interface SymbolConstructor { readonly asyncDispose: unique symbol }
declare namespace WebAssembly {
  interface Instance {}
  interface Memory {}
  interface Module {}
}
