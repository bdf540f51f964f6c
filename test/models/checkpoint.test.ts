import {
  cpSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { basename, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { checkTensors, openCheckpoint } from '../../models/checkpoint.js';
import { describeModel } from '../../models/config.js';
import { readSafetensorsHeader } from '../../models/weights/safetensors.js';
import {
  DEMO,
  type HeaderEntry,
  layOut,
  safetensors,
  SMALL_CONFIG,
  temporaryFolder,
  userError,
  writeJson,
} from './support.js';
import { torchFile } from './torch/writeTorchFile.js';

type Shapes = Map<string, readonly number[]>;
const small = describeModel(SMALL_CONFIG, 'config.json');
const shapes = (changes: Record<string, unknown> = {}): Shapes =>
  new Map(
    describeModel({ ...SMALL_CONFIG, ...changes }, 'config.json').tensors.map(({ name, shape }) => [name, shape]),
  );

function folder(
  tensors: Shapes = shapes(),
  changes: Record<string, unknown> = {},
  edit?: (header: Record<string, HeaderEntry>) => void,
): string {
  const dir = temporaryFolder();
  writeJson(dir, 'config.json', { ...SMALL_CONFIG, ...changes });
  const { header, size } = layOut(tensors);
  edit?.(header);
  writeFileSync(join(dir, 'model.safetensors'), safetensors(header, size));
  return dir;
}
const STORAGES: Readonly<Record<string, string>> = { F32: 'FloatStorage', F16: 'HalfStorage', BF16: 'BFloat16Storage' };
/** Turns the safetensors files of a folder into those of torch.save. */
function asTorchFiles(dir: string): void {
  for (const name of readdirSync(dir)) {
    const path = join(dir, name);
    if (name.endsWith('.safetensors')) {
      const bytes = readFileSync(path);
      const { entries } = readSafetensorsHeader(path);
      const tensors = entries.map(
        ({ name: tensor, dtype, shape }, i) => [tensor, { storage: `${i}`, type: STORAGES[dtype]!, shape }] as const,
      );
      const storages = entries.map(({ offset, byteLength }) => bytes.subarray(offset, offset + byteLength));
      const target = name === 'model.safetensors' ? 'pytorch_model.bin' : name.replace('.safetensors', '.bin');
      writeFileSync(join(dir, target), torchFile(tensors, Object.fromEntries(storages.entries())));
      rmSync(path);
    } else if (name === 'model.safetensors.index.json') {
      const text = readFileSync(path, 'utf8').replaceAll('.safetensors', '.bin');
      writeFileSync(join(dir, 'pytorch_model.bin.index.json'), text);
      rmSync(path);
    }
  }
}
const refusal = (dir: string): string => userError(() => openCheckpoint(dir)).message;

/** The small model in two shards, with layers 0 and 1 in the first. `edit` may damage the index. */
function sharded(edit?: (map: Record<string, string>) => void): string {
  const dir = temporaryFolder();
  writeJson(dir, 'config.json', SMALL_CONFIG);
  const map: Record<string, string> = {};
  for (const [i, first] of [true, false].entries()) {
    const file = `model-0000${i + 1}-of-00002.safetensors`;
    const part = [...shapes()].filter(([name]) => /embed|layers\.[01]/.test(name) === first);
    const { header, size } = layOut(part);
    writeFileSync(join(dir, file), safetensors(header, size));
    for (const [name] of part) map[name] = file;
  }
  edit?.(map);
  writeJson(dir, 'model.safetensors.index.json', { metadata: { total_size: 1 }, weight_map: map });
  return dir;
}

describe('openCheckpoint', () => {
  it('reads the bundled model', () => {
    const checkpoint = openCheckpoint(DEMO);
    expect(checkpoint.tensors.size).toBe(2 + 8 * 9);
    expect(checkpoint.files).toEqual([join(DEMO, 'model.safetensors')]);
    expect(checkpoint.tokenizerPath).toBe(join(DEMO, 'tokenizer.json'));
    const parameters = [...checkpoint.tensors.values()].reduce(
      (sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1),
      0,
    );
    expect(parameters).toBe(7_475_456);
    const norm = checkpoint.tensors.get('model.norm.weight');
    if (norm?.kind !== 'file') throw new Error('expected a tensor in a file');
    expect(norm).toMatchObject({ format: 'bf16', shape: [256], byteLength: 512 });
    // A trained norm weight is close to 1: read one as bf16 from where the location points.
    const bytes = readFileSync(norm.file).subarray(norm.offset, norm.offset + 4);
    const first = Buffer.from([0, 0, bytes[0] ?? 0, bytes[1] ?? 0]).readFloatLE();
    expect(first).toBeGreaterThan(0.05);
    expect(first).toBeLessThan(20);
  });

  it('accepts a mixture of element types, and rotary tables that nothing reads', () => {
    const extra = new Map([...shapes(), ['model.layers.0.self_attn.rotary_emb.inv_freq', [4]] as const]);
    const dir = folder(extra, {}, (header) => {
      const table = header['model.layers.0.self_attn.rotary_emb.inv_freq'];
      if (table !== undefined) Object.assign(table, { dtype: 'I16' });
      Object.assign(header['model.norm.weight'] ?? {}, { dtype: 'F16' });
    });
    const { tensors } = openCheckpoint(dir);
    expect([...tensors.keys()]).toEqual([...shapes().keys()]);
    expect(tensors.get('model.norm.weight')?.format).toBe('f16');
    expect(tensors.get('model.embed_tokens.weight')?.format).toBe('bf16');
  });

  it('uses the element type of the weights if the configuration names none', () => {
    expect(openCheckpoint(folder(shapes(), { torch_dtype: null })).config.dtype).toBe('bf16');
    expect(openCheckpoint(folder(shapes(), { torch_dtype: 'float16' })).config.dtype).toBe('f16');
  });

  it('recognizes tied and untied heads', () => {
    const untied = shapes({ tie_word_embeddings: false });
    expect(untied.get('lm_head.weight')).toEqual([10, 8]);
    expect(openCheckpoint(folder(untied, { tie_word_embeddings: false })).tensors.has('lm_head.weight')).toBe(true);
    expect(openCheckpoint(folder(untied)).tensors.has('lm_head.weight')).toBe(false);
    expect(refusal(folder(shapes(), { tie_word_embeddings: false }))).toContain(
      'lm_head.weight: missing (a model whose head is tied says "tie_word_embeddings": true in config.json)',
    );
  });

  it('says what a folder contains if it contains no weights', () => {
    const dir = folder();
    renameSync(join(dir, 'model.safetensors'), join(dir, 'model.pt'));
    const error = userError(() => openCheckpoint(dir));
    expect(error.message).toBe(
      `${dir}: found no weights: model.safetensors (or model.safetensors.index.json and its shards), ` +
        'pytorch_model.bin (or pytorch_model.bin.index.json and its shards), consolidated.00.pth, a GGUF file; ' +
        '"model.pt" cannot be read',
    );
    expect(error.hint).toContain('safetensors copy');
    rmSync(join(dir, 'model.pt'));
    expect(userError(() => openCheckpoint(dir)).hint).toContain('hf download');
    expect(refusal('/nowhere')).toContain('/nowhere');
  });

  it('reads the same tensors from files of torch.save, one or several', () => {
    const [whole, two] = [folder(), sharded()];
    const bytesOf = (path: string): ReadonlyMap<string, Buffer> =>
      new Map(
        [...openCheckpoint(path).tensors].map(([name, tensor]) => {
          if (tensor.kind !== 'file') throw new Error(`${name} is in no file`);
          return [name, readFileSync(tensor.file).subarray(tensor.offset, tensor.offset + tensor.byteLength)];
        }),
      );
    const wanted = [bytesOf(whole), bytesOf(two)];
    asTorchFiles(whole);
    asTorchFiles(two);
    expect([bytesOf(whole), bytesOf(two)]).toEqual(wanted);
    expect(openCheckpoint(two).files.map((path) => basename(path))).toEqual([
      'model-00001-of-00002.bin',
      'model-00002-of-00002.bin',
    ]);
  });

  it('names the architecture before it mentions weights', () => {
    const dir = folder(new Map(), { model_type: 'gptj', architectures: ['GPTJForCausalLM'] });
    expect(refusal(dir)).toContain('architecture "GPTJForCausalLM" is not supported');
  });

  it('names element types that weights cannot have', () => {
    const dir = folder(shapes(), {}, (header) => {
      for (const entry of Object.values(header)) entry.dtype = 'I16';
    });
    expect(refusal(dir)).toContain(
      'model.embed_tokens.weight: element type I16 is not supported; supported: F32, F16, BF16',
    );
  });
});

describe('shards', () => {
  it('are read as one checkpoint', () => {
    const dir = sharded();
    const { tensors, files } = openCheckpoint(dir);
    expect(files).toEqual([1, 2].map((i) => join(dir, `model-0000${i}-of-00002.safetensors`)));
    expect([...tensors.keys()]).toEqual([...shapes().keys()]);
    const file = (name: string): unknown => {
      const location = tensors.get(name);
      return location?.kind === 'file' ? location.file : undefined;
    };
    expect(file('model.layers.1.mlp.up_proj.weight')).toBe(files[0]);
    expect(file('model.layers.2.mlp.up_proj.weight')).toBe(files[1]);
  });

  it('may be links out of the folder, as in download caches', () => {
    const dir = sharded();
    const elsewhere = temporaryFolder();
    const name = 'model-00001-of-00002.safetensors';
    renameSync(join(dir, name), join(elsewhere, 'blob'));
    symlinkSync(join(elsewhere, 'blob'), join(dir, name));
    expect(openCheckpoint(dir).tensors.size).toBe(shapes().size);
  });

  it('are named if they are missing', () => {
    const dir = sharded();
    rmSync(join(dir, 'model-00002-of-00002.safetensors'));
    expect(refusal(dir)).toBe(
      `${dir}: 1 of the 2 files that model.safetensors.index.json names is missing: ` +
        'model-00002-of-00002.safetensors (10 tensors)',
    );
  });

  it('must hold what the index says', () => {
    expect(
      refusal(
        sharded((map) => {
          map['extra.weight'] = 'model-00001-of-00002.safetensors';
        }),
      ),
    ).toContain('tensor "extra.weight", which model.safetensors.index.json places there, is not in it');
    expect(
      refusal(
        sharded((map) => {
          delete map['model.norm.weight'];
        }),
      ),
    ).toContain('holds tensor "model.norm.weight", which model.safetensors.index.json does not name');
    expect(
      refusal(
        sharded((map) => {
          map['model.norm.weight'] = 'model-00001-of-00002.safetensors';
        }),
      ),
    ).toMatch(/model\.norm\.weight/);
  });

  it('are mentioned if the index leaves them out', () => {
    const dir = sharded((map) => {
      for (const name of Object.keys(map)) if (/layers\.2|model\.norm/.test(name)) delete map[name];
    });
    expect(refusal(dir)).toContain(
      'in the folder, but not named by model.safetensors.index.json: "model-00002-of-00002.safetensors"',
    );
    expect(refusal(dir)).toContain('model.layers.{2}.{input_layernorm.weight, ');
  });

  it.each([
    '../model.safetensors',
    '/etc/x.safetensors',
    'a/../../b.safetensors',
    'sub/b.safetensors',
    'x\\y.safetensors',
    '.safetensors',
    'model.bin',
    'a\0.safetensors',
    3,
    null,
  ])('never lead out of the folder: %j', (name) => {
    const dir = sharded((map) => {
      Object.assign(map, { 'model.norm.weight': name });
    });
    expect(refusal(dir)).toContain('is not the name of a .safetensors file in this folder');
  });

  it.each([
    ['{"weight_map": []}', 'weight_map: expected an object'],
    ['{"weight_map": {}}', 'names 0 files'],
    ['{"weight_map": {"a": "x.safetensors", "a": "y.safetensors"}}', 'the key "a" occurs twice'],
    ['{', 'not valid JSON'],
  ])('need a sound index: %s', (text, expected) => {
    const dir = sharded();
    writeFileSync(join(dir, 'model.safetensors.index.json'), text);
    expect(refusal(dir)).toContain(expected);
  });
});

describe('checkTensors', () => {
  const found = (layers: number, edit: (name: string, shape: readonly number[]) => readonly number[] | undefined) => {
    const large = describeModel({ ...SMALL_CONFIG, num_hidden_layers: layers }, 'config.json');
    const all = large.tensors.flatMap(({ name, shape }) => {
      const edited = edit(name, shape);
      return edited === undefined ? [] : [[name, { dtype: 'BF16', shape: edited }] as const];
    });
    return checkTensors(large, new Map(all));
  };

  it('accepts a sound checkpoint', () => {
    expect(found(3, (_, shape) => shape)).toEqual([]);
  });

  it('groups by pattern', () => {
    expect(found(32, (name, shape) => (name.includes('q_proj') ? undefined : shape))).toEqual([
      'model.layers.{0–31}.self_attn.q_proj.weight: missing',
    ]);
    expect(found(32, (name, shape) => (name.includes('up_proj') ? [...shape].reverse() : shape))).toEqual([
      'model.layers.{0–31}.mlp.up_proj.weight: shape [8, 12], but config.json requires [12, 8]',
    ]);
    expect(found(12, (name, shape) => (/layers\.([0-2]|7|9|1\d)\..*o_proj/.test(name) ? undefined : shape))).toEqual([
      'model.layers.{0–2,7,9–11}.self_attn.o_proj.weight: missing',
    ]);
    expect(found(100, (name, shape) => (/layers\.(50|51)\./.test(name) ? undefined : shape))).toEqual([
      'model.layers.{50–51}.{input_layernorm.weight, self_attn.q_proj.weight, ' +
        'self_attn.k_proj.weight, … 9 in all}: missing',
    ]);
  });

  it('stays short whatever is wrong', () => {
    expect(found(1024, () => undefined)).toHaveLength(3);
    let turn = 0;
    expect(found(1024, (_, shape) => [...shape, ++turn]).length).toBeLessThanOrEqual(11);
    const strangers = new Map(
      Array.from({ length: 5000 }, (_, i) => [`stranger.${i}`, { dtype: 'F32', shape: [1] }] as const),
    );
    expect(checkTensors(small, strangers).length).toBeLessThanOrEqual(11);
  });

  it('does not ignore a bias, which would change every score', () => {
    const dir = folder(
      new Map([...shapes(), ...[0, 1, 2].map((i) => [`model.layers.${i}.self_attn.q_proj.bias`, [8]] as const)]),
    );
    expect(refusal(dir)).toContain('model.layers.{0–2}.self_attn.q_proj.bias: not a tensor of this model');
  });

  it('says by what name it took the model for this one', () => {
    const dir = folder(new Map(), { architectures: ['LlamaModel'] });
    expect(refusal(dir)).toMatch(/missing\n.*: architecture "LlamaModel" is not known; read as LlamaForCausalLM/);
  });

  it('prints no control characters from a name', () => {
    expect(refusal(folder(new Map([...shapes(), ['\u001b[2J', [1]] as const])))).not.toContain('\u001b');
  });
});

describe('fingerprint', () => {
  it('depends on the contents: a copy has the same, a changed weight or setting another', () => {
    const dir = temporaryFolder();
    const copy = join(dir, 'copy');
    mkdirSync(copy);
    const original = folder();
    cpSync(original, copy, { recursive: true });
    utimesSync(join(copy, 'model.safetensors'), 1, 1);
    const before = openCheckpoint(original).fingerprint();
    expect(before).toMatch(/^[0-9a-f]{64}$/);
    expect(openCheckpoint(copy).fingerprint()).toBe(before);
    const bytes = readFileSync(join(copy, 'model.safetensors'));
    bytes[bytes.length - 1] = 0x3f;
    writeFileSync(join(copy, 'model.safetensors'), bytes);
    expect(openCheckpoint(copy).fingerprint()).not.toBe(before);
    writeJson(original, 'config.json', { ...SMALL_CONFIG, rms_norm_eps: 1e-6 });
    expect(openCheckpoint(original).fingerprint()).not.toBe(before);
  });
});
