/**
 * `tilewright search` with small models: the same results, to the byte, whatever the schedule, and those of a naive
 * reference. test/slow/search.test.ts has more schedules, and kills.
 */
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it, vi } from 'vitest';
import { search } from '../../commands/search.js';
import type { SearchRequest, SearchSummary } from '../../commands/searchRequest.js';
import { SILENT } from '../support/silent.js';
import {
  endingGenerator,
  hashOf,
  LOAD,
  naiveSamples,
  OPTIONS,
  problemLines,
  samplesIn,
  withoutNotes,
  writeProblems,
} from '../support/searchRuns.js';
import { environment, isBuilt, ROOT, temporaryFolder } from './support.js';

const VERIFIERS = join(ROOT, '..', 'shared', 'checkpoints', 'verifiers');
const hasModels = existsSync(VERIFIERS);
if (!hasModels)
  process.stderr.write('SKIPPED: searches with small models: the folder ../shared is not beside the repository\n');

const LINES = problemLines(5);

describe.skipIf(!hasModels || !isBuilt)('search', () => {
  let asked: SearchRequest;
  beforeAll(() => {
    for (const [name, value] of Object.entries(environment())) vi.stubEnv(name, value);
    const folder = temporaryFolder();
    asked = {
      ...LOAD,
      model: endingGenerator(join(VERIFIERS, 'rlhflow-prm'), folder),
      verifier: { model: join(VERIFIERS, 'qwen-prm') },
      problems: { kind: 'file', path: writeProblems(folder, LINES) },
      options: OPTIONS,
      resume: false,
      threads: 1,
    };
  });

  const searched = async (more: Partial<SearchRequest>, output = temporaryFolder()) => {
    const summary = (await search({ ...asked, ...more, output }, SILENT)) as SearchSummary;
    return { summary, lines: samplesIn(output), output };
  };

  it('gives what a naive reference gives, alone and together, split and shuffled, from a journal', async () => {
    const together = await searched({});
    const wanted = hashOf(together.lines);
    const naive = await naiveSamples(asked);
    const plain = ({ doc, search: of, answers }: Record<string, unknown>): unknown => ({ doc, search: of, answers });
    expect(withoutNotes(together.lines).map(plain)).toEqual(naive.map(plain));
    expect(hashOf(withoutNotes(together.lines))).toBe(hashOf(naive));
    // All ends of steps occur, and some problems have an answer.
    const text = JSON.stringify(together.lines);
    for (const end of ['"step"', '"other-eos"', '"length"', '"pruned"', '"survives"', '"completed"'])
      expect(text.includes(end), end).toBe(true);

    const shuffled = writeProblems(temporaryFolder(), LINES.toReversed(), 'problems');
    const alone = await searched({ atOnce: 1, memorySplit: 0.3, problems: { kind: 'file', path: shuffled } });
    expect(hashOf(alone.lines)).toBe(wanted);

    // A kill has left the journal alone, the last line of it cut, which is the second problem of two that are lost.
    const other = temporaryFolder();
    const [model = ''] = readdirSync(together.output);
    mkdirSync(join(other, model));
    const name = readdirSync(join(together.output, model)).find((each) => each.startsWith('journal_'))!;
    const lines = readFileSync(join(together.output, model, name), 'utf8').split('\n');
    writeFileSync(join(other, model, name), `${lines.slice(0, 4).join('\n')}\n${lines[4]!.slice(0, 40)}`);
    const resumed = (await search({ ...asked, output: other, resume: true }, SILENT)) as SearchSummary;
    expect([resumed.resumed, resumed.samplesSha256]).toEqual([3, together.summary.samplesSha256]);
  });
});
