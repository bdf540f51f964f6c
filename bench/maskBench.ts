/**
 * `npm run bench:masks -- FOLDER`: MaskBench's schemas with instances that fit and that do not
 * (guidance-ai/jsonschemabench, folder maskbench/data). Counts schemas that are refused, those whose instances are all
 * judged right, and the others by what is wrong. Instances are written compact. Properties have the order of the
 * schema, so an instance is also tried with its properties in any order.
 */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Command } from 'commander';
import { GrammarError } from '../grammar/grammar.js';
import { Matcher } from '../grammar/matcher/states.js';
import { Automaton } from '../grammar/regular/automaton.js';
import { schemaGrammar } from '../grammar/schema/schemaGrammar.js';
import { LIMITS } from '../grammar/limits.js';
import { Work } from '../grammar/work.js';
import { benchCommand, runProgram, whole } from './command.js';
import { Follower, instancesOf, textOf } from './followInstances.js';

interface Outcome {
  readonly file: string;
  readonly kind: 'pass' | 'pass in another order' | 'refused' | 'valid refused' | 'invalid accepted' | 'too hard';
  readonly detail: string;
  readonly compileMs: number;
  readonly instances: number;
}

function judge(folder: string, file: string): Outcome {
  const source = readFileSync(join(folder, file), 'utf8');
  const parsed = JSON.parse(source) as { schema: unknown; tests?: { valid: boolean; data: unknown }[] };
  const instances = instancesOf(source);
  const start = performance.now();
  const outcome = (kind: Outcome['kind'], detail = '', instances = 0): Outcome => ({
    file,
    kind,
    detail,
    compileMs,
    instances,
  });
  let compileMs = 0;
  const work = new Work();
  work.begin(LIMITS.compileSteps);
  let matcher: Matcher;
  try {
    const grammar = schemaGrammar(parsed.schema);
    compileMs = performance.now() - start;
    matcher = new Matcher(grammar, new Automaton(work), 0);
    compileMs = performance.now() - start;
  } catch (error) {
    compileMs = performance.now() - start;
    if (!(error instanceof GrammarError)) throw new Error(`${file}`, { cause: error });
    return outcome('refused', `${error.message} (${error.where ?? ''})`);
  }
  try {
    const follower = new Follower(matcher, work);
    let isAsSpelled = true;
    for (const [i, { valid }] of (parsed.tests ?? []).entries()) {
      const instance = instances[i];
      if (instance === undefined) throw new Error(`${file} has fewer instances than it says.`);
      const isThere = follower.hasAsSpelled(instance);
      // What does not fit must not be there in any order.
      if (isThere === valid && valid) continue;
      if (follower.hasInAnyOrder(instance) !== valid)
        return outcome(valid ? 'valid refused' : 'invalid accepted', `#${i} ${textOf(instance).slice(0, 400)}`, i + 1);
      isAsSpelled &&= isThere === valid;
    }
    return outcome(isAsSpelled ? 'pass' : 'pass in another order', '', instances.length);
  } catch (error) {
    if (!(error instanceof GrammarError)) throw new Error(`${file}`, { cause: error });
    return outcome('too hard', error.message);
  }
}

interface MaskBenchOptions {
  readonly only: string;
  readonly every: number;
  readonly json?: string;
}

function main({ only, every, json }: MaskBenchOptions, [operand]: readonly unknown[]): void {
  const folder = String(operand);
  const files = readdirSync(folder)
    .filter((file) => file.endsWith('.json') && file.includes(only))
    .sort()
    .filter((_, i) => i % every === 0);
  const outcomes = files.map((file) => {
    const begin = performance.now();
    const found = judge(folder, file);
    const ms = performance.now() - begin;
    if (ms > LONG_MS) process.stderr.write(`${file}: ${found.kind} in ${ms.toFixed(0)} ms\n`);
    return found;
  });
  const counts = new Map<string, number>();
  for (const { kind } of outcomes) counts.set(kind, (counts.get(kind) ?? 0) + 1);
  const times = outcomes.map(({ compileMs }) => compileMs).sort((a, b) => a - b);
  const quantile = (q: number): string =>
    (times[Math.min(times.length - 1, Math.floor(q * times.length))] ?? 0).toFixed(2);
  const counted = [...counts].map(([kind, count]) => `${count} ${kind}`).join(', ');
  process.stdout.write(`${files.length} schemas: ${counted}\n`);
  process.stdout.write(`compile ms: p50 ${quantile(0.5)}, p99 ${quantile(0.99)}, most ${quantile(1)}\n`);
  if (json !== undefined) writeFileSync(json, JSON.stringify(outcomes, null, 1));
}

/** Schemas that take longer are named. */
const LONG_MS = 2000;

export const maskBenchCommand = (): Command =>
  benchCommand(
    'bench:masks',
    "Judges MaskBench's instances by the grammars of their schemas, and prints how many schemas are refused, judged " +
      'right, or wrong, and what compiling them takes.',
  )
    .argument('<folder>', 'maskbench/data of guidance-ai/jsonschemabench')
    .option('--only <part>', 'files whose names have this part', '')
    .option('--every <n>', 'each n-th file', whole(1, 100_000), 1)
    .option('--json <file>', 'where the outcome of each schema goes');

await runProgram(import.meta.url, maskBenchCommand, main);
