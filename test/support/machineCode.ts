/** Looks into machine code of NVIDIA GPUs (ELF files of sm_90a): which instructions a kernel has, in order. */

/** Instructions of 16 bytes; the low 12 bits name the operation. As cuobjdump prints them: HGMMA, R2UR. */
const [WGMMA, TO_UNIFORM] = [0x9f0, 0x2ca];
const INSTRUCTION_BYTES = 16;

/** The machine code of the kernel called `symbol`. Throws if the file has none. */
function codeOf(cubin: Buffer, symbol: string): Buffer {
  const [headers, count, names] = [
    Number(cubin.readBigUInt64LE(40)),
    cubin.readUInt16LE(60),
    cubin.readUInt16LE(62),
  ] as const;
  const section = (i: number): { name: number; offset: number; bytes: number } => ({
    name: cubin.readUInt32LE(headers + 64 * i),
    offset: Number(cubin.readBigUInt64LE(headers + 64 * i + 24)),
    bytes: Number(cubin.readBigUInt64LE(headers + 64 * i + 32)),
  });
  const table = section(names).offset;
  for (let i = 0; i < count; i++) {
    const { name, offset, bytes } = section(i);
    const from = table + name;
    if (cubin.toString('latin1', from, cubin.indexOf(0, from)) === `.text.${symbol}`)
      return cubin.subarray(offset, offset + bytes);
  }
  throw new Error(`There is no machine code of ${symbol}.`);
}

/**
 * Instructions wgmma that come right after moves to uniform registers, with no other wgmma between. They take their
 * operands' places from there, so a loop whose places are computed elsewhere waits for moves at each of them.
 */
export function movesBeforeProducts(cubin: Buffer, symbol: string): number {
  const code = codeOf(cubin, symbol);
  let [moved, count] = [false, 0];
  for (let at = 0; at < code.length; at += INSTRUCTION_BYTES) {
    const operation = code.readUInt16LE(at) & 0xfff;
    if (operation === TO_UNIFORM) moved = true;
    if (operation !== WGMMA) continue;
    if (moved) count++;
    moved = false;
  }
  return count;
}
