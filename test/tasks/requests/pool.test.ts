import { describe, expect, it } from 'vitest';
import { type Dict, Float, type PyValue } from '../../../python/value.js';
import { ShotPool } from '../../../tasks/requests/shots.js';

const document = (name: string): Dict =>
  new Map<string, PyValue>([
    ['text', `${name}: é, 語, \ud800 and \0`],
    ['label', 3],
    ['large', 2n ** 70n],
    ['score', new Float(1)],
    ['none', null],
    ['flags', [true, false, new Float(Number.NaN)]],
    ['inner', new Map<string, PyValue>([['__proto__', ['x', new Float(-0)]]])],
  ]);

describe('Pool', () => {
  it('gives documents as they were added, floats and numbers apart', () => {
    const pool = new ShotPool();
    for (let i = 0; i < 300; i++) pool.add(document(`d${i}`));
    expect(pool.length).toBe(300);
    for (const place of [0, 299, 7, 0]) {
      const got = pool.at(place);
      expect(got).toEqual(document(`d${place}`));
      expect(got.get('score')).toBeInstanceOf(Float);
    }
    for (let i = 0; i < 300; i++) expect(pool.at(i).get('label')).toBe(3);
    expect(() => pool.at(300)).toThrow('there is no document 300 of 300');
  });
});
