/** Names of the files of a model as Meta publishes it: one, or parts with some rows or columns of every matrix each. */
import { readdirSync } from 'node:fs';
import { UserError } from '../../errors.js';

const PART = /^consolidated\.(\d{2})\.pth$/;

export const partName = (part: number): string => `consolidated.${String(part).padStart(2, '0')}.pth`;

/** The only file of a model in one, the first one of a model in several parts. */
export const FIRST_PART = partName(0);

/** The number of parts in `dir`. Throws UserError where one is missing. */
export function countParts(dir: string): number {
  const parts = new Set(
    readdirSync(dir)
      .flatMap((name) => PART.exec(name)?.[1] ?? [])
      .map(Number),
  );
  const count = Math.max(-1, ...parts) + 1;
  for (let part = 0; part < count; part++)
    if (!parts.has(part))
      throw new UserError(
        `${dir}: the model is in ${count} parts, and ${partName(part)} is missing`,
        'download all parts again from one revision',
      );
  return count;
}
