/** The data blocks of the page: deflated JSON, read when it is first looked at. */
import { useEffect, useState } from 'preact/hooks';
import { blockId, type SectionName, type Sections } from '../../document/sections.js';

const elementOf = (name: string): HTMLElement | null => document.getElementById(blockId(name));

export const hasBlock = (name: string): boolean => elementOf(name) !== null;

async function inflated(base64: string): Promise<unknown> {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate-raw'));
  return (await new Response(stream).json()) as unknown;
}

const read = new Map<string, Promise<unknown>>();

/** A block's content. The caller names its type: blocks are written by this program. Rejects where it is not there. */
export function readBlock<T>(name: string): Promise<T> {
  let found = read.get(name);
  if (found === undefined) {
    const element = elementOf(name);
    found =
      element === null ? Promise.reject(new Error(`the page has no data for ${name}`)) : inflated(element.textContent);
    read.set(name, found);
  }
  return found as Promise<T>;
}

export const readSection = <K extends SectionName>(name: K): Promise<Sections[K]> => readBlock<Sections[K]>(name);

export type Loading<T> =
  | { readonly state: 'loading' }
  | { readonly state: 'ready'; readonly value: T }
  | { readonly state: 'failed'; readonly message: string };

/** What a promise comes to; `make` is called again where one of `inputs` changes. */
export function useLoaded<T>(make: () => Promise<T>, inputs: readonly unknown[]): Loading<T> {
  const [loading, setLoading] = useState<Loading<T>>({ state: 'loading' });
  useEffect(() => {
    let isCurrent = true;
    make().then(
      (value) => {
        if (isCurrent) setLoading({ state: 'ready', value });
      },
      (error: unknown) => {
        if (isCurrent) setLoading({ state: 'failed', message: error instanceof Error ? error.message : String(error) });
      },
    );
    return () => {
      isCurrent = false;
    };
  }, inputs);
  return loading;
}
