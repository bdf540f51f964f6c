/**
 * The checkpoint maker: values, layout, arguments, what it leaves behind, and that the real command scores what it
 * wrote.
 */
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { checkpointCommand, type CheckpointOptions, makeCheckpoint } from '../../bench/checkpoint.js';
import { blocksOf, layOut } from '../../bench/checkpointFiles.js';
import { BLOCK_BYTES, blockKey, fillBlock, valueTable } from '../../bench/checkpointValues.js';
import { parseOptions } from '../../bench/command.js';
import { UserError } from '../../errors.js';
import { openCheckpoint } from '../../models/checkpoint.js';
import { describeModel } from '../../models/config.js';
import { describeTokenizer } from '../../models/tokenizer/files.js';
import { isBuilt, ROOT, runArguments, success, tilewright } from '../e2e/support.js';
import { toBf16, toF16 } from '../runtime/packReference.js';

const folders: string[] = [];
afterAll(() => {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
});
function folder(): string {
  const made = mkdtempSync(join(tmpdir(), 'tilewright-make-'));
  folders.push(made);
  return made;
}

const DEMO = join(ROOT, 'models', 'demo');
const { vocabSize } = describeTokenizer(DEMO);
const SMALL = {
  architectures: ['LlamaForCausalLM'],
  model_type: 'llama',
  torch_dtype: 'bfloat16',
  bos_token_id: 1,
  eos_token_id: 2,
  hidden_size: 64,
  intermediate_size: 96,
  num_hidden_layers: 3,
  num_attention_heads: 2,
  num_key_value_heads: 1,
  vocab_size: vocabSize,
  max_position_embeddings: 512,
};

function modelFolder(change: object = {}): string {
  const made = folder();
  writeFileSync(join(made, 'config.json'), JSON.stringify({ ...SMALL, ...change }));
  return made;
}

const options = (change: Partial<CheckpointOptions> = {}): CheckpointOptions => ({
  model: modelFolder(),
  out: join(folder(), 'made'),
  seed: 1,
  tokenizer: DEMO,
  shard: 300_000,
  threads: 1,
  ...change,
});

const filesOf = (path: string): string[] => readdirSync(path).sort();
/** A hash of each weight file. */
const weightsOf = (path: string): string[] =>
  filesOf(path)
    .filter((name) => name.endsWith('.safetensors'))
    .map((name) =>
      createHash('sha256')
        .update(readFileSync(join(path, name)))
        .digest('hex'),
    );

describe('values', () => {
  it.each(['bf16', 'f16'] as const)('of a table of %s are normal, and are rounded as that type rounds', (dtype) => {
    const decode = (bits: number): number => {
      if (dtype === 'bf16') return new Float32Array(Uint32Array.of(bits << 16).buffer)[0]!;
      const [exponent, digits] = [(bits >> 10) & 31, bits & 1023];
      return (bits & 0x8000 ? -1 : 1) * (exponent === 0 ? digits * 2 ** -24 : (1024 + digits) * 2 ** (exponent - 25));
    };
    const table = valueTable(dtype, 0.5, 0.02);
    const values = [...table].map(decode);
    expect(values.map(dtype === 'bf16' ? toBf16 : toF16)).toEqual([...table]);
    const mean = values.reduce((a, b) => a + b) / values.length;
    const moment = (power: number): number =>
      values.reduce((sum, v) => sum + ((v - mean) / 0.02) ** power, 0) / values.length;
    expect(mean).toBeCloseTo(0.5, 4);
    expect(moment(2)).toBeCloseTo(1, 1);
    expect(Math.abs(moment(3))).toBeLessThan(0.02);
    expect(moment(4)).toBeGreaterThan(2.9);
    expect(moment(4)).toBeLessThan(3.1);
  });

  it('around zero include subnormal halves', () => {
    const bits = valueTable('f16', 0, 1e-5);
    expect([...bits].some((b) => (b & 0x7c00) === 0 && (b & 0x3ff) !== 0)).toBe(true);
    // A tenth of the standard deviation is 1e-6: 17 steps of 2^-24.
    const nearest = [...bits].filter((b) => (b & 0x8000) === 0).sort((a, b) => a - b)[Math.floor(bits.length * 0.04)]!;
    expect(nearest).toBeGreaterThan(14);
    expect(nearest).toBeLessThan(20);
  });

  it('draw every entry of the table about equally often, in another sequence for each block, tensor and seed', () => {
    const identity = Uint16Array.from({ length: 1 << 16 }, (_, i) => i);
    const draw = (seed: number, tensor: string, block: number): Uint32Array => {
      const words = new Uint32Array(1 << 17);
      fillBlock(words, identity, blockKey(seed, tensor, block));
      return words;
    };
    const first = draw(1, 'a', 0);
    const counts = new Uint32Array(1 << 8);
    for (const half of new Uint16Array(first.buffer)) counts[half >> 8]!++;
    expect(Math.min(...counts)).toBeGreaterThan(900); // 1024 expected, standard deviation 32
    expect(Math.max(...counts)).toBeLessThan(1150);
    expect(Buffer.from(draw(1, 'a', 0).buffer).equals(Buffer.from(first.buffer))).toBe(true);
    const known = new Set(first);
    for (const other of [draw(2, 'a', 0), draw(1, 'b', 0), draw(1, 'a', 1)]) {
      expect(other.filter((word, i) => word === first[i]).length).toBeLessThan(3);
      // If one sequence were the other one shifted, the two would share most of their words.
      expect(other.filter((word) => known.has(word)).length).toBeLessThan(50);
    }
  });
});

