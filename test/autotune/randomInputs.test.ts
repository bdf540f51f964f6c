/** Synthetic micro-batches: trees of the requested shape, and indices within bounds. */
import { listPaths, scoringBucket } from '../../ir/scoring.js';
import { describe, expect, it } from 'vitest';
import type { Bucket } from '../../ir/plan.js';
import { stepExtents } from '../../ir/stepping.js';
import { attentionModule, CACHE_ROWS } from '../codegen/cuda/attentionHarness.js';
import { biasFor, bucketTrees, integersFor, rolesOf } from '../../autotune/randomInputs.js';
import { kernelAt, llamaModule, SHAPE } from './fixture.js';

describe('bucketTrees', () => {
  it.each([
    [64, 64, 64],
    [256, 100, 50],
    [1000, 1000, 256],
    [7, 7, 7],
    [5, 1, 1],
    [3, 9, 200],
  ])('fills %i tokens and %i rows with trees of depth %i', (tokens, rows, longest) => {
    const { position, subtreeEnd, row } = bucketTrees(scoringBucket({ tokens, rows, longest }));
    expect(position.length).toBe(tokens);
    expect(Math.max(...position) + 1).toBeLessThanOrEqual(longest);
    for (let i = 0; i < tokens; i++) {
      // A position is the number of ancestors: earlier tokens whose subtree contains this one.
      let ancestors = 0;
      for (let k = 0; k < i; k++) if (i < subtreeEnd[k]!) ancestors++;
      expect(position[i]).toBe(ancestors);
      expect(subtreeEnd[i]).toBeGreaterThan(i);
      expect(subtreeEnd[i]).toBeLessThanOrEqual(tokens);
    }
    expect(row.length).toBe(rows);
    expect([...row]).toEqual([...row].sort((a, b) => a - b));
    expect(Math.max(...row)).toBeLessThan(tokens);
  });

  it('makes branches, not only chains', () => {
    const { position } = bucketTrees(scoringBucket({ tokens: 256, rows: 1, longest: 100 }));
    expect(position.filter((p, i) => i > 0 && p !== 0 && p !== position[i - 1]! + 1).length).toBeGreaterThan(2);
    expect(Math.max(...position)).toBe(99);
  });
});

