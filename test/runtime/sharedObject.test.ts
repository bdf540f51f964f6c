/** Damage in a shared object is found before the system maps it. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { compileShared } from '../../runtime/cpu/compiler.js';
import { sharedObjectProblem } from '../../runtime/cpu/sharedObject.js';
import { settingsIn, temporaryFolder } from './kernels.js';

describe('a shared object', () => {
  let sound: Buffer;

  beforeAll(async () => {
    const settings = settingsIn(join(temporaryFolder(), 'cache'));
    const text = '#include <math.h>\nfloat tw_root(float x) { return sqrtf(x) + powf(x, 3); }\n';
    const { path } = await compileShared([{ name: 'a.c', text }], { isa: 'portable', settings });
    sound = readFileSync(path);
  });

  /** A copy with one field changed. */
  const changed = (change: (copy: Buffer) => void): Buffer => {
    const copy = Buffer.from(sound);
    change(copy);
    return copy;
  };
  const programs = (): number => Number(sound.readBigUInt64LE(32));
  /** Offset of the first program header of a type. */
  const program = (type: number): number => {
    for (let at = programs(), left = sound.readUInt16LE(56); left > 0; at += 56, left--)
      if (sound.readUInt32LE(at) === type) return at;
    throw new Error(`no program header of type ${type}`);
  };

  it('that a compiler made is whole', () => {
    expect(sharedObjectProblem(sound)).toBeUndefined();
  });

  it('is refused wherever it was cut off', () => {
    for (let size = 0; size < sound.length; size += 61)
      expect(sharedObjectProblem(sound.subarray(0, size)), `${size} bytes`).toBeDefined();
    expect(sharedObjectProblem(sound.subarray(0, -1))).toBeDefined();
  });

  it.each<[string, (copy: Buffer) => unknown, RegExp]>([
    ['no ELF file', (copy) => copy.write('text'), /no ELF file/],
    ['of 32 bits', (copy) => copy.writeUInt8(1, 4), /no 64-bit little-endian/],
    ['big-endian', (copy) => copy.writeUInt8(2, 5), /no 64-bit little-endian/],
    ['a program', (copy) => copy.writeUInt16LE(2, 16), /type is 2/],
    ['for another machine', (copy) => copy.writeUInt16LE(8, 18), /machine is 8/],
    ['with a header of another size', (copy) => copy.writeUInt16LE(52, 52), /says that it has 52 bytes/],
    ['with program headers behind its end', (copy) => copy.writeBigUInt64LE(1n << 40n, 32), /program headers/],
    ['with section headers behind its end', (copy) => copy.writeBigUInt64LE(1n << 63n, 40), /section headers/],
    ['with program headers of another size', (copy) => copy.writeUInt16LE(8, 54), /program headers have 8 bytes/],
    ['with a section behind its end', (copy) => writeSection(copy, 1n << 40n), /section 1 is not inside/],
    ['with a segment behind its end', (copy) => copy.writeBigUInt64LE(1n << 30n, program(1) + 32), /not inside/],
    ['with a segment of too much memory', (copy) => copy.writeBigUInt64LE(1n << 40n, program(1) + 40), /of memory/],
    ['with an odd alignment', (copy) => copy.writeBigUInt64LE(3n, program(1) + 48), /not aligned/],
    ['without a segment to load', (copy) => eachProgram(copy, 1, 4), /no segment of it is loaded/],
    ['without a dynamic section', (copy) => eachProgram(copy, 2, 4), /0 dynamic sections/],
    ['with a dynamic section elsewhere', (copy) => copy.writeBigUInt64LE(1n << 20n, program(2) + 16), /no segment/],
    ['with an empty dynamic section', (copy) => copy.fill(0, dynamic(), dynamic() + 16), /names no symbols/],
    ['with symbols outside', (copy) => writeDynamic(copy, 6, 1n << 40n), /entry 6 .* leads out/],
  ])('%s is refused', (_, change, expected) => {
    expect(sharedObjectProblem(changed(change))).toMatch(expected);
  });

  const dynamic = (): number => Number(sound.readBigUInt64LE(program(2) + 8));
  const writeSection = (copy: Buffer, offset: bigint): unknown =>
    copy.writeBigUInt64LE(offset, Number(sound.readBigUInt64LE(40)) + 64 + 24);
  function writeDynamic(copy: Buffer, tag: number, value: bigint): void {
    for (let at = dynamic(); ; at += 16)
      if (Number(copy.readBigUInt64LE(at)) === tag) {
        copy.writeBigUInt64LE(value, at + 8);
        return;
      }
  }
  function eachProgram(copy: Buffer, from: number, to: number): void {
    for (let at = programs(), left = copy.readUInt16LE(56); left > 0; at += 56, left--)
      if (copy.readUInt32LE(at) === from) copy.writeUInt32LE(to, at);
  }
});
