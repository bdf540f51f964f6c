/**
 * Verifiers behind a server: the scores that `reward` prints, to the bit. Needs the data folder beside the repository.
 */
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { post } from '../serve/completions/client.js';
import { isThorough } from '../support/thorough.js';
import { type Golden, goldensOf, linesOf, type VerifierName, VERIFIERS } from '../support/verifiers.js';
import { type ServerProcess, startServer } from '../e2e/serverProcess.js';
import { isBuilt, ROOT, success, temporaryFolder, tilewright } from '../e2e/support.js';

const SHARED = join(ROOT, '..', 'shared');
const CHECKPOINTS = join(SHARED, 'checkpoints', 'verifiers');
const DEVICE = ['--precision', 'f32', '--target', 'cpu', '--threads', '2'];

const hasGoldens = existsSync(CHECKPOINTS);

/** Two at a time: one is served as the verifier of the other. */
const PAIRS: readonly (readonly [VerifierName, VerifierName])[] = isThorough
  ? [0, 2, 4, 6].map((i) => [VERIFIERS[i]!, VERIFIERS[i + 1]!])
  : [['rlhflow-prm', 'qwen-prm']];

interface Line {
  readonly scores: readonly (number | readonly number[])[];
  readonly tokens: readonly number[];
  readonly rows: readonly number[];
}

describe.skipIf(!hasGoldens || !isBuilt)('verifiers behind a server', () => {
  describe.each(PAIRS)('%s and %s', (first, second) => {
    let server: ServerProcess;
    beforeAll(async () => {
      server = await startServer(join(CHECKPOINTS, first), ...DEVICE, '--verifier', join(CHECKPOINTS, second));
    });
    afterAll(() => server.stop().then(() => undefined));

    it.each([first, second])('%s: scores are those of reward', async (name) => {
      const goldens: readonly Golden[] = goldensOf(SHARED, name).slice(0, 5);
      const input = join(temporaryFolder(), 'solutions.jsonl');
      writeFileSync(input, linesOf(goldens, ['id', 'question', 'steps']));
      const { stdout } = success(
        await tilewright(['reward', join(CHECKPOINTS, name), '--input', input, ...DEVICE, '--json']),
      );
      const lines = stdout
        .trimEnd()
        .split('\n')
        .map((line) => JSON.parse(line) as Line);
      const ask = async (body: Readonly<Record<string, unknown>>): Promise<unknown> => {
        const response = await post(server.url, '/pooling', { model: name, ...body });
        const { data } = (await response.json()) as { readonly data: readonly { readonly data: unknown }[] };
        return data[0]!.data;
      };
      // Beside each other, and beside the other's.
      const texts = await Promise.all(goldens.map(({ question, steps }) => ask({ question, steps })));
      expect(texts).toEqual(lines.map(({ scores }) => scores));
      const tokens = await Promise.all(lines.map(({ tokens: own, rows }) => ask({ input: own, rows })));
      expect(tokens).toEqual(lines.map(({ scores }) => scores));
    });
  });
});