describe('roles', () => {
  const module = llamaModule();
  const tableRows = (name: string): number | undefined => {
    const rows = module.buffers.find((b) => b.name === name)?.rows;
    return typeof rows === 'number' ? rows : undefined;
  };
  const roles = (end: string) => rolesOf(kernelAt(module, end), module, tableRows);

  it('bound token ids and targets by the vocabulary', () => {
    expect(roles('embed').integers.get('tokens')).toEqual({ kind: 'below', bound: 700 });
    expect(roles('head').integers.get('target')).toEqual({ kind: 'below', bound: 700 });
    const ids = integersFor({ kind: 'below', bound: 700 }, scoringBucket({ tokens: 64, rows: 64, longest: 9 }), 64, 3);
    expect(Math.max(...ids)).toBeLessThan(700);
    expect(Math.min(...ids)).toBeGreaterThanOrEqual(0);
    expect(new Set(ids).size).toBeGreaterThan(40);
  });

  it('know ends of subtrees, rows of queries and positions', () => {
    expect(roles('0.attention.mix').integers.get('subtree_end')).toEqual({ kind: 'subtreeEnd' });
    expect(roles('2.attention.mix').integers.get('row')).toEqual({ kind: 'row' });
    expect(roles('2.attention.o').integers.get('row')).toEqual({ kind: 'row' });
    expect(roles('prepare').integers.get('position')).toEqual({ kind: 'position' });
  });

  it('make the lists of trees where keys are those of the call', () => {
    const own = llamaModule(SHAPE, 'f32', 'path');
    const { integers } = rolesOf(kernelAt(own, '0.attention.mix'), own, () => undefined);
    expect(Object.fromEntries(integers)).toEqual({
      begin: { kind: 'begin' },
      position: { kind: 'position' },
      key: { kind: 'key' },
    });
    const bucket = scoringBucket({ tokens: 30, rows: 8, longest: 10 });
    const { position, begin, key } = bucketTrees(bucket);
    expect({ begin, key }).toEqual(listPaths(position));
    expect([...integersFor({ kind: 'key' }, bucket, 64, 1)].slice(0, key.length)).toEqual([...key]);
  });

  it('make paths: one for each of a few new tokens, whole prompts of many', () => {
    const { module: attend, kernel } = attentionModule({
      heads: 2,
      kvHeads: 1,
      headDim: 16,
      dtype: 'bf16',
      mask: 'path',
    });
    const { integers } = rolesOf(kernel, attend, () => CACHE_ROWS);
    const values = (name: string, bucket: Bucket, count: number): number[] => [
      ...integersFor(integers.get(name)!, bucket, count, 3),
    ];
    const few = { extents: stepExtents({ tokens: 4, keys: 1000, rows: 4 }), longest: 100 };
    expect(values('begin', few, 4)).toEqual([0, 100, 200, 300]);
    expect(values('position', few, 4)).toEqual([99, 99, 99, 99]);
    const crowded = { extents: stepExtents({ tokens: 4, keys: 40, rows: 4 }), longest: 100 };
    expect(values('begin', crowded, 4)).toEqual([0, 10, 20, 30]);
    expect(values('position', crowded, 4)).toEqual([9, 9, 9, 9]);
    const prompts = { extents: stepExtents({ tokens: 7, keys: 1000, rows: 7 }), longest: 3 };
    expect(values('begin', prompts, 7)).toEqual([0, 0, 0, 3, 3, 3, 6]);
    expect(values('position', prompts, 7)).toEqual([0, 1, 2, 0, 1, 2, 0]);
    const keys = values('key', few, 400);
    expect(Math.max(...keys)).toBeLessThan(CACHE_ROWS);
    expect(new Set(keys).size).toBeGreaterThan(200);
  });

  it('lay paths in pages: 16 rows in order, begun at multiples of 16, none shared while there are others', () => {
    const bucket = { extents: stepExtents({ tokens: 3, keys: 1000, rows: 3 }), longest: 40 };
    const keys = integersFor({ kind: 'cacheKey', rows: 160 }, bucket, 130, 5);
    expect(new Set(keys.subarray(0, 120)).size).toBe(120);
    const pages = new Set<number>();
    for (let i = 0; i < 120; i++) {
      const at = (i % 40) % 16;
      expect(keys[i]! % 16).toBe(at);
      if (at === 0) pages.add(keys[i]!);
      else expect(keys[i]).toBe(keys[i - 1]! + 1);
    }
    expect(pages.size).toBe(9);
    // A cache of fewer pages than paths need: they share them. One of less than a page: no row beyond it.
    const crowded = integersFor({ kind: 'cacheKey', rows: 48 }, bucket, 120, 5);
    expect([Math.min(...crowded), Math.max(...crowded)]).toEqual([0, 47]);
    expect(Math.max(...integersFor({ kind: 'cacheKey', rows: 5 }, bucket, 120, 5))).toBe(4);
  });

  it('lay prompts in pages that follow each other, and texts that grow in any', () => {
    const follows = (keys: Int32Array): boolean => keys.every((key, i) => key === i);
    const prompts = { extents: stepExtents({ tokens: 160, keys: 1000, rows: 3 }), longest: 80 };
    expect(follows(integersFor({ kind: 'cacheKey', rows: 400 }, prompts, 160, 5))).toBe(true);
    const texts = { extents: stepExtents({ tokens: 2, keys: 160, rows: 2 }), longest: 80 };
    expect(follows(integersFor({ kind: 'cacheKey', rows: 400 }, texts, 160, 5))).toBe(false);
  });

  it('write each new token to a row of its own, and those beyond the state nowhere', () => {
    const bucket = { extents: stepExtents({ tokens: 5, keys: 1000, rows: 5 }), longest: 40 };
    expect([...integersFor({ kind: 'slot', rows: 3 }, bucket, 5, 1)]).toEqual([0, 1, 2, -1, -1]);
  });

  it('keep sums of squares positive', () => {
    expect([...roles('1.attention.qkv').positive].length).toBe(1);
    expect([...roles('head.reduce').positive].length).toBe(1);
    expect([...roles('0.attention.mix').positive]).toEqual([]);
  });
});

describe('biasFor', () => {
  it('masks the same tokens as the trees', () => {
    const trees = bucketTrees(scoringBucket({ tokens: 12, rows: 1, longest: 6 }));
    const bias = biasFor(trees, 16);
    for (let q = 0; q < 12; q++)
      for (let k = 0; k < 12; k++) expect(bias[q * 16 + k]).toBe(k <= q && q < trees.subtreeEnd[k]! ? 0 : -Infinity);
  });
});
