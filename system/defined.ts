/** An object's entries whose values may be undefined, without those that are. */
type Defined<T extends object> = {
  [K in keyof T as undefined extends T[K] ? never : K]: T[K];
} & {
  [K in keyof T as undefined extends T[K] ? K : never]?: Exclude<T[K], undefined>;
};

/**
 * The entries of `object` that have values, for spreading into a literal: `{ name, ...defined({ limit }) }` has no
 * `limit` where it is undefined. An optional property under exactOptionalPropertyTypes is either there or not.
 */
export function defined<const T extends object>(object: T): Defined<T> {
  return Object.fromEntries(Object.entries(object).filter(([, value]) => value !== undefined)) as Defined<T>;
}
