/** Beginnings that a model with recurrent layers keeps, of questions that are longer than a call. */
import { expect, test } from 'vitest';
import { RECURRENT_FILES } from '../support/recurrentFiles.js';
import { questions, writeCheckpoint, writeData } from './smallModel.js';
import { isBuilt, runArguments, success, temporaryFolder, textOf, tilewright } from './support.js';

test.skipIf(!isBuilt)('are scored to the byte as in trees, from rows of states', async () => {
  const config = { ...RECURRENT_FILES.mamba2, model_type: 'mamba2', vocab_size: 320 };
  const model = writeCheckpoint({ config, weights: null });
  const shots = questions(2).map(({ context }) => context.repeat(2));
  const data = writeData(
    questions(6).map((question, i) => ({ ...question, context: `${shots[i % 2]!} ${question.context}` })),
  );
  const score = async (...flags: string[]): Promise<{ out: string; stderr: string }> => {
    const out = temporaryFolder();
    const { stderr } = success(
      await tilewright(runArguments(model, data, '--init', 'random:3', '--out', out, '--verbose', ...flags)),
    );
    return { out, stderr };
  };
  const repeated = await score('--batch-tokens', '256', '--prefixes', 'repeat');
  const kept = await score('--batch-tokens', '32', '--cache-tokens', '512');
  expect(kept.stderr).toMatch(/prefixes: kept, .* in calls of up to 32, since question 0 has/);
  expect(textOf(kept.out, 'samples')).toBe(textOf(repeated.out, 'samples'));
});
