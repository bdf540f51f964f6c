/** The prompts that `npm run mmlu` makes are those of the public harness, to the byte. */
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { isBuilt, ROOT, temporaryFolder } from './support.js';

const SHARED = join(ROOT, '..', 'shared');
const HUB = join(SHARED, 'data', 'hub', 'cais', 'mmlu');
const GOLDEN = join(SHARED, 'golden', 'requests', 'mmlu_5shot.jsonl.gz');

interface Asked {
  readonly task: string;
  readonly doc_id: number;
  readonly arguments: readonly (readonly [context: string, continuation: string])[];
  readonly target: number;
}

interface Written {
  readonly subject: string;
  readonly index: number;
  readonly context: string;
  readonly choices: readonly string[];
  readonly label: number;
}

const linesOf = <T>(text: string): T[] =>
  text
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as T);

const make = (...more: string[]): string => {
  const output = join(temporaryFolder(), 'mmlu.jsonl');
  execFileSync(process.execPath, [join(ROOT, 'scripts', 'mmlu.mjs'), HUB, output, ...more], { stdio: 'pipe' });
  return readFileSync(output, 'utf8');
};

describe.skipIf(!isBuilt || !existsSync(GOLDEN) || !existsSync(HUB))('questions of MMLU', () => {
  test('have the prompts, choices and answers of the harness, five shots each', () => {
    const written = linesOf<Written>(make());
    expect(written).toHaveLength(14_042);
    const bySubject = new Map(written.map((question) => [`mmlu_${question.subject} ${question.index}`, question]));
    const asked = linesOf<Asked>(gunzipSync(readFileSync(GOLDEN)).toString());
    expect(asked).toHaveLength(684);
    for (const { task, doc_id: index, arguments: requests, target } of asked) {
      const { context, choices, label } = bySubject.get(`${task} ${index}`)!;
      expect(choices.map((choice) => [context, ` ${choice}`])).toEqual(requests);
      expect(label).toBe(target);
    }
  });

  test('are refused where a subject or a folder is missing', () => {
    expect(() => make('--subjects', 'anatomy,sorcery')).toThrow('has no subject sorcery');
    expect(linesOf<Written>(make('--subjects', 'anatomy', '--shots', '0'))).toHaveLength(135);
  });
});
