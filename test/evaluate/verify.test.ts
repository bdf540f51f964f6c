/** The parts of verify that compute nothing: which documents are drawn, and what is said of hostile files. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { RECORD } from '../../evaluate/runRecord.js';
import { chooseDocuments } from '../../evaluate/verify/chooseDocuments.js';
import { AnswerComparison } from '../../evaluate/verify/compareAnswers.js';
import { compareFields } from '../../evaluate/verify/compareFields.js';
import { answersIn, compareLines } from '../../evaluate/verify/compareLines.js';
import { Findings } from '../../evaluate/verify/findings.js';
import { RecordedSamples, sampleOf } from '../../evaluate/verify/recordedSamples.js';
import { outcomeOf, verdictOf } from '../../evaluate/verify/verification.js';

const folder = mkdtempSync(join(tmpdir(), 'tilewright-verify-'));
afterAll(() => {
  rmSync(folder, { recursive: true });
});

const sizes = (chosen: ReadonlyMap<string, ReadonlySet<number>>): number[] => [...chosen.values()].map((s) => s.size);

describe('documents that are drawn', () => {
  const all = new Map([
    ['a', [3, 1, 2]],
    ['b', Array.from({ length: 97 }, (_, i) => 10 * i)],
  ]);

  it('are the same for a seed, and others for another', () => {
    const draw = (seed: number): unknown => [...chooseDocuments(all, { documents: 20, seed })];
    expect(draw(7)).toEqual(draw(7));
    expect(draw(7)).not.toEqual(draw(8));
  });

  it('are as many as are asked for, each once, of the documents that there are', () => {
    for (const seed of [0, 1, 2, 3]) {
      const chosen = chooseDocuments(all, { documents: 20, seed });
      expect(sizes(chosen).reduce((a, b) => a + b)).toBe(20);
      for (const [task, own] of chosen) for (const doc of own) expect(all.get(task)).toContain(doc);
    }
    expect(sizes(chooseDocuments(all, { documents: Infinity, seed: 1 }))).toEqual([3, 97]);
    expect(sizes(chooseDocuments(all, { documents: 0, seed: 1 }))).toEqual([0, 0]);
  });

  it('do not depend on the order of lines', () => {
    const other = new Map([...all].map(([task, own]) => [task, [...own].reverse()]));
    expect(chooseDocuments(other, { documents: 9, seed: 5 })).toEqual(chooseDocuments(all, { documents: 9, seed: 5 }));
  });

  it('are drawn from all tasks alike', () => {
    let ofSmall = 0;
    for (let seed = 0; seed < 400; seed++) ofSmall += chooseDocuments(all, { documents: 10, seed }).get('a')!.size;
    // 400 times 10 of 100, of which 3 are of the first task: 120 expected, standard deviation 10.
    expect(Math.abs(ofSmall - 120)).toBeLessThan(45);
  });
});

describe('a file of samples', () => {
  const read = (text: string): RecordedSamples => {
    const path = join(folder, 'samples.jsonl');
    writeFileSync(path, text);
    const samples = new RecordedSamples(path);
    samples.close();
    return samples;
  };
  const line = (doc: number, filter = 'none'): string => `{"doc_id": ${doc}, "filter": "${filter}"}\n`;

  it('has documents by filters, in their order', () => {
    const samples = read(line(0) + line(4) + line(0, 'b') + line(4, 'b'));
    expect(samples).toMatchObject({ documents: [0, 4], filters: ['none', 'b'], strays: [] });
  });

  it.each([
    ['twice', line(0) + line(0), 'is a second line of its document'],
    ['out of order', line(4) + line(0), 'is not in its place: documents are in their order'],
    ['of an earlier filter', line(0) + line(0, 'b') + line(4), 'is not in its place: documents are in their order'],
    ['without a number', `{"doc_id": "0", "filter": "none"}\n`, 'is no sample'],
    ['with a negative number', line(-1), 'is no sample'],
    ['that is no JSON', 'x\n', 'is no sample'],
    ['that nests too deep', `${'['.repeat(100_000)}\n`, 'is no sample'],
    ['that was cut off', line(0).trimEnd(), 'was cut off'],
  ])('has a line %s', (_, text, problem) => {
    expect(read(text).strays.map((each) => each.problem)).toEqual([problem]);
  });

  it('cannot change what every object has', () => {
    const samples = read(`{"__proto__": {"doc_id": 1, "filter": "none"}}\n`);
    expect(samples.documents).toEqual([]);
    expect(({} as Record<string, unknown>)['doc_id']).toBeUndefined();
  });
});

describe('recorded answers', () => {
  const likelihoods = { requests: 2, isTexts: false };
  it.each([
    ['fewer', { resps: [[['-1.0', 'False']]] }],
    ['no number', { resps: [[['-1.0', 'False']], [['x', 'False']]] }],
    ['infinite', { resps: [[['-1.0', 'False']], [['-inf', 'False']]] }],
    ['of another kind', { resps: [['a'], ['b']] }],
    ['no word for truth', { resps: [[['-1.0', 'false']], [['-1.0', 'False']]] }],
    ['empty', { resps: [[], []] }],
    ['no list', { resps: { length: 2 } }],
  ])('that are %s are none', (_, sample) => {
    expect(answersIn(sample, likelihoods)).toBeUndefined();
  });

  it('are read to the last bit', () => {
    const sample = sampleOf('{"resps": [[["-68.06607311963762", "False"]], [["-5e-324", "True"]]]}');
    expect(answersIn(sample, likelihoods)).toEqual([
      [{ ll: -68.06607311963762, isGreedy: false }],
      [{ ll: -5e-324, isGreedy: true }],
    ]);
  });
});

describe('a line beside the one that it should be', () => {
  const hashes = { document: 'd', prompt: 'p', target: 't' };
  const sample = { doc: { q: 1 }, doc_hash: 'd', prompt_hash: 'p', target_hash: 't', resps: [], acc: 1 };
  const wanted = JSON.stringify(sample);
  const checks = (recorded: object, own: typeof hashes | null = hashes): unknown[] =>
    compareLines(JSON.stringify(recorded), wanted, () => own ?? undefined).map(({ check, field }) => [check, field]);

  it('is of other data, where it holds what its hashes say', () => {
    expect(checks({ ...sample, doc: { q: 2 } })).toEqual([['data', 'doc']]);
  });

  it('was edited, where it does not', () => {
    expect(checks({ ...sample, doc: { q: 2 } }, { ...hashes, document: 'x' })).toEqual([['samples', 'doc']]);
    expect(checks({ ...sample, doc: { q: 2 } }, null)).toEqual([['samples', 'doc']]);
  });

  it('differs by fields that are more, less and other', () => {
    expect(checks({ ...sample, acc: 0 })).toEqual([['metrics', 'acc']]);
    expect(checks({ ...sample, more: 0 })).toEqual([['metrics', 'more']]);
    const { acc: _, ...less } = sample;
    expect(checks(less)).toEqual([['metrics', 'acc']]);
    expect(compareLines(`${wanted} `, wanted, () => hashes)).toMatchObject([{ field: 'the text of the line' }]);
  });
});

describe('fields of results', () => {
  it('are compared key by key, whatever keys are called', () => {
    const parsed = (text: string): unknown => JSON.parse(text);
    const { compared, differing } = compareFields(
      parsed('{"a": {"b": 1, "__proto__": 2, "constructor": 3}, "c": [1]}'),
      parsed('{"a": {"b": 1}, "c": [1, 2]}'),
      'all',
    );
    expect(compared).toBe(4);
    expect(differing.map(({ path }) => path).sort()).toEqual(['all.a.__proto__', 'all.a.constructor', 'all.c']);
  });

  it('may nest without end', () => {
    const deep = JSON.parse(`${'{"a":'.repeat(150)}1${'}'.repeat(150)}`) as unknown;
    expect(compareFields(deep, deep, '').differing).toEqual([]);
    expect(compareFields(deep, {}, '').differing).toHaveLength(1);
  });
});

describe('a record', () => {
  const record = {
    ...{ format: 1, model: 'm', precision: 'auto', device: { target: 'cpu', isa: 'avx2', name: '' } },
    file: { task: 'hellaswag', data: 'x.jsonl' },
  };
  it('is read', () => expect(RECORD.safeParse(record).success).toBe(true));
  it.each([
    ['a path with a line end', { model: 'a\nb' }],
    ['no path', { model: '' }],
    ['a limit that is none', { limit: -1 }],
    ['weights that none makes', { init: 'random:1; rm' }],
    ['documents that are none', { tasks: { names: ['a'], samples: { a: [0.5] } } }],
    ['a seed that is none', { tasks: { names: ['a'], seeds: { python: -1, numpy: null, torch: 1, fewshot: 1 } } }],
  ])('is refused with %s', (_, more) => {
    expect(RECORD.safeParse({ ...record, ...more }).success).toBe(false);
  });
});

describe('a verdict', () => {
  const device = { target: 'cpu', isa: 'avx2', arithmetic: 'f32', name: 'A' };
  const gpu = { target: 'cuda', isa: 'cuda:sm_90a', arithmetic: 'bf16', name: 'B' };
  const place = { task: 't', doc: 0 };
  const compared = (lls: readonly number[], now: readonly number[]): [Findings, AnswerComparison] => {
    const findings = new Findings();
    const answers = new AnswerComparison(findings);
    const of = (all: readonly number[]) => all.map((ll) => [{ ll, isGreedy: false }]);
    answers.add(place, of(lls), of(now), false);
    return [findings, answers];
  };

  it('is that it agrees, where all is equal on any kind of device', () => {
    const [findings, { counts }] = compared([-1, -2], [-1, -2]);
    expect(outcomeOf(findings, false)).toBe('agrees');
    expect(verdictOf(findings, 'agrees', counts, { recorded: device, here: device })).toBe(
      'AGREES: 2 of 2 log-likelihoods equal to the bit',
    );
  });

  it('is that it differs, where one bit does on an equal kind', () => {
    const [findings, { counts }] = compared([-1, -2], [-1, -2.0000000000000004]);
    expect(outcomeOf(findings, true)).toBe('differs');
    expect(verdictOf(findings, 'differs', counts, { recorded: device, here: device })).toContain(
      '1 of 2 log-likelihoods equal to the bit; mean |Δ| 2.2e-16, worst 4.4e-16 nats; ' +
        'another choice in 0 of 1 document',
    );
  });

  it('is that bits cannot be expected on another kind', () => {
    const [findings, { counts }] = compared([-1, -2], [-2.5, -2]);
    expect(outcomeOf(findings, false)).toBe('unchecked');
    const verdict = verdictOf(findings, 'unchecked', counts, { recorded: gpu, here: device });
    expect(verdict).toMatch(
      /^CANNOT BE CHECKED to the bit: made on cuda:sm_90a, bf16 \(B\), computed on cpu avx2, f32/,
    );
    expect(verdict).toContain('another choice in 1 of 1 document');
  });

  it('is that it differs on another kind, where files do', () => {
    const [findings, { counts }] = compared([-1], [-1.5]);
    findings.differ('data', 'doc', { ...place, recorded: 1, computed: 2 });
    expect(outcomeOf(findings, false)).toBe('differs');
    expect(verdictOf(findings, 'differs', counts, { recorded: gpu, here: device })).toMatch(
      /^DIFFERS: documents or prompts are not those of the samples: 1 field differs; /,
    );
  });

  it('keeps the first differences of each check, clipped', () => {
    const findings = new Findings();
    for (let doc = 0; doc < 500; doc++)
      findings.differ('data', 'doc', { task: 't', doc, recorded: '\u001b[2J'.repeat(1000), computed: doc });
    findings.differ('answers', 'text', { ...place, recorded: 'a', computed: 'b' });
    expect(findings.differences).toHaveLength(101);
    expect(findings.of('data').differing).toBe(500);
    expect(findings.differences[0]!.recorded.length).toBeLessThan(1000);
    expect(findings.differences[0]!.recorded).not.toContain('\u001b');
  });
});
