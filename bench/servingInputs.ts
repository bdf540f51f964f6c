/** A checkpoint whose keys and values have a head for each head of queries: the same function, without grouping. */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { StepInputs } from '../driver/devices/sequenceTable.js';
import type { DeviceExecutor } from '../driver/executor.js';
import { CheckpointFolder, prepareFolder } from '../driver/quantize/tensors.js';
import { UserError } from '../errors.js';
import { STEP } from '../ir/function.js';
import { stepExtents, stepSize } from '../ir/stepping.js';
import type { Checkpoint } from '../models/checkpoint.js';
import type { WeightEntry } from '../models/model/tensors.js';
import { layOut, readSafetensorsHeader } from '../models/weights/safetensors.js';
import type { CallArrays, CallResult } from '../runtime/call.js';
import { at } from '../system/at.js';
import { isRecord } from '../system/json.js';
import { readRange, withFile } from '../system/read.js';

/** Tensors of projections to keys and values, and what of them they are. */
const PROJECTION = /\.[kv]_proj\.(weight|bias|qweight|qzeros|scales|weight_scale)$/;
/** Tensors whose outputs are not their rows: GPTQ's, of which columns are outputs or words of them. */
const BY_COLUMNS: ReadonlySet<string> = new Set(['qweight', 'qzeros', 'scales']);

/** How a tensor consists of heads: `lines` pieces one after another, each with as many bytes for every head. */
interface Heads {
  readonly lines: number;
  readonly headBytes: number;
}

function headsOf({ name, shape, byteLength }: WeightEntry, heads: number): Heads | undefined {
  const [, kind] = PROJECTION.exec(name) ?? [];
  if (kind === undefined) return undefined;
  const lines = BY_COLUMNS.has(kind) ? at(shape, 0) : 1;
  const headBytes = byteLength / lines / heads;
  if (!Number.isInteger(headBytes) || (BY_COLUMNS.has(kind) && at(shape, 1) % heads !== 0))
    throw new UserError(`${name}: [${shape.join(', ')}] does not consist of ${heads} heads`, 'use another checkpoint');
  return { lines, headBytes };
}

/** Each head of each line `times` times. */
export function repeatHeads(data: Uint8Array, { lines, headBytes }: Heads, heads: number, times: number): Uint8Array {
  const out = new Uint8Array(data.length * times);
  for (let piece = 0; piece < lines * heads; piece++)
    for (let i = 0; i < times; i++)
      out.set(data.subarray(piece * headBytes, (piece + 1) * headBytes), (piece * times + i) * headBytes);
  return out;
}

const repeatedShape = (entry: WeightEntry, times: number): readonly number[] => {
  const [, kind = ''] = PROJECTION.exec(entry.name) ?? [];
  const axis = BY_COLUMNS.has(kind) ? 1 : 0;
  return entry.shape.map((extent, i) => (i === axis ? extent * times : extent));
};

/**
 * Writes the checkpoint to the new folder `target`. Of one that is only a config.json, that. Throws UserError where its
 * heads cannot be told apart.
 */
export function writeRepeated(
  { configPath, files, tokenizerPath }: Pick<Checkpoint, 'configPath' | 'files' | 'tokenizerPath'>,
  target: string,
): void {
  const json: unknown = JSON.parse(readFileSync(configPath, 'utf8'));
  const given = isRecord(json) ? json : {};
  const all = Number(given['num_attention_heads']);
  const heads = Number(given['num_key_value_heads'] ?? all);
  if (!Number.isInteger(all / heads))
    throw new UserError(`${configPath}: ${all} heads of queries, ${heads} of keys`, 'use the checkpoint of a LLaMA');
  const text = JSON.stringify({ ...given, num_key_value_heads: all }, undefined, 2);
  if (files.length === 0) {
    mkdirSync(target, { recursive: true });
    writeFileSync(join(target, 'config.json'), text);
    return;
  }
  const times = all / heads;
  const headers = files.map((file) => readSafetensorsHeader(file));
  const stored = headers.flatMap(({ file, entries }) => [...entries].map((entry) => ({ file, entry })));
  const parts = new Map(stored.map((each) => [each.entry.name, { ...each, own: headsOf(each.entry, heads) }]));
  if (times > 1 && ![...parts.values()].some(({ own }) => own !== undefined))
    throw new UserError(`${dirname(configPath)}: no k_proj and v_proj to repeat`, 'use another checkpoint');
  const layout = layOut(
    stored.map(({ entry }) => ({
      ...entry,
      ...(parts.get(entry.name)!.own === undefined
        ? {}
        : { shape: repeatedShape(entry, times), byteLength: entry.byteLength * times }),
    })),
  );
  prepareFolder(target);
  const folder = new CheckpointFolder(target, layout);
  try {
    for (const place of layout.entries) {
      const { file, entry, own } = parts.get(place.name)!;
      if (own === undefined) folder.copy(place, file, entry);
      else
        folder.write(
          place,
          withFile(file, (fd) => repeatHeads(readRange(fd, entry.offset, entry.byteLength), own, heads, times)),
        );
    }
    folder.finish(new Map([['config.json', text]]), tokenizerPath === undefined ? [] : [tokenizerPath]);
  } finally {
    folder.abandon();
  }
}

