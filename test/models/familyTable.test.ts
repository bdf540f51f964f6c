/** The table of docs/families.md that says what each family does is whole; test:slow tries its cells. */
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { FAMILY_CHECKPOINTS, RECURRENT_CHECKPOINTS } from '../support/familyCheckpoints.js';
import { familyTable, usesOf } from '../support/familyTable.js';

const FAMILIES = join(import.meta.dirname, '..', '..', '..', 'shared', 'checkpoints', 'families');

describe('the table of what families do', () => {
  it('has every checkpoint once, and says something of each use', () => {
    const rows = familyTable();
    const named = rows.flatMap(({ checkpoints }) => checkpoints);
    expect([...named].sort()).toEqual([...FAMILY_CHECKPOINTS, ...RECURRENT_CHECKPOINTS].sort());
    for (const { uses } of rows) for (const said of Object.values(uses)) expect(said).not.toBe('');
    expect(usesOf('mamba2')['8-bit caches']).toBe('no layer has attention');
    expect(() => usesOf('nothing')).toThrow(/does not say what nothing does/);
  });

  it.skipIf(!existsSync(FAMILIES))('has every checkpoint that there is', () => {
    for (const name of readdirSync(FAMILIES)) expect(usesOf(name).score).toBe('yes');
  });

  it('refuses other columns', () => {
    expect(() => familyTable('## What each family does\n\n| a | b |\n|---|---|\n| c | yes |\n')).toThrow(
      /columns are b/,
    );
  });
});
