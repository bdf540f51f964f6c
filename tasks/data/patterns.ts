/** Which files of a data set are of which split, where nobody wrote patterns: their names tell. */
import { isHidden } from '../../system/glob.js';

const KEYWORDS: Readonly<Record<string, readonly string[]>> = {
  train: ['train', 'training'],
  validation: ['validation', 'valid', 'dev', 'val'],
  test: ['test', 'testing', 'eval', 'evaluation'],
};
const SEPARATOR = '[-._ 0-9]';

const nameHas = (name: string, split: string): boolean =>
  KEYWORDS[split]!.some((word) => new RegExp(`^(?:.*${SEPARATOR})?${word}${SEPARATOR}`, 's').test(name));
const folderHas = (name: string, split: string): boolean =>
  KEYWORDS[split]!.some((word) => new RegExp(`^(?:.*${SEPARATOR})?${word}(?:${SEPARATOR}.*)?$`, 's').test(name));

/**
 * Files by split, as they are named: shards in data/, else a split's word in a folder's name, else in a file's, else
 * all of them are `train`.
 */
export function splitsByName(files: readonly string[]): ReadonlyMap<string, readonly string[]> {
  const visible = files.filter((file) => !isHidden(file));
  const shards = new Map<string, string[]>();
  for (const file of visible) {
    const split = /^data\/([\w.]+)-\d{5}-of-\d{5}[^/]*\.[^/]*$/.exec(file)?.[1];
    if (split !== undefined) shards.set(split, [...(shards.get(split) ?? []), file]);
  }
  if (shards.size > 0) return shards;
  const ways: readonly ((file: string, split: string) => boolean)[] = [
    (file, split) =>
      file
        .split('/')
        .slice(0, -1)
        .some((name) => folderHas(name, split)),
    (file, split) => nameHas(file.split('/').at(-1) ?? '', split),
  ];
  for (const isOf of ways) {
    const found = Object.keys(KEYWORDS).flatMap((split) => {
      const own = visible.filter((file) => isOf(file, split));
      return own.length > 0 ? [[split, own] as const] : [];
    });
    if (found.length > 0) return new Map(found);
  }
  return visible.length > 0 ? new Map([['train', visible]]) : new Map();
}
