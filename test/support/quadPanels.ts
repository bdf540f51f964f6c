/** Panels of quads from blocks of ggml: the reference of the packer, element by element, after ir/quads.ts. */
import { BLOCKS, type BlockName } from '../../ir/blocks.js';
import { codeBytes, groupBytes, QUAD_COLUMNS, QUADS, quadPanelBytes, unitBytes, unitDepth } from '../../ir/quads.js';

interface Parts {
  readonly d: Uint8Array;
  readonly minimum: Uint8Array;
  /** Scales (and minima) of a group. */
  readonly scales: (group: number) => readonly [number, number];
  readonly code: (at: number) => number;
}

/** The numbers of a block, unsigned. */
function partsOf(name: BlockName, b: Uint8Array): Parts {
  const none = new Uint8Array(2);
  const zero = (): readonly [number, number] => [0, 0];
  const nibble = (codes: Uint8Array, at: number): number =>
    (codes[32 * (at >> 6) + (at & 31)]! >> (at & 32 ? 4 : 0)) & 15;
  const subBlocks =
    (s: Uint8Array) =>
    (j: number): readonly [number, number] =>
      j < 4
        ? [s[j]! & 63, s[j + 4]! & 63]
        : [(s[j + 4]! & 15) | ((s[j - 4]! >> 6) << 4), (s[j + 4]! >> 4) | ((s[j]! >> 6) << 4)];
  const common = { d: b.subarray(0, 2), minimum: none, scales: zero };
  switch (name) {
    case 'q8_0':
      return { ...common, code: (at) => (b[2 + at]! + 128) & 255 };
    case 'q4_0':
      return { ...common, code: (at) => (b[2 + (at & 15)]! >> (at < 16 ? 0 : 4)) & 15 };
    case 'q4_k':
      return {
        ...{ d: b.subarray(0, 2), minimum: b.subarray(2, 4), scales: subBlocks(b.subarray(4, 16)) },
        code: (at) => nibble(b.subarray(16), at),
      };
    case 'q5_k':
      return {
        ...{ d: b.subarray(0, 2), minimum: b.subarray(2, 4), scales: subBlocks(b.subarray(4, 16)) },
        code: (at) => nibble(b.subarray(48), at) | (((b[16 + (at & 31)]! >> (at >> 5)) & 1) << 4),
      };
    case 'q6_k':
      return {
        ...{ d: b.subarray(208, 210), minimum: none, scales: (j) => [b[192 + 2 * j]!, b[193 + 2 * j]!] },
        code: (at) => {
          const [half, quarter, i] = [at >> 7, (at >> 5) & 3, at & 31];
          const low = (b[64 * half + 32 * (quarter & 1) + i]! >> (4 * (quarter >> 1))) & 15;
          return low | (((b[128 + 32 * half + i]! >> (2 * quarter)) & 3) << 4);
        },
      };
    default:
      return name satisfies never;
  }
}

/** `order`: the row of `blocks` in each physical column, −1 for padding. */
export function quadPanels(name: BlockName, blocks: Uint8Array, k: number, order: Int32Array): Uint8Array {
  const panel = QUADS[name];
  const { bytes } = BLOCKS[name];
  const [units, own] = [k / unitDepth(panel), quadPanelBytes(panel, k)];
  const out = new Uint8Array(Math.ceil(order.length / QUAD_COLUMNS) * own);
  for (let column = 0; column < order.length; column++) {
    const lane = column % QUAD_COLUMNS;
    for (let unit = 0; unit < units; unit++) {
      const at = Math.floor(column / QUAD_COLUMNS) * own + unit * unitBytes(panel);
      const row = order[column]!;
      const block = blocks.subarray((row * units + unit) * bytes, (row * units + unit + 1) * bytes);
      const parts = row < 0 ? undefined : partsOf(name, block);
      if (parts !== undefined) out.set(parts.d, at + 2 * lane);
      if (parts !== undefined && panel.hasMinimum) out.set(parts.minimum, at + 64 + 2 * lane);
      for (let group = 0; group < panel.groups; group++) {
        const first = at + panel.head + group * groupBytes(panel);
        if (parts !== undefined && panel.scales > 0)
          parts.scales(group).forEach((scale, i) => (out[first + 32 * i + lane] = scale));
        const lines = out.subarray(first + panel.scales, first + panel.scales + codeBytes(panel));
        for (let i = 0; i < 32; i++) {
          const code = parts?.code(32 * group + i) ?? panel.zero;
          const [quad, place] = [i >> 2, 4 * lane + (i & 3)];
          if (panel.bits === 8) lines[128 * quad + place] = code;
          else {
            lines[128 * (quad >> 1) + place]! |= (code & 15) << (4 * (quad & 1));
            if (panel.bits === 5) lines[512 + place]! |= (code >> 4) << quad;
            if (panel.bits === 6) lines[512 + 128 * (quad >> 2) + place]! |= (code >> 4) << (2 * (quad & 3));
          }
        }
      }
    }
  }
  return out;
}

/** Panels of codes with signs, whose scales are for whole rows. `order`: the row in each physical column. */
export function codePanels(codes: Int8Array, k: number, order: Int32Array): Uint8Array {
  const own = quadPanelBytes(QUADS.i8, k);
  const out = new Uint8Array(Math.ceil(order.length / QUAD_COLUMNS) * own).fill(QUADS.i8.zero);
  order.forEach((row, column) => {
    if (row < 0) return;
    const panel = out.subarray(Math.floor(column / QUAD_COLUMNS) * own);
    for (let i = 0; i < k; i++)
      panel[128 * (i >> 2) + 4 * (column % QUAD_COLUMNS) + (i & 3)] = codes[row * k + i]! + 128;
  });
  return out;
}
