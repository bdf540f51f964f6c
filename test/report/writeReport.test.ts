/** A report as a file: what is in it, that it can do nothing but show, and what cannot be reported. */
import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inflateRawSync } from 'node:zlib';
import { afterAll, describe, expect, it } from 'vitest';
import { report } from '../../commands/report.js';
import { UserError } from '../../errors.js';
import type { Sections } from '../../report/document/sections.js';
import { writeRun } from '../support/results.js';
import { madeStart } from '../support/traces.js';

const root = mkdtempSync(join(tmpdir(), 'tilewright-report-'));
afterAll(() => rmSync(root, { recursive: true }));

const now = new Date('2026-02-03T04:05:06Z');
const write = (runs: readonly string[], title?: string): string => {
  const output = join(root, 'page.html');
  report({ runs, output, writer: 'tilewright test', now, ...(title === undefined ? {} : { title }) });
  return readFileSync(output, 'utf8');
};
const blockOf = <K extends keyof Sections>(html: string, name: K): Sections[K] => {
  const data = new RegExp(`id="data-${name}">([^<]*)<`).exec(html)![1]!;
  return JSON.parse(inflateRawSync(Buffer.from(data, 'base64')).toString()) as Sections[K];
};

describe('a page', () => {
  const folder = writeRun(
    join(root, 'a'),
    { t: [{ lls: [-1, -2] }, { lls: [-3, -2] }, { lls: [-1, -2] }] },
    { throughput: { questions: 3, tokensComputed: 30, tokensWithoutSharing: 60, scoreSeconds: 'soon' } },
  );

  it('holds the figures of the files', () => {
    const html = write([folder]);
    expect(blockOf(html, 'about')).toEqual({
      ...{ title: 'made', subtitle: 't, 1 run', writer: 'tilewright test', notes: [] },
      written: '2026-02-03T04:05:06.000Z',
    });
    const [run] = blockOf(html, 'results').runs;
    const [task] = run!.tasks;
    expect(task).toMatchObject({ task: 't', kind: 'task', questions: 3, depth: 0 });
    expect(task!.figures[0]).toMatchObject({ metric: 'acc', filter: 'none', value: 2 / 3, isShare: true });
    // Wilson's interval of 2 in 3.
    expect(task!.figures[0]!.interval!.map((each) => each.toFixed(4))).toEqual(['0.2077', '0.9385']);
    expect(run!.cost).toMatchObject({ tokensComputed: 30, tokensWithoutSharing: 60, scoreSeconds: null, devices: [] });
  });

  it('holds the start of a run that says how it was, and nothing of one that cannot be read', () => {
    const start = madeStart();
    const read = (said: unknown): unknown => {
      const of = writeRun(join(root, 's'), { t: [{ lls: [-1, -2] }] }, { throughput: { questions: 1, start: said } });
      return blockOf(write([of]), 'results').runs[0]!.cost!.start;
    };
    expect(read(start)).toEqual(start);
    const [first, ...others] = start.phases;
    for (const bad of [
      ...[undefined, null, 7, [], { ...start, seconds: 'soon' }, { ...start, criticalPath: undefined }],
      ...[
        { ...start, seconds: -1 },
        { ...start, seconds: 1e300 },
        { ...start, phases: [{ ...first, end: -1 }] },
      ],
      { ...start, phases: [{ ...first, begin: 2 }, ...others] },
      { ...start, phases: Array.from({ length: 5001 }, () => first) },
    ])
      expect(read(bad)).toBeNull();
    expect(read(madeStart('x'.repeat(300)))).toEqual(madeStart('x'.repeat(200)));
  });

  it('runs its own script only, and asks for nothing', () => {
    const html = write([folder], '</title><script>alert(1)</script>');
    const scripts = [...html.matchAll(/<script>([\s\S]*?)<\/script>/g)];
    expect(scripts).toHaveLength(1);
    const hash = createHash('sha256').update(scripts[0]![1]!).digest('base64');
    const policy = /http-equiv="Content-Security-Policy" content="([^"]*)"/.exec(html)![1]!;
    expect(policy).toContain(`script-src 'sha256-${hash}'`);
    expect(policy).toContain("default-src 'none'");
    expect(html).toContain('<title>&lt;/title&gt;&lt;script&gt;alert(1)&lt;/script&gt;</title>');
    expect(html.replace(scripts[0]![1]!, '')).not.toMatch(/https?:\/\//);
  });

  it('has groups before their members', () => {
    const group = writeRun(
      join(root, 'g'),
      { x: [{ lls: [-1, -2] }], y: [{ lls: [-1, -2] }] },
      {
        results: { x: { 'acc,none': 1 }, y: { 'acc,none': 1 }, all: { 'acc,none': 1, 'acc_stderr,none': 'N/A' } },
        group_subtasks: { all: ['x', 'y'], x: [], y: [] },
      },
    );
    const tasks = blockOf(write([group]), 'results').runs[0]!.tasks;
    expect(tasks.map(({ task, kind, depth }) => `${task} ${kind} ${depth}`)).toEqual([
      'all group 0',
      'x task 1',
      'y task 1',
    ]);
  });
});

it('names that are the same are told apart', () => {
  const [a, b] = ['same1', 'same2'].map((name) => writeRun(join(root, name), { t: [{ lls: [-1, -2] }] }));
  const names = (runs: readonly string[]): string[] => blockOf(write(runs), 'results').runs.map(({ name }) => name);
  expect(names([a!, b!])).toEqual(['same1 (made)', 'same2 (made)']);
  expect(names([a!, a!])).toEqual(['1: same1 (made)', '2: same1 (made)']);
});

describe('what cannot be reported', () => {
  const problem = (runs: readonly string[]): string => {
    try {
      write(runs);
    } catch (error) {
      if (error instanceof UserError) return error.message;
      throw error;
    }
    throw new Error('nothing was refused');
  };
  it('is refused in a line', () => {
    mkdirSync(join(root, 'empty'));
    mkdirSync(join(root, 'half'));
    writeFileSync(join(root, 'half', 'results_2026-01-31T10-20-30.json'), '{"results": {');
    expect(problem([join(root, 'none')])).toMatch(/none: no such file/);
    expect(problem([join(root, 'empty')])).toMatch(/no results_\*\.json in it/);
    expect(problem([join(root, 'half')])).toMatch(/not valid JSON/);
    expect(problem(Array.from({ length: 21 }, () => root))).toMatch(/21 runs are more/);
  });
});
