/* The type of the values of a JSON Schema or a Standard Schema, for TypeScript; there is no code here.  A schema whose
 * literal type is known (given in place, or declared `as const`) gives the exact type; $ref and what is not known here
 * give unknown. */

/** @template S
 * @typedef {S extends {'~standard': {types?: {output: infer T} | undefined}} ? T
 *   : S extends {const: infer C} ? C
 *   : S extends {enum: readonly (infer E)[]} ? E
 *   : S extends {anyOf: readonly (infer A)[]} ? Each<A>
 *   : S extends {oneOf: readonly (infer A)[]} ? Each<A>
 *   : S extends {type: infer T, nullable: true} ? OfType<T extends readonly (infer One)[] ? One : T, S> | null
 *   : S extends {type: infer T} ? OfType<T extends readonly (infer One)[] ? One : T, S>
 *   : S extends {properties: object} ? ObjectOf<S>
 *   : unknown} FromSchema */
/** @template A
 * @typedef {A extends unknown ? FromSchema<A> : never} Each */
/** @template T, S
 * @typedef {T extends 'string' ? string : T extends 'number' | 'integer' ? number : T extends 'boolean' ? boolean
 *   : T extends 'null' ? null : T extends 'array' ? ArrayOf<S> : T extends 'object' ? ObjectOf<S> : unknown} OfType */
/** @template S
 * @typedef {S extends {items: infer I} ? FromSchema<I>[] : unknown[]} ArrayOf */
/** @template S
 * @typedef {S extends {required: readonly (infer R)[]} ? R : never} RequiredOf */
/** @template S
 * @typedef {S extends {properties: infer P}
 *   ? {-readonly [K in keyof P as K extends RequiredOf<S> ? K : never]: FromSchema<P[K]>}
 *     & {-readonly [K in keyof P as K extends RequiredOf<S> ? never : K]?: FromSchema<P[K]>}
 *   : S extends {additionalProperties: infer A extends object} ? Record<string, FromSchema<A>>
 *   : Record<string, unknown>} ObjectOf */
/** What is known of a value while it grows.
 * @template T
 * @typedef {T extends (infer E)[] ? DeepPartial<E>[] : T extends object ? {[K in keyof T]?: DeepPartial<T[K]>}
 *   : T} DeepPartial */

export {};