describe('layout', () => {
  it('of LLaMA-33B has the size and the files of the real one', () => {
    const path = join(ROOT, 'bench', 'models', 'llama-33b', 'config.json');
    const made = layOut(describeModel(JSON.parse(readFileSync(path, 'utf8')), path), 'bf16', 10e9);
    expect(made.bytes).toBeGreaterThan(65.05e9);
    expect(made.bytes).toBeLessThan(65.06e9);
    expect(made.files.map(({ name }) => name)).toEqual(
      [1, 2, 3, 4, 5, 6, 7].map((i) => `model-0000${i}-of-00007.safetensors`),
    );
    const blocks = blocksOf(made);
    expect(blocks.reduce((sum, { bytes }) => sum + bytes, 0)).toBe(
      made.bytes - made.files.reduce((sum, { header }) => sum + header.length, 0),
    );
    expect(new Set(blocks.slice(0, 7).map(({ file }) => file)).size).toBe(7);
    expect(Math.max(...blocks.map(({ bytes }) => bytes))).toBe(BLOCK_BYTES);
  });
});

describe('a made checkpoint', () => {
  it('is opened as any other: files with an index, configuration, tokenizer', async () => {
    const wanted = options();
    const planned: number[] = [],
      progress: number[] = [];
    const made = await makeCheckpoint(wanted, {
      onPlan: ({ files }) => planned.push(files.length),
      onProgress: (bytes) => progress.push(bytes),
    });
    expect(planned).toEqual([made.files.length]);
    expect(made.files.length).toBeGreaterThan(2);
    expect(progress.at(-1)).toBe(made.bytes - made.files.reduce((sum, { header }) => sum + header.length, 0));
    const opened = openCheckpoint(wanted.out);
    expect(opened.files).toHaveLength(made.files.length);
    expect(opened.config).toMatchObject({ layers: 3, hiddenSize: 64, dtype: 'bf16' });
    expect(opened.tokenizerPath).toBe(join(wanted.out, 'tokenizer.json'));
    const norm = opened.tensors.get('model.norm.weight')!;
    expect(norm.kind).toBe('file');
    if (norm.kind !== 'file') return;
    const bits = readFileSync(norm.file).subarray(norm.offset, norm.offset + norm.byteLength);
    const values = Array.from(
      { length: 64 },
      (_, i) => new Float32Array(Uint32Array.of(bits.readUInt16LE(2 * i) << 16).buffer)[0]!,
    );
    expect(values.every((value) => value > 0.4 && value < 1.6)).toBe(true);
    expect(new Set(values).size).toBeGreaterThan(20);
  });

  it('has the same bytes for the same seed only, and other layers and types on request', async () => {
    const [a, b, c, d] = [options(), options(), options({ seed: 2 }), options({ dtype: 'f16', layers: 1, shard: 1e9 })];
    for (const each of [a, b, c, d]) await makeCheckpoint(each);
    expect(weightsOf(a.out)).toEqual(weightsOf(b.out));
    expect(weightsOf(a.out)).not.toEqual(weightsOf(c.out));
    expect(filesOf(d.out)).toEqual(['config.json', 'model.safetensors', 'tokenizer.json']);
    expect(openCheckpoint(d.out).config).toMatchObject({ layers: 1, dtype: 'f16' });
  });

  it('is not begun if its place, free space, types, tokenizer or number of files will not do', async () => {
    const taken = folder();
    writeFileSync(join(taken, 'kept'), 'mine');
    const file = join(taken, 'kept');
    const refused = async (change: Partial<CheckpointOptions>, pattern: RegExp): Promise<void> => {
      await expect(makeCheckpoint(options(change))).rejects.toSatisfy(
        (error: unknown) => error instanceof UserError && error.hint !== undefined && pattern.test(error.message),
      );
    };
    await refused({ out: taken }, /not empty/);
    await refused({ out: file }, /not a folder/);
    await refused(
      {
        model: modelFolder({ hidden_size: 65536, head_dim: 128, intermediate_size: 524288, num_hidden_layers: 1000 }),
        shard: 1e12,
      },
      /the disk has/,
    );
    await refused({ model: modelFolder({ torch_dtype: 'float32' }) }, /16-bit/);
    await refused({ model: modelFolder({ vocab_size: 16 }) }, /16 embeddings/);
    await refused({ model: folder() }, /config\.json: no such file/);
    await refused({ tokenizer: folder() }, /neither tokenizer/);
    await refused({ layers: 1000, shard: 1 }, /files/);
    expect(filesOf(taken)).toEqual(['kept']);
  });

  it('leaves nothing behind if it is stopped', async () => {
    const parent = folder();
    const stop = new AbortController();
    const wanted = options({
      out: join(parent, 'made'),
      model: modelFolder({ hidden_size: 2048, intermediate_size: 4096 }),
    });
    await expect(
      makeCheckpoint(wanted, { signal: stop.signal, onPlan: () => setTimeout(() => stop.abort(), 1) }),
    ).rejects.toThrow(/abort/i);
    expect(filesOf(parent)).toEqual([]);
  });
});

