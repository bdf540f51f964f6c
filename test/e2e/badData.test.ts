/** Question sets that cannot be scored, and weights that lead to values that are not numbers. */
import { execFileSync } from 'node:child_process';
import { closeSync, openSync, readdirSync, readFileSync, readlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { gzipSync } from 'node:zlib';
import { beforeAll, describe, expect, test } from 'vitest';
import {
  CONTEXT,
  questions,
  safetensorsFile,
  tensorsOf,
  writeCheckpoint,
  writeData,
  type StoredTensor,
} from './smallModel.js';
import {
  failure,
  filesOf,
  isBuilt,
  runArguments,
  start,
  success,
  temporaryFolder,
  textOf,
  tilewright,
  warmCache,
} from './support.js';
import { casesHere, thorough } from '../support/thorough.js';

const three = questions(3);
/** Longer than the model's context, so a choice is too long for it. */
const ROOMY = ['--batch-tokens', '256'];

/** What a link names; undefined where it is gone: a process closes its files while they are looked at. */
function linkOf(path: string): string | undefined {
  try {
    return readlinkSync(path);
  } catch {
    return undefined;
  }
}

interface Case {
  readonly name: string;
  readonly make: () => string;
  readonly flags?: readonly string[];
  readonly error: readonly (RegExp | string)[];
  readonly hint: RegExp;
}

const CASES: readonly Case[] = [
  {
    name: 'no such file',
    make: () => join(temporaryFolder(), 'absent.jsonl'),
    error: [/no such dataset.*absent\.jsonl/],
    hint: /--data/,
  },
  { name: 'an empty file', make: () => writeData([]), error: ['holds no questions'], hint: /choices/ },
  {
    name: 'a line that is not JSON',
    make: () => writeData([...three, '{"context": "cut off', ...three]),
    error: [/questions\.jsonl:4: the line is not JSON/],
    hint: /multiple_choice/,
  },
  {
    name: 'a line that is not JSON, far behind questions that are being tokenized',
    make: () => writeData([...questions(5000), 'nonsense']),
    error: [/questions\.jsonl:5001: the line is not JSON/],
    hint: /multiple_choice/,
  },
  {
    name: 'a question with no choices',
    make: () => writeData([...three, '{"context": "Why", "choices": [], "label": 0}']),
    error: [/questions\.jsonl:4: the question has no choices/],
    hint: /choices/,
  },
  {
    name: 'a question without the field',
    make: () => writeData(['{"context": "Why", "label": 0}']),
    error: [/questions\.jsonl:1: the question has no choices/],
    hint: /choices/,
  },
  {
    name: 'a label that names no choice',
    make: () => writeData(['{"context": "Why", "choices": ["a", "b"], "label": 2}']),
    error: [/questions\.jsonl:1: label 2 names none of the 2 choices/],
    hint: /label/,
  },
  {
    name: 'a choice longer than the context',
    flags: ROOMY,
    make: () => writeData([...three, { context: 'Why', choices: ['so', 'q'.repeat(CONTEXT + 20)], label: 0 }]),
    error: [
      new RegExp(`question 3, choice 1: \\d+ input tokens .* but the model's context is ${CONTEXT}`),
      /the choice alone is too long, so cutting its context cannot help/,
    ],
    hint: /--docs/,
  },
  {
    name: 'nesting in a field that nobody reads',
    make: () =>
      writeData([
        ...three,
        `{"context":"Why","choices":["a"],"label":0,"x":${'['.repeat(50_000)}${']'.repeat(50_000)}}`,
      ]),
    error: [/questions\.jsonl:4: the line is nested more than 200 deep/],
    hint: /multiple_choice/,
  },
  {
    name: 'gzip data that is cut off',
    make: () => {
      const path = join(temporaryFolder(), 'questions.jsonl.gz');
      const whole = gzipSync(readFileSync(writeData(questions(500))));
      writeFileSync(path, whole.subarray(0, whole.length / 2));
      return path;
    },
    error: [/questions\.jsonl\.gz: the gzip data is truncated or damaged/],
    hint: /gzip -t/,
  },
];

beforeAll(async () => {
  if (isBuilt) await warmCache(writeCheckpoint());
});

describe.skipIf(!isBuilt)('a question set that cannot be scored', () => {
  const model = writeCheckpoint();
  test.each(CASES)('$name', async ({ make, flags = [], error, hint }) => {
    const out = temporaryFolder();
    const outcome = await tilewright(runArguments(model, make(), ...flags, '--out', out));
    const said = failure(outcome);
    for (const part of error) expect(said.error).toMatch(part);
    // Inputs are checked before the model.
    if (!said.error.includes('input tokens')) expect(outcome.stderr).not.toContain('open model');
    expect(said.error.split('\n')).toHaveLength(1);
    expect(said.hint).toMatch(hint);
    for (const kind of ['samples', 'results'] as const) expect(filesOf(out, kind)).toEqual([]);
  });
});

describe.skipIf(!isBuilt)('a journal of another run', () => {
  test('is refused before anything is compiled or tokenized', async () => {
    const model = writeCheckpoint();
    const out = temporaryFolder();
    const data = writeData(questions(6));
    success(await tilewright(runArguments(model, data, '--limit', '4', '--out', out)));
    // A compiler that fails would be named first if kernels were compiled first.
    const env = { TILEWRIGHT_CC: '/bin/false', TILEWRIGHT_CACHE: temporaryFolder() };
    for (const flags of [
      ['--limit', '6'],
      ['--limit', '4', '--sharing', 'none'],
    ]) {
      const args = runArguments(model, data, ...flags, '--out', out, '--resume');
      const { error, hint } = failure(await tilewright(args, { env }));
      expect(error).toMatch(/belongs to another run: it differs in (docs|sharing) \(journal /);
      expect(hint).toContain('Run without --resume');
    }
  });
});

/** The weights with one value changed. */
const withValue = (name: string, at: number, value: number): StoredTensor[] =>
  tensorsOf().map((tensor) =>
    tensor.name === name ? { ...tensor, values: tensor.values.map((each, i) => (i === at ? value : each)) } : tensor,
  );

describe.skipIf(!isBuilt)('weights that are not numbers', () => {
  test.each<[string, string, number, RegExp]>([
    ["NaN in the last layer's down projection", 'model.layers.1.mlp.down_proj.weight', NaN, /layers\.1\.ffn\.down/],
    ["NaN in the first layer's down projection", 'model.layers.0.mlp.down_proj.weight', NaN, /layers\.0\.ffn\.down/],
    ["NaN in the first layer's queries", 'model.layers.0.self_attn.q_proj.weight', NaN, /layers\.0\.attention\.\S*q/],
    [
      "an infinity in the second layer's gate",
      'model.layers.1.mlp.gate_proj.weight',
      Infinity,
      /layers\.1\.ffn\.(gate|up|down)/,
    ],
    [
      "a number too large for what follows, in the first layer's output projection",
      'model.layers.0.self_attn.o_proj.weight',
      3e38,
      /layers\.0\./,
    ],
  ])('%s: the error names layer and question, and nothing is scored', async (_, tensor, value, layer) => {
    const out = temporaryFolder();
    const model = writeCheckpoint({ weights: safetensorsFile(withValue(tensor, 70, value)) });
    const { error, hint } = failure(await tilewright(runArguments(model, writeData(three), '--out', out)));
    expect(error).toMatch(/^question \d+, choice \d+.*: a value is NaN or infinite, first in /);
    expect(error.slice(error.indexOf('first in'))).toMatch(layer);
    expect(hint).toMatch(/weights/i);
    for (const kind of ['samples', 'results'] as const) expect(filesOf(out, kind)).toEqual([]);
  });

  thorough('name the question that they affect', async () => {
    // Row 90 of the embedding belongs to one letter, which occurs in one choice of one question. The head is a separate
    // matrix.
    const letter = 'Y';
    const id = 1 + letter.charCodeAt(0);
    const embedding = tensorsOf().find(({ name }) => name === 'model.embed_tokens.weight');
    if (embedding === undefined) throw new Error('no embedding');
    const weights = [...withValue(embedding.name, id * 64, NaN), { ...embedding, name: 'lm_head.weight' }];
    const model = writeCheckpoint({ config: { tie_word_embeddings: false }, weights: safetensorsFile(weights) });
    const out = temporaryFolder();
    const asked = questions(200).map((question, i) =>
      i === 150 ? { ...question, choices: [question.choices[0] ?? '', `a ${letter} b`], label: 0 } : question,
    );
    const { error } = failure(await tilewright(runArguments(model, writeData(asked), '--out', out)));
    expect(error).toMatch(/^question 150, choice 1: a value is NaN or infinite, first in /);
  });
});

describe.skipIf(!isBuilt)('questions from a pipe', () => {
  const model = writeCheckpoint();
  const path = writeData(three);
  const samplesOf = async (...prefix: string[]): Promise<string> => {
    const out = temporaryFolder();
    const args = runArguments(model, 'replaced', '--out', out);
    success(await start(args, prefix.length === 0 ? {} : { prefix }).ended);
    return textOf(out, 'samples');
  };

  const PIPES = [
    ['process substitution', `"$@" --data <(gzip -c '${path}' | gzip -dc)`],
    ['compressed process substitution', `"$@" --data <(gzip -c '${path}')`],
    ['the standard input', `"$@" --data - < '${path}'`],
    ['a pipe on the standard input', `gzip -c '${path}' | "$@" --data -`],
  ] as const;
  test.each(casesHere<(typeof PIPES)[number]>(PIPES, 1))('%s gives the answers of the file', async (_, script) => {
    const expected = await samplesOf('bash', '-c', `"$@" --data '${path}'`, 'bash');
    expect(await samplesOf('bash', '-c', script, 'bash')).toBe(expected);
  });

  thorough('are called stdin, whatever is wrong with them', async () => {
    const args = runArguments(model, '-');
    const { error } = failure(
      await start(args, { prefix: ['bash', '-c', `head -c 5000000 /dev/zero | tr '\\0' x | "$@"`, 'bash'] }).ended,
    );
    expect(error).toContain('stdin:1: the line is longer than 4 MiB');
  });

  thorough('end with the signal if the pipe says nothing', async () => {
    const fifo = join(temporaryFolder(), 'silent');
    execFileSync('mkfifo', [fifo]);
    const writer = openSync(fifo, 'r+');
    const running = start(runArguments(model, fifo));
    // Once it reads, it has long since said what is to happen at a signal.
    const files = `/proc/${running.process.pid!}/fd`;
    const isRead = (): boolean => readdirSync(files).some((name) => linkOf(join(files, name)) === fifo);
    while (running.process.exitCode === null && !isRead()) await sleep(50);
    running.process.kill('SIGTERM');
    const { status, stderr } = await running.ended;
    closeSync(writer);
    expect({ status, stderr }).toEqual({ status: 143, stderr: expect.stringContaining('stopped: ') as string });
  });
});
