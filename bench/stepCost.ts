/**
 * `npm run bench:steps`: what a step costs the host, with a device that computes nothing: the scheduler and the loop in
 * this process, the message between processes, and the table that makes the inputs of the function `step`.
 */
import { deserialize, serialize } from 'node:v8';
import type { Command } from 'commander';
import { median } from '../autotune/records.js';
import { SequenceTable } from '../driver/devices/sequenceTable.js';
import type { DeviceModel, StepAnswer, StepMessage } from '../engine/device.js';
import { Engine } from '../engine/engine.js';
import { PAGE_TOKENS } from '../engine/pages.js';
import { MAX_KEYS } from '../ir/stepping.js';
import { RowList } from '../runtime/rowList.js';
import { benchCommand, list, runProgram, whole } from './command.js';

export interface StepCostOptions {
  readonly sequences: number;
  /** Ascending. */
  readonly tokens: readonly number[];
  readonly steps: number;
}

interface Measured {
  /** Microseconds of the loop, of both ways between processes, and of the table. */
  readonly loop: number[];
  readonly ways: number[];
  readonly table: number[];
  readonly messageBytes: number[];
  /** Entries of the list of keys, and those that a step has written. */
  readonly keys: number[];
  readonly written: number[];
}

/** What another process would get. */
function sent<T>(value: T): { readonly value: T; readonly bytes: number } {
  const bytes = serialize(value);
  return { value: deserialize(bytes) as T, bytes: bytes.length };
}

function answerTo({ row }: StepMessage): StepAnswer {
  const zeros = new Float32Array(row.length);
  const tokens = new Int32Array(row.length).fill(7);
  return { logProb: zeros, isArgmax: tokens, nextToken: tokens, nextTokenLogProb: zeros };
}

/** The last version of the list, and what was written for it. */
function writtenTo(key: Int32Array): number {
  const { changes, version } = RowList.of(key)!.history;
  let sum = 0;
  for (let i = 0; i < changes.length; i += 3) if (changes[i + 2] === version - 1) sum += changes[i + 1]! - changes[i]!;
  return sum;
}

/** Texts of `tokens` tokens that go on side by side for so many steps. */
async function measure(sequences: number, tokens: number, steps: number): Promise<Measured> {
  const measured: Measured = { loop: [], ways: [], table: [], messageBytes: [], keys: [], written: [] };
  const maxPages = sequences * Math.ceil((tokens + steps + 2) / PAGE_TOKENS);
  const table = new SequenceTable({ pages: maxPages, keys: MAX_KEYS, keptRows: 1024 });
  let ended = 0;
  const model: DeviceModel = {
    // All prompts are one step.
    limits: { tokens: MAX_KEYS, keys: MAX_KEYS, keptRows: 1024 },
    maxLength: tokens + steps + 2,
    ...{ maxPages, mappedPages: maxPages, piecePages: 1, pieceBytes: 0 },
    step: async (message) => {
      const began = performance.now();
      const { value, bytes } = sent(message);
      const arrived = performance.now();
      const { inputs } = table.apply(value);
      const made = performance.now();
      const answer = sent(answerTo(value)).value;
      const answered = performance.now();
      if (message.tokens.length === sequences && message.from.every((at) => at >= tokens)) {
        measured.loop.push(1000 * (began - ended));
        measured.ways.push(1000 * (arrived - began + answered - made));
        measured.table.push(1000 * (made - arrived));
        measured.messageBytes.push(bytes);
        measured.keys.push(inputs.key.length);
        measured.written.push(writtenTo(inputs.key));
      }
      ended = performance.now();
      return Promise.resolve(answer);
    },
    resize: (pages) => Promise.resolve(pages),
  };
  const engine = Engine.of(model);
  await Promise.all(
    Array.from({ length: sequences }, (_, i) =>
      engine.generate({ prompt: Array.from({ length: tokens }, (_each, at) => at + 7919 * i), maxNewTokens: steps }),
    ),
  );
  return measured;
}

async function main({ sequences, tokens, steps }: StepCostOptions): Promise<void> {
  for (const each of tokens) {
    const { loop, ways, table, messageBytes, keys, written } = await measure(sequences, each, steps);
    const us = (values: readonly number[]): string => `${median([...values]).toFixed(0)} µs`;
    console.log(
      `${sequences} sequences of ${each} tokens: the loop ${us(loop)} (${(median(loop) / sequences).toFixed(1)} a ` +
        `sequence), both ways between processes ${us(ways)}, the table ${us(table)}; ` +
        `${Math.max(...messageBytes)} bytes a message at most; ${median(keys)} keys, of which ${median(written)} ` +
        `are written, ${(written.reduce((sum, count) => sum + count, 0) / written.length).toFixed(0)} on average`,
    );
  }
}

export const stepCostCommand = (): Command =>
  benchCommand(
    'bench:steps',
    'What a step costs the host where sequences go on by a token each, with a device that computes nothing. Prints ' +
      'medians: the scheduler and its loop, packing and unpacking message and answer, and the table of sequences; ' +
      'the size of a message; and entries of the list of keys, and how many of them a step writes.',
  )
    .option('--sequences <n>', 'sequences side by side', whole(1, 4096), 256)
    .option('--tokens <list>', 'tokens of each when it begins', list(whole(1, 1 << 20)), [500, 2000, 8000])
    .option('--steps <n>', 'tokens that each goes on by', whole(2, 65_536), 200);

await runProgram(import.meta.url, stepCostCommand, main);
