/**
 * Whoever drafts: answers of servers, results of searches and of tasks are those without drafts, to the byte. Filters
 * and penalties beside a draft model, which test/e2e/drafts.test.ts leaves out.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it, vi } from 'vitest';
import { search } from '../../commands/search.js';
import type { SearchRequest, SearchSummary } from '../../commands/searchRequest.js';
import { startServer } from '../e2e/serverProcess.js';
import { safetensorsFile, tensorsOf, writeCheckpoint } from '../e2e/smallModel.js';
import { CAPACITY, environment, isBuilt, ROOT, success, temporaryFolder, tilewright } from '../e2e/support.js';
import { endingGenerator, LOAD, OPTIONS, problemLines, writeProblems } from '../support/searchRuns.js';
import { SILENT } from '../support/silent.js';

const PLACE = ['--target', 'cpu', '--precision', 'f32', '--threads', '2', ...CAPACITY, '--cache-tokens', '1024'];
const PROMPTS = ['the cat waits the cat waits the cat', 'the train', 'a teacher sings on the hill'];

describe.skipIf(!isBuilt)('with drafts', () => {
  let model = '';
  let drafters: readonly (readonly string[])[] = [];
  beforeAll(() => {
    model = writeCheckpoint();
    const other = writeCheckpoint({ weights: safetensorsFile(tensorsOf(2)) }, 'other');
    drafters = [
      ['--draft', 'suffix', '--draft-tokens', '8'],
      ['--draft', 'ngram', '--draft-tokens', '4'],
      ['--draft', other, '--draft-tokens', '3'],
      ['--draft', model, '--draft-tokens', '5'],
    ];
  });

  it('filters and penalties are the same beside a draft model', async () => {
    const flags = [
      ...['--max-new-tokens', '24', '--temperature', '0.8', '--top-p', '0.9', '--repetition-penalty', '1.2'],
      ...['--top-logprobs', '2', '--min-new-tokens', '5', '--stop', 'e'],
    ];
    const generated = async (...more: readonly string[]) =>
      success(await tilewright(['generate', model, ...PROMPTS, '--json', ...PLACE, ...flags, ...more]))
        .stdout.trimEnd()
        .split('\n')
        .map((line) => ({ ...(JSON.parse(line) as object), drafts: 0, foundTokens: 0 }));
    const plain = await generated('--draft', 'off');
    for (const drafter of drafters.slice(2)) expect(await generated(...drafter)).toEqual(plain);
  });

  it('a server gives the same answers, and counts what became of them', async () => {
    const bodies = PROMPTS.flatMap((prompt) =>
      [0, 0.9].map((temperature) => ({ prompt, max_tokens: 32, temperature, seed: 3, logprobs: 1, n: 2 })),
    );
    const answers = async (...flags: readonly string[]) => {
      const server = await startServer(model, ...PLACE, ...flags);
      const post = async (body: object) => {
        const headers = { 'Content-Type': 'application/json' };
        const path = `${server.url}/v1/completions`;
        const response = await fetch(path, { method: 'POST', headers, body: JSON.stringify(body) });
        const { choices, usage } = (await response.json()) as Record<string, Record<string, unknown>>;
        return { choices, completion: usage!['completion_tokens'] };
      };
      const all = await Promise.all(bodies.map(post));
      const metrics = await (await fetch(`${server.url}/metrics`)).text();
      await server.stop();
      const count = (name: string): number => Number(new RegExp(`^vllm:${name}{.*} (\\d+)$`, 'm').exec(metrics)?.[1]);
      const [drafted, accepted] = ['draft_tokens', 'accepted_tokens'].map((name) =>
        count(`spec_decode_num_${name}_total`),
      );
      return { all, drafted: drafted!, accepted: accepted! };
    };
    const plain = await answers('--draft', 'off');
    expect([plain.drafted, plain.accepted]).toEqual([0, 0]);
    for (const drafter of drafters) {
      const { all, drafted, accepted } = await answers(...drafter);
      expect(all).toEqual(plain.all);
      expect(drafted).toBeGreaterThanOrEqual(accepted);
      if (drafter[1] === model) expect(accepted).toBeGreaterThan(0);
    }
  });
});

const VERIFIERS = join(ROOT, '..', 'shared', 'checkpoints', 'verifiers');
if (!existsSync(VERIFIERS))
  process.stderr.write('SKIPPED: searches with drafts: the folder ../shared is not beside the repository\n');

describe.skipIf(!existsSync(VERIFIERS) || !isBuilt)('a search with drafts', () => {
  it('has the same samples', async () => {
    for (const [name, value] of Object.entries(environment())) vi.stubEnv(name, value);
    const folder = temporaryFolder();
    const model = endingGenerator(join(VERIFIERS, 'rlhflow-prm'), folder);
    const asked: SearchRequest = {
      ...{ ...LOAD, model, verifier: { model: join(VERIFIERS, 'qwen-prm') }, options: OPTIONS },
      ...{ problems: { kind: 'file', path: writeProblems(folder, problemLines(5)) }, resume: false, threads: 1 },
    };
    const samples = async (more: Partial<SearchRequest>) =>
      ((await search({ ...asked, ...more, output: temporaryFolder() }, SILENT)) as SearchSummary).samplesSha256;
    const plain = await samples({ draft: 'off' });
    for (const draft of ['suffix', 'ngram', model]) expect(await samples({ draft })).toBe(plain);
  });
});
