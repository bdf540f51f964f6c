/**
 * Runs a fuzzer of test/fuzz/registry.ts: npm run fuzz -- NAME [--seconds 60] [--seed 1]
 * Every round has a seed of its own, printed as it goes: a process that ends in a round is repeated with --seed.
 */
import { parseArgs } from 'node:util';

/** A module from the build. Its name is computed, so that a checkout that was not built yet can be linted as well. */
const built = (path) => import(new URL(`../dist/${path}`, import.meta.url).href);
const { randomOf } = await built('test/fuzz/mutate.js');
const { FUZZERS } = await built('test/fuzz/registry.js');

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { seconds: { type: 'string', default: '60' }, seed: { type: 'string', default: '1' } },
});
const [name] = positionals;
const fuzzer = name === undefined ? undefined : FUZZERS[name];
const [seconds, first] = [Number(values.seconds), Number(values.seed)];
if (fuzzer === undefined || !(seconds > 0) || !Number.isSafeInteger(first)) {
  const list = Object.entries(FUZZERS).map(([each, { about }]) => `  ${each}: ${about}`);
  process.stderr.write(`npm run fuzz -- NAME [--seconds 60] [--seed 1]\n${list.join('\n')}\n`);
  process.exit(2);
}
const end = performance.now() + seconds * 1000;
let seed = first;
let told = 0;
for (; performance.now() < end; seed++) {
  if (performance.now() - told > 1000) {
    told = performance.now();
    process.stderr.write(`${name}: --seed ${seed}\n`);
  }
  try {
    await fuzzer.round(randomOf(seed));
  } catch (error) {
    process.stderr.write(`${name}: failed with --seed ${seed}: ${error instanceof Error ? error.stack : error}\n`);
    process.exit(1);
  }
}
process.stdout.write(`${name}: ${seed - first} rounds, nothing found\n`);
