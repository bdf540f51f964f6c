/**
 * The golden log-likelihoods of the demo model on examples/everyday.jsonl, which the GPU tests of a bundle compare
 * with: float64, one answer at a time. Delete the file to make it again (minutes).
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { run } from '../../commands/run.js';
import { loadDataset } from '../../evaluate/dataset.js';
import { evaluate, tokenizeDataset } from '../../evaluate/evaluate.js';
import { fileTaskByName } from '../../evaluate/fileTasks.js';
import type { Scores } from '../../evaluate/metrics.js';
import type { Selection } from '../../evaluate/selection.js';
import { openCheckpoint } from '../../models/checkpoint.js';
import { describeTokenizer } from '../../models/tokenizer/files.js';
import { isBuilt, ROOT, temporaryFolder } from '../e2e/support.js';
import { compareGolden, EVERYDAY } from '../gpu/golden.js';
import { SILENT } from '../support/silent.js';
import { Float64Scorer } from './float64.js';

const GOLDEN = join(ROOT, 'test', 'gpu', 'golden', 'everyday-demo.jsonl');
const DATA = join(ROOT, 'examples', 'everyday.jsonl');
const MODEL = join(ROOT, 'models', 'demo');
const HOURS = 3600_000;

/** In float64, every answer with its whole context: nothing is shared. */
async function float64(docs?: Selection['docs']): Promise<readonly Scores[]> {
  const checkpoint = openCheckpoint(MODEL);
  const tokenizer = describeTokenizer(checkpoint.path);
  const loaded = await tokenizeDataset(
    await loadDataset({ path: DATA, task: fileTaskByName('hellaswag'), ...(docs === undefined ? {} : { docs }) }),
    {
      tokenizer: {
        moduleUrl: new URL('../../dist/models/tokenizer/tokenizer.js', import.meta.url).href,
        spec: tokenizer.spec,
      },
      workers: 1,
    },
  );
  return (
    await evaluate({
      questions: loaded.questions,
      tokenized: loaded.tokenized,
      scorer: new Float64Scorer(checkpoint),
      sharing: docs === undefined ? 'tree' : 'none',
    })
  ).scores;
}

const lineOf = ({ docId, ll }: Scores): string =>
  JSON.stringify({ doc_id: docId, ll: ll.map((value) => Number(value.toFixed(5))) });

const readGolden = (): ReadonlyMap<number, readonly number[]> =>
  new Map(
    readFileSync(GOLDEN, 'utf8')
      .trim()
      .split('\n')
      .map((line) => {
        const { doc_id: id, ll } = JSON.parse(line) as { readonly doc_id: number; readonly ll: readonly number[] };
        return [id, ll];
      }),
  );

describe.skipIf(!isBuilt)('golden log-likelihoods of the examples', () => {
  it(
    'are those of float64, with nothing shared',
    async () => {
      if (!existsSync(GOLDEN)) writeFileSync(GOLDEN, (await float64()).map((scores) => `${lineOf(scores)}\n`).join(''));
      const golden = readGolden();
      expect(golden.size).toBe(136);
      for (const { docId, ll } of await float64([{ first: 77, end: 78 }]))
        ll.forEach((value, i) => {
          expect(Math.abs(value - golden.get(docId)![i]!)).toBeLessThan(2e-5);
        });
    },
    HOURS,
  );

  it('are those of the CPU in f32', async () => {
    const { samplesPath } = await run(
      {
        model: MODEL,
        init: { kind: 'checkpoint' },
        precision: 'f32',
        task: 'hellaswag',
        data: DATA,
        sharing: 'none',
        threads: 2,
        output: temporaryFolder(),
        resume: false,
      },
      SILENT,
    );
    const compared = compareGolden(readFileSync(samplesPath!, 'utf8'), readFileSync(GOLDEN, 'utf8'));
    expect(compared).toMatchObject({ questions: 136, others: 0, turnedBy: 0 });
    expect(compared.error).toBeLessThan(1e-4);
    // Errors are reported: a line left out, an answer that moved.
    const lines = readFileSync(samplesPath!, 'utf8').trim().split('\n');
    expect(() => compareGolden(lines.slice(1).join('\n'), readFileSync(GOLDEN, 'utf8'))).toThrow(
      '135 of 136 questions were scored',
    );
    const moved = readFileSync(GOLDEN, 'utf8').replace(/"ll":\[-[\d.]+/, '"ll":[-1');
    const turned = compareGolden(lines.join('\n'), moved);
    expect(turned).toMatchObject({ others: 1 });
    expect(turned.turnedBy).toBeGreaterThan(EVERYDAY.turnedBy);
  });
});
