/**
 * Translation units of generated code: a printed text, and the headers that it includes, which compilers get with it.
 */
import { createHash } from 'node:crypto';

export interface Header {
  /** As units and headers include it: `gemm/mma.cuh`. */
  readonly name: string;
  readonly text: string;
}

/** Names of headers: folders and a file below the folder that they are included from. */
const NAME = /^(?:[a-z][A-Za-z0-9]*\/)+[a-z][A-Za-z0-9]*\.(?:cuh|h)$/;

/** Whether a header may have this name: a file of this name never leaves the folder that it is written to. */
export const isHeaderName = (name: string): boolean => name.length <= 100 && NAME.test(name);

/** The headers of several units, each once, by name. Throws where two of one name differ. */
export function headersOfAll(units: Iterable<{ readonly headers?: readonly Header[] }>): readonly Header[] {
  const found = new Map<string, Header>();
  for (const { headers = [] } of units)
    for (const header of headers) {
      const known = found.get(header.name);
      if (known !== undefined && known.text !== header.text) throw new Error(`two headers are called ${header.name}`);
      found.set(header.name, header);
    }
  return [...found.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
}

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

/** Many units include the same headers. */
const digests = new WeakMap<Header, string>();

function headerDigest(header: Header): string {
  let digest = digests.get(header);
  if (digest === undefined) digests.set(header, (digest = sha256(header.text)));
  return digest;
}

/** Hex digest of a unit and of all that it includes: its identity for compilers and caches. */
export const unitDigest = (source: string, headers: readonly Header[]): string =>
  sha256([source, ...headers.map((header) => `${header.name} ${headerDigest(header)}`)].join('\0'));
