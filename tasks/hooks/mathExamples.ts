/** The four solved problems that MATH's tasks show. */
import { readFileSync } from 'node:fs';
import { z } from 'zod';
import type { Dict, Value } from '../../python/value.js';

const PROBLEMS = z.array(z.record(z.string(), z.string()));

export function mathExamples(): readonly Dict[] {
  const text = readFileSync(new URL('../builtin/texts/math.json', import.meta.url), 'utf8');
  return PROBLEMS.parse(JSON.parse(text)).map((problem) => new Map<string, Value>(Object.entries(problem)));
}
