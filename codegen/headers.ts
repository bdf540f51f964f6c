/**
 * Headers of generated code: the fixed part of kernels, in files that an editor understands. A printed unit names what
 * it needs by `#include "gemm/mma.cuh"`, relative to the folder of its target; compilers get the texts from memory.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { type Header, isHeaderName } from '../ir/unit.js';

const INCLUDE = /^#include "([^"\n]*)"$/gm;

/** Names that a text includes, in order. */
export const includesOf = (text: string): string[] => [...text.matchAll(INCLUDE)].map(([, name]) => name!);

/** The headers of one target. */
export class Headers {
  readonly #folder: URL;
  readonly #elsewhere: Readonly<Record<string, URL>>;
  readonly #known = new Map<string, Header>();

  /**
   * @param folder a URL that ends in a slash.
   * @param elsewhere files of other folders, by the names that they are included by.
   */
  constructor(folder: URL, elsewhere: Readonly<Record<string, URL>> = {}) {
    this.#folder = folder;
    this.#elsewhere = elsewhere;
  }

  /**
   * Every header that `source` includes, itself or through another, each once: a header stands behind those that it
   * includes. Throws for a name outside the folder, and for headers that include each other.
   */
  of(source: string): readonly Header[] {
    const found = new Map<string, Header>();
    const visit = (name: string, within: readonly string[]): void => {
      if (found.has(name)) return;
      if (within.includes(name)) throw new Error(`headers include each other: ${[...within, name].join(', ')}`);
      const header = this.#read(name);
      for (const each of includesOf(header.text)) visit(each, [...within, name]);
      found.set(name, header);
    };
    for (const name of includesOf(source)) visit(name, []);
    return [...found.values()];
  }

  /** Names of all headers, in order. */
  names(): readonly string[] {
    const own = readdirSync(fileURLToPath(this.#folder), { recursive: true, encoding: 'utf8' });
    return [
      ...own.map((name) => name.replaceAll('\\', '/')).filter(isHeaderName),
      ...Object.keys(this.#elsewhere),
    ].sort();
  }

  /** All headers as one text: what a digest of generated code covers. */
  allText(): string {
    return this.names()
      .map((name) => `${name}\0${this.#read(name).text}\0`)
      .join('');
  }

  #read(name: string): Header {
    const known = this.#known.get(name);
    if (known !== undefined) return known;
    if (!isHeaderName(name)) throw new Error(`${JSON.stringify(name)} is no name of a header`);
    const file = Object.hasOwn(this.#elsewhere, name) ? this.#elsewhere[name]! : new URL(name, this.#folder);
    const header = { name, text: readFileSync(fileURLToPath(file), 'utf8') };
    this.#known.set(name, header);
    return header;
  }
}

/** A unit as one text: each header stands where it is first included. `isKept`: headers that stay includes. */
export function flattened(
  source: string,
  headers: readonly Header[],
  isKept = (_name: string): boolean => false,
): string {
  const texts = new Map(headers.map(({ name, text }) => [name, text]));
  const seen = new Set<string>();
  const flat = (text: string): string =>
    text.replaceAll(/^#pragma once\n/gm, '').replaceAll(INCLUDE, (line: string, name: string) => {
      if (isKept(name)) return line;
      if (seen.has(name)) return '';
      seen.add(name);
      return flat(texts.get(name) ?? line);
    });
  return flat(source);
}
