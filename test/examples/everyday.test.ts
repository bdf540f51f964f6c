/** The bundled question set keeps its schema and its balance, so that a result on it means what the README says. */
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { z } from 'zod';

const FILE = join(dirname(fileURLToPath(import.meta.url)), '..', '..', 'examples', 'everyday.jsonl');
const CHOICES = 4;
const text = z
  .string()
  .min(2)
  .regex(/^[\x20-\x7e]+$/, 'printable ASCII only')
  .refine((s) => s === s.trim() && !s.includes('  '), 'stray spaces');
const Question = z.strictObject({
  ind: z.int().nonnegative(),
  source_id: z.string(),
  activity_label: text,
  ctx_a: text,
  ctx_b: text,
  ctx: text,
  endings: z.array(text).length(CHOICES),
  label: z
    .int()
    .min(0)
    .max(CHOICES - 1),
  split: z.literal('val'),
});

const lines = readFileSync(FILE, 'utf8').split('\n');
const questions = lines.slice(0, -1).map((line) => Question.parse(JSON.parse(line)));

/** Values of `of` that occur more than once, ignoring case. */
function repeated(of: readonly string[]): string[] {
  const seen = new Set<string>();
  return of.filter((value) => {
    const key = value.toLowerCase();
    const isRepeated = seen.has(key);
    seen.add(key);
    return isRepeated;
  });
}

describe('examples/everyday.jsonl', () => {
  it('has at least 128 questions, one on each line, numbered in order', () => {
    expect(lines.at(-1)).toBe('');
    expect(questions.length).toBeGreaterThanOrEqual(128);
    expect(questions.map((q) => q.ind)).toEqual(questions.map((_, i) => i));
    expect(questions.map((q) => q.source_id)).toEqual(questions.map((_, i) => `everyday~${i + 1}`));
  });

  it('joins ctx from ctx_a and ctx_b by one space', () => {
    for (const q of questions) expect(q.ctx).toBe(`${q.ctx_a} ${q.ctx_b}`);
  });

  it('has one to three sentences and an open beginning as context', () => {
    for (const q of questions) {
      expect(q.ctx_a, q.source_id).toMatch(/^[A-Z].*[.]$/);
      const sentences = q.ctx_a.split(/[.?!](?: |$)/).length - 1;
      expect(sentences, q.ctx_a).toBeGreaterThanOrEqual(1);
      expect(sentences, q.ctx_a).toBeLessThanOrEqual(3);
      expect(q.ctx_b, q.source_id).toMatch(/^[a-z].*[a-z]$/);
      for (const ending of q.endings) expect(ending, q.source_id).toMatch(/^[a-zA-Z].*[.]$/);
    }
  });

  it('repeats no scene, context or ending', () => {
    expect(repeated(questions.map((q) => q.activity_label))).toEqual([]);
    expect(repeated(questions.map((q) => q.ctx_a))).toEqual([]);
    expect(repeated(questions.flatMap((q) => q.endings))).toEqual([]);
  });

  it('spreads the correct answers evenly, without a pattern', () => {
    const counts = Array.from({ length: CHOICES }, (_, label) => questions.filter((q) => q.label === label).length);
    expect(Math.max(...counts) - Math.min(...counts)).toBeLessThanOrEqual(1);
    // A rotation would always repeat at this distance; chance does so in a quarter of the places.
    for (let distance = 1; distance <= 8; distance++) {
      const same = questions.slice(distance).filter((q, i) => q.label === questions[i]!.label).length;
      expect(same / (questions.length - distance), `labels at distance ${distance}`).toBeLessThan(0.45);
    }
  });

  it('does not give the answer away by its length', () => {
    const share = (pick: (lengths: readonly number[]) => number): number =>
      questions.filter((q) => q.endings.findIndex((e) => e.length === pick(q.endings.map((x) => x.length))) === q.label)
        .length / questions.length;
    expect(share((lengths) => Math.max(...lengths))).toBeLessThan(0.4);
    expect(share((lengths) => Math.min(...lengths))).toBeLessThan(0.4);
  });
});
