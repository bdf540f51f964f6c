/** Writes files as torch.save does, and damaged ones. */
import { crc32 } from 'node:zlib';

export interface WrittenTensor {
  readonly storage: string;
  readonly type: string;
  readonly offset?: number;
  readonly shape: readonly number[];
  readonly strides?: readonly number[];
}

/** Opcodes of a pickle, by what they push. */
export const pickled = {
  text: (text: string): Buffer => {
    const bytes = Buffer.from(text);
    const length = Buffer.alloc(5);
    length[0] = 0x58;
    length.writeUInt32LE(bytes.length, 1);
    return Buffer.concat([length, bytes]);
  },
  whole: (value: number): Buffer => {
    const bytes = Buffer.alloc(5);
    bytes[0] = 0x4a;
    bytes.writeInt32LE(value, 1);
    return bytes;
  },
  global: (module: string, name: string): Buffer => Buffer.from(`c${module}\n${name}\n`),
  tuple: (...items: readonly Buffer[]): Buffer => Buffer.concat([Buffer.from('('), ...items, Buffer.from('t')]),
  call: (callee: Buffer, args: Buffer): Buffer => Buffer.concat([callee, args, Buffer.from('R')]),
  none: Buffer.from('N'),
};
const { call, global, none, text, tuple, whole } = pickled;

const rowMajor = (shape: readonly number[]): readonly number[] =>
  shape.map((_, i) => shape.slice(i + 1).reduce((product, extent) => product * extent, 1));

const orderedDict = (): Buffer => call(global('collections', 'OrderedDict'), Buffer.from(')'));

export function pickledTensor({ storage, type, offset = 0, shape, strides }: WrittenTensor, count: number): Buffer {
  const id = tuple(text('storage'), global('torch', type), text(storage), text('cpu'), whole(count));
  const args = tuple(
    Buffer.concat([id, Buffer.from('Q')]),
    whole(offset),
    tuple(...shape.map(whole)),
    tuple(...(strides ?? rowMajor(shape)).map(whole)),
    Buffer.from([0x89]),
    orderedDict(),
  );
  return call(global('torch._utils', '_rebuild_tensor_v2'), args);
}

/** A state_dict of these values, with the attribute _metadata that modules leave. */
export const stateDict = (values: readonly (readonly [name: string, value: Buffer])[]): Buffer =>
  Buffer.concat([
    Buffer.from([0x80, 2]),
    orderedDict(),
    Buffer.from('q\0('),
    ...values.flatMap(([name, value]) => [text(name), value]),
    Buffer.from('u'),
    Buffer.concat([Buffer.from('}'), text('_metadata'), orderedDict(), Buffer.from('s')]),
    Buffer.from('b.'),
  ]);

export interface ZipOptions {
  readonly method?: number;
  readonly has64Bits?: boolean;
}

/** A zip archive without compression, whose contents begin at multiples of 64 bytes. */
export function zip(
  files: readonly (readonly [name: string, content: Buffer])[],
  { method = 0, has64Bits = false }: ZipOptions = {},
): Buffer {
  const parts: Buffer[] = [];
  const directory: Buffer[] = [];
  let at = 0;
  const put = (bytes: Buffer): void => {
    parts.push(bytes);
    at += bytes.length;
  };
  for (const [name, content] of files) {
    const start = at;
    const padding = Buffer.alloc((64 - ((at + 34 + name.length) % 64)) % 64);
    const local = Buffer.alloc(30);
    local.writeUInt32LE(0x04034b50, 0);
    local.writeUInt16LE(method, 8);
    local.writeUInt32LE(crc32(content), 14);
    local.writeUInt32LE(content.length, 18);
    local.writeUInt32LE(content.length, 22);
    local.writeUInt16LE(name.length, 26);
    local.writeUInt16LE(4 + padding.length, 28);
    const extra = Buffer.alloc(4);
    extra.write('FB');
    extra.writeUInt16LE(padding.length, 2);
    put(Buffer.concat([local, Buffer.from(name), extra, padding]));
    put(content);
    const wide = Buffer.alloc(has64Bits ? 28 : 0);
    if (has64Bits) {
      wide.writeUInt16LE(1, 0);
      wide.writeUInt16LE(24, 2);
      [content.length, content.length, start].forEach((value, i) => wide.writeBigUInt64LE(BigInt(value), 4 + 8 * i));
    }
    const record = Buffer.alloc(46);
    record.writeUInt32LE(0x02014b50, 0);
    record.writeUInt16LE(method, 10);
    record.writeUInt32LE(has64Bits ? 0xffff_ffff : content.length, 20);
    record.writeUInt32LE(has64Bits ? 0xffff_ffff : content.length, 24);
    record.writeUInt16LE(name.length, 28);
    record.writeUInt16LE(wide.length, 30);
    record.writeUInt32LE(has64Bits ? 0xffff_ffff : start, 42);
    directory.push(record, Buffer.from(name), wide);
  }
  const start = at;
  put(Buffer.concat(directory));
  const size = at - start;
  if (has64Bits) {
    const end = Buffer.alloc(56);
    const place = at;
    end.writeUInt32LE(0x06064b50, 0);
    [files.length, files.length, size, start].forEach((value, i) => end.writeBigUInt64LE(BigInt(value), 24 + 8 * i));
    put(end);
    const locator = Buffer.alloc(20);
    locator.writeUInt32LE(0x07064b50, 0);
    locator.writeBigUInt64LE(BigInt(place), 8);
    put(locator);
  }
  const end = Buffer.alloc(22);
  end.writeUInt32LE(0x06054b50, 0);
  end.writeUInt16LE(has64Bits ? 0xffff : files.length, 10);
  end.writeUInt32LE(has64Bits ? 0xffff_ffff : size, 12);
  end.writeUInt32LE(has64Bits ? 0xffff_ffff : start, 16);
  put(end);
  return Buffer.concat(parts);
}

const WIDTH: Readonly<Record<string, number>> = { HalfStorage: 2, BFloat16Storage: 2, FloatStorage: 4 };

/** A file of torch.save with these tensors; `storages` has the bytes of each storage. */
export function torchFile(
  tensors: readonly (readonly [name: string, tensor: WrittenTensor])[],
  storages: Readonly<Record<string, Buffer>>,
  options: ZipOptions & { readonly more?: readonly (readonly [string, Buffer])[]; readonly pickle?: Buffer } = {},
): Buffer {
  const values = tensors.map(([name, tensor]) => {
    const bytes = storages[tensor.storage]?.length ?? 0;
    return [name, pickledTensor(tensor, bytes / (WIDTH[tensor.type] ?? 1))] as const;
  });
  return zip(
    [
      ['archive/data.pkl', options.pickle ?? stateDict(values)],
      ['archive/byteorder', Buffer.from('little')],
      ...Object.entries(storages).map(([key, bytes]) => [`archive/data/${key}`, bytes] as const),
      ['archive/version', Buffer.from('3\n')],
      ...(options.more ?? []),
    ],
    options,
  );
}

export { none as pickledNone };