/** What padding costs: every sequence reads as many keys as the longest may have, most of them not its own. */

/** Rows of states that were written, in the order in which they were, each once. */
export class WrittenRows {
  private readonly known = new Set<number>();
  private rows = new Int32Array(1024);

  get size(): number {
    return this.known.size;
  }

  add(rows: Int32Array): void {
    for (const row of rows) {
      if (row < 0 || this.known.has(row)) continue;
      if (this.size === this.rows.length) {
        const more = new Int32Array(2 * this.size);
        more.set(this.rows);
        this.rows = more;
      }
      this.rows[this.size] = row;
      this.known.add(row);
    }
  }

  /**
   * Writes `count` of them to `target` from `at` on: those from number `from` on, in a circle. There is one at least.
   */
  copy(target: Int32Array, at: number, count: number, from: number): void {
    const rows = this.rows.subarray(0, this.size);
    for (let done = 0; done < count;) {
      const start = (from + done) % rows.length;
      const piece = rows.subarray(start, start + count - done);
      target.set(piece, at + done);
      done += piece.length;
    }
  }
}

/**
 * `inputs` with the list of each path begun by rows of others, so that it has `length` entries for its last token, and
 * positions moved by as many. What is computed is another text's: only the work is meant.
 */
export function padded(inputs: StepInputs, length: number, others: WrittenRows): StepInputs {
  const { begin, position, key } = inputs;
  const last = new Map<number, number>();
  begin.forEach((at, i) => last.set(at, Math.max(last.get(at) ?? 0, position[i]!)));
  const places = new Map<number, { readonly begin: number; readonly added: number }>();
  const keys = new Int32Array([...last.values()].reduce((sum, longest) => sum + Math.max(length, longest + 1), 0));
  let filled = 0;
  for (const [start, longest] of last) {
    const added = Math.max(0, length - longest - 1);
    places.set(start, { begin: filled, added });
    others.copy(keys, filled, added, filled);
    keys.set(key.subarray(start, start + longest + 1), filled + added);
    filled += added + longest + 1;
  }
  return {
    ...inputs,
    begin: begin.map((at) => places.get(at)!.begin),
    position: position.map((at, i) => at + places.get(begin[i]!)!.added),
    key: keys,
  };
}

/** An executor whose steps have contexts padded to `length` keys: those of rows that were written before. */
export function paddedExecutor(executor: DeviceExecutor, length: number): DeviceExecutor {
  const written = new WrittenRows();
  const size = stepSize(executor.capacity[STEP] ?? {});
  // Every token may be a path of its own.
  const tokens = Math.min(size.tokens, Math.floor(size.keys / length));
  const pad = (given: CallArrays): CallArrays => {
    const inputs = given as CallArrays & StepInputs;
    written.add(inputs.slot);
    return { ...given, ...padded(inputs, length, written) };
  };
  const { callInTurn, ...rest } = executor;
  return {
    ...rest,
    capacity: { ...executor.capacity, [STEP]: { ...executor.capacity[STEP], ...stepExtents({ ...size, tokens }) } },
    call: (name, given, epoch) => executor.call(name, name === STEP ? pad(given) : given, epoch),
    ...(callInTurn === undefined
      ? {}
      : { callInTurn: (name, make) => callInTurn(name, name === STEP ? () => pad(make()) : make) }),
  };
}

/** An executor that notes how long each step was on the device, in milliseconds, from its first kernel to its last. */
export function timedExecutor(executor: DeviceExecutor, busy: number[]): DeviceExecutor {
  const note = (name: string, result: CallResult): CallResult => {
    const spans = result.spans ?? [];
    if (name === STEP && spans.length > 0)
      busy.push(Math.max(...spans.map(({ end }) => end)) - Math.min(...spans.map(({ begin }) => begin)));
    return result;
  };
  const inTurn = executor.callInTurn?.bind(executor);
  return {
    ...executor,
    capacity: executor.capacity,
    call: async (name, given, epoch) => note(name, await executor.call(name, given, epoch)),
    ...(inTurn === undefined
      ? {}
      : { callInTurn: async (name: string, make: () => CallArrays) => note(name, await inTurn(name, make)) }),
  };
}
