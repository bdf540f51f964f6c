/** Runs for tests of verify: the command, and copies of results of which something is changed. */
import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import type { CheckName } from '../../evaluate/verify/findings.js';
import type { Verification } from '../../evaluate/verify/verification.js';
import { failure, filesOf, type Outcome, ROOT, temporaryFolder, tilewright } from './support.js';

export const DEMO = join(ROOT, 'models', 'demo');
export const PLACE = ['--target', 'cpu', '--precision', 'f32', '--threads', '2', '--batch-tokens', '64'];

export const verify = async (out: string, ...more: string[]) =>
  tilewright(['verify', out, '--threads', '2', '--seed', '1', ...more]);

/** What it says, and the status. */
export async function verified(
  out: string,
  ...more: string[]
): Promise<Verification & { readonly status: number | null }> {
  const { status, stdout, stderr } = await verify(out, '--json', ...more);
  expect(stderr, stderr).toBe('');
  return { ...(JSON.parse(stdout) as Verification), status };
}

/** What a verification that cannot be done says. */
export function failureOf(outcome: Outcome): ReturnType<typeof failure> {
  expect(outcome.status, outcome.stderr).toBe(4);
  return failure({ ...outcome, status: 1, stderr: outcome.stderr.replace(/^\[.*\n/gm, '') });
}

export type Json = Record<string, unknown>;

/** Copies of results, of which something is changed. */
export class Results {
  readonly out: string;

  constructor(original: string) {
    this.out = join(temporaryFolder(), 'results');
    cpSync(original, this.out, { recursive: true });
  }

  results(change: (results: Json) => void): this {
    const [path = ''] = filesOf(this.out, 'results');
    const content = JSON.parse(readFileSync(path, 'utf8')) as Json;
    change(content);
    writeFileSync(path, `${JSON.stringify(content, null, 2)}\n`);
    return this;
  }

  /** `change`: gets the lines of a task's samples, and gives those that take their places. */
  lines(task: string, change: (lines: readonly string[]) => readonly string[]): this {
    const path = filesOf(this.out, 'samples').find((name) => name.includes(`samples_${task}_`)) ?? '';
    const lines = readFileSync(path, 'utf8').trimEnd().split('\n');
    writeFileSync(
      path,
      change(lines)
        .map((line) => `${line}\n`)
        .join(''),
    );
    return this;
  }

  /** One line as text. */
  line(task: string, at: number, change: (line: string) => string): this {
    return this.lines(task, (all) => all.map((line, i) => (i === at ? change(line) : line)));
  }
}

/** The next double. */
export function oneUlp(text: string): string {
  const bytes = new DataView(new ArrayBuffer(8));
  bytes.setFloat64(0, Number(text));
  bytes.setBigUint64(0, bytes.getBigUint64(0) + 1n);
  return String(bytes.getFloat64(0));
}

/** What is amiss by the names of checks, and in which words. */
export const found = ({ differences }: Verification, check: CheckName): readonly string[] =>
  differences.filter((each) => each.check === check).map(({ what }) => what);

/** A line with other log-likelihoods in both places. */
export function edited(line: string, change: (ll: string, request: number) => string): string {
  const sample = JSON.parse(line) as { readonly filtered_resps: readonly [string, string][] };
  return sample.filtered_resps.reduce((text, [ll], i) => text.replaceAll(`"${ll}"`, `"${change(ll, i)}"`), line);
}

/** A line by which the right choice is the most likely one where it was not, and is not where it was. */
export function otherChoice(line: string): string {
  const { target, acc } = JSON.parse(line) as { readonly target: string; readonly acc: number };
  return edited(line, (_, i) => ((String(i) === target) === (acc === 0) ? '-1.5' : '-90.5'));
}
