/**
 * Which op of a graph a scalar expression computes, for people who look at kernels. A table beside the expressions, no
 * part of them: equal kernels stay equal, whatever they were made of, and expressions read from a file have no origin.
 */
const ORIGINS = new WeakMap<object, string>();

/** The name of the result of the op that `scalar` computes; undefined where nothing is known. */
export const originOf = (scalar: object): string | undefined => ORIGINS.get(scalar);

/** `scalar`, noted to compute the op whose result is called `name`, unless it is known as that of another. */
export function withOrigin<S extends object>(scalar: S, name: string | undefined): S {
  if (name !== undefined && !ORIGINS.has(scalar)) ORIGINS.set(scalar, name);
  return scalar;
}