describe('arguments', () => {
  it.each([
    [[]],
    [['--out', '']],
    [['--out', 'x', '--seed', '-1']],
    [['--out', 'x', '--seed', '1e3']],
    [['--out', 'x', '--shard', '10']],
    [['--out', 'x', '--shard', '0GB']],
    [['--out', 'x', '--layers', '0']],
    [['--out', 'x', '--threads', '0']],
    [['--out', 'x', '--dtype', 'f32']],
    [['--out', 'x', '--model', 'no/such/model']],
    [['--out', 'x', '--tokenizer', '/no/such']],
    [['--out', 'x', '--fast']],
    [['x']],
  ])('%j are refused', (args) => {
    expect(() => parseOptions(checkpointCommand(), args)).toThrow(UserError);
  });
});

describe.skipIf(!isBuilt)('the command', () => {
  const MAKE = join(ROOT, 'dist', 'bench', 'checkpoint.js');
  const make = (
    args: readonly string[],
    onStart?: (pid: number) => void,
  ): Promise<{ status: number | null; stdout: string; stderr: string }> =>
    new Promise((resolve) => {
      const child = spawn(process.execPath, [MAKE, ...args]);
      let [stdout, stderr] = ['', ''];
      child.stdout.on('data', (text: Buffer) => {
        stdout += text.toString();
        if (/seed/.test(stdout)) onStart?.(child.pid!);
      });
      child.stderr.on('data', (text: Buffer) => {
        stderr += text.toString();
      });
      child.on('close', (status) => resolve({ status, stdout, stderr }));
    });

  it('writes the same bytes with several threads as with one, and the real command scores them', async () => {
    const wanted = options({ model: modelFolder({ hidden_size: 128, intermediate_size: 512 }), shard: 1e6 });
    await makeCheckpoint(wanted);
    const out = join(folder(), 'made');
    const made = await make([
      '--model',
      wanted.model,
      '--out',
      out,
      '--tokenizer',
      DEMO,
      '--shard',
      '1MB',
      '--threads',
      '3',
    ]);
    // On a slow machine it reports its progress.
    expect(made.stderr).toMatch(/^([\d.]+ of [\d.]+ GB.*\n)*$/);
    expect(made.status).toBe(0);
    expect(made.stdout).toMatch(/GB in \d+ files written in [\d.]+ s, [\d.]+ GB\/s/);
    expect(weightsOf(out).length).toBeGreaterThan(2);
    expect(weightsOf(out)).toEqual(weightsOf(wanted.out));
    const { stdout } = success(
      await tilewright([
        ...runArguments(out, join(ROOT, 'examples', 'everyday.jsonl'), '--limit', '8'),
        '--task',
        'hellaswag',
      ]),
    );
    expect(stdout).toMatch(/8 questions in/);
  });

  it('says in two lines what is wrong, and removes what it began if it is stopped', async () => {
    const refused = await make(['--out', join(folder(), 'x'), '--model', '/no/such']);
    expect(refused.status).toBe(1);
    expect(refused.stderr).toMatch(/^error: .+\nhint: .+\n$/);
    const parent = folder();
    mkdirSync(join(parent, 'y'));
    const model = modelFolder({
      hidden_size: 4096,
      intermediate_size: 8192,
      num_hidden_layers: 8,
      num_attention_heads: 32,
    });
    const stopped = await make(['--out', join(parent, 'y'), '--model', model, '--tokenizer', DEMO], (pid) =>
      process.kill(pid, 'SIGINT'),
    );
    expect(stopped.stderr).toMatch(/stopped/);
    expect(stopped.status).toBe(130);
    expect(readdirSync(parent)).toEqual(['y']);
    expect(existsSync(join(parent, 'y', 'config.json'))).toBe(false);
  });
});
