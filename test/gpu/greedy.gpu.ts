/**
 * Greedy continuations on a real device beside those of transformers in float64: in 16 bits, log-probabilities are
 * within a tolerance, and tokens differ only where two were as likely within it.
 */
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { Engine } from '../../engine/engine.js';
import { deviceHere, SHARED, skipWithout } from './device.js';
import { loadOnDevice, scoresOf, stepperFor, write } from './sequences.js';

const FOLDER = join(SHARED, 'golden', 'greedy');
const device = await deviceHere();
const skip = skipWithout(device.skip, FOLDER, 'greedy continuations in float64');

/** Errors of a log-probability that 16-bit operands may cause: their mean, and the largest of thousands. */
const MOST = { bf16: { mean: 0.1, largest: 1 }, f16: { mean: 0.02, largest: 0.25 } } as const;

interface Golden {
  readonly prompt_tokens: readonly number[];
  readonly tokens: readonly number[];
  readonly logprobs: readonly number[];
  /** The least distance, in the continuation, between the two most likely tokens. */
  readonly least_gap: number;
}

describe('greedy continuations', { skip }, () => {
  for (const [file, precision] of [
    ['demo', 'bf16'],
    ['mha-2m', 'f16'],
  ] as const) {
    const model = join(SHARED, 'checkpoints', file);
    it(`of ${file} are those of float64, within ${precision}`, { skip: !existsSync(model) }, async () => {
      const golden = readFileSync(join(FOLDER, `${file}.greedy-pub.jsonl`), 'utf8')
        .split('\n')
        .filter((line) => line !== '')
        .map((line) => JSON.parse(line) as Golden);
      const loaded = await loadOnDevice({ model, init: { kind: 'checkpoint' }, threads: 2 }, { precision });
      const generator = (): Engine => Engine.of(stepperFor(loaded, {}));
      const paths = golden.map(({ prompt_tokens: prompt, tokens }) => [...prompt, ...tokens]);
      const scores = await scoresOf(generator(), paths, (i) => golden[i]!.prompt_tokens.length);
      const errors = scores.flatMap((values, i) => values.map((x, t) => Math.abs(x - golden[i]!.logprobs[t]!)));
      const mean = errors.reduce((a, b) => a + b, 0) / errors.length;
      const largest = Math.max(...errors);
      const written = await write(
        generator(),
        golden.map(({ prompt_tokens: prompt, tokens }) => ({ prompt, maxNewTokens: tokens.length })),
      );
      await loaded.close();
      const most = MOST[precision];
      let [same, furthest] = [0, 0];
      const wrong: string[] = [];
      golden.forEach(({ tokens, logprobs, least_gap: gap }, i) => {
        const own = written[i]!;
        const at = tokens.findIndex((token, t) => token !== own.tokens[t]);
        if (at < 0) return void same++;
        // The other token was as likely, within the error: it cannot be much better than the best of float64.
        const better = Math.abs(own.logProbs[at]! - logprobs[at]!);
        furthest = Math.max(furthest, better);
        if (better > most.largest || gap > 2 * largest) wrong.push(`prompt ${i}, token ${at}: ${better}, gap ${gap}`);
      });
      console.log(
        `${file}, ${precision}: ${errors.length} log-probabilities, mean error ${mean.toFixed(4)} ` +
          `(at most ${most.mean}), largest ${largest.toFixed(3)} (at most ${most.largest}); ` +
          `${same} of ${golden.length} texts the same, the ` +
          `others leave at tokens that are up to ${furthest.toFixed(3)} apart`,
      );
      assert(mean <= most.mean && largest <= most.largest, `${file} is further from float64 than it may be`);
      assert.deepEqual(wrong, []);
    });
  }
});
