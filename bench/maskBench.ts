/**
 * MaskBench: schemas with instances that fit and that do not (guidance-ai/jsonschemabench, folder maskbench/data).
 *
 *     node dist/bench/maskBench.js FOLDER [--json FILE] [--only PART] [--every N]
 *
 * Counts schemas that are refused, those whose instances are all judged right, and the others by what is wrong.
 * Instances are written compact. Properties have
 * the order of the schema, so an instance is also tried with its properties in any order.
 */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { GrammarError } from '../grammar/grammar.js';
import { Matcher } from '../grammar/matcher/states.js';
import { Automaton } from '../grammar/regular/automaton.js';
import { schemaGrammar } from '../grammar/schema/schemaGrammar.js';
import { LIMITS } from '../grammar/limits.js';
import { Work } from '../grammar/work.js';
import { Follower, instancesOf, textOf } from './followInstances.js';

interface Outcome {
  readonly file: string;
  readonly kind: 'pass' | 'pass in another order' | 'refused' | 'valid refused' | 'invalid accepted' | 'too hard';
  readonly detail: string;
  readonly compileMs: number;
  readonly instances: number;
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { json: { type: 'string' }, only: { type: 'string' }, every: { type: 'string' } },
});
const [folder] = positionals;
if (folder === undefined) throw new Error('Name the folder of the schemas.');

function judge(file: string): Outcome {
  const source = readFileSync(join(folder ?? '', file), 'utf8');
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

const files = readdirSync(folder)
  .filter((file) => file.endsWith('.json') && file.includes(values.only ?? ''))
  .sort()
  .filter((_, i) => i % Number(values.every ?? 1) === 0);
const outcomes = files.map((file) => {
  const begin = performance.now();
  const found = judge(file);
  const ms = performance.now() - begin;
  if (ms > 2000) process.stderr.write(`${file}: ${found.kind} in ${ms.toFixed(0)} ms\n`);
  return found;
});
const counts = new Map<string, number>();
for (const { kind } of outcomes) counts.set(kind, (counts.get(kind) ?? 0) + 1);
const times = outcomes.map(({ compileMs }) => compileMs).sort((a, b) => a - b);
const quantile = (q: number): string =>
  (times[Math.min(times.length - 1, Math.floor(q * times.length))] ?? 0).toFixed(2);
process.stdout.write(`${files.length} schemas: ${[...counts].map(([kind, count]) => `${count} ${kind}`).join(', ')}\n`);
process.stdout.write(`compile ms: p50 ${quantile(0.5)}, p99 ${quantile(0.99)}, most ${quantile(1)}\n`);
if (values.json !== undefined) writeFileSync(values.json, JSON.stringify(outcomes, null, 1));
