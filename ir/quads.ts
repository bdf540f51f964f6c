/**
 * Panels of codes for dot products of bytes on CPUs. A panel has 32 columns. Four neighbours along k, a quad, lie
 * together, so that one instruction multiplies the quads of a vector of columns with those of a row. 32 neighbours
 * along k are a group, 8 quads. Codes are unsigned, and `zero` is subtracted from them.
 *
 * A panel is a row of units, each of one block of ggml for every column (ir/blocks.ts), or of one group of whole rows:
 * - d of 32 columns in f16, and dmin if there are minima; none for whole rows, of which a unit is two groups: a step of
 *   tiles of AMX.
 * - For each group: of formats with sub-blocks, their scales and minima, or both scales, a byte for each column; lines
 *   of 128 bytes, [32 columns][quad]. Codes of 8 bits have a line for each quad. Of others, line i has the lower 4 bits
 *   of quad 2i in its lower halves, and those of quad 2i + 1 in its upper ones. The rest of q5_k is a line whose bit q
 *   belongs to quad q, that of q6_k are two lines for 4 quads each, two bits a quad from the lowest.
 */
/** Columns of a panel. */
export const QUAD_COLUMNS = 32;
/** Neighbours along k that share a scale of activations; with whole rows, all do. */
export const GROUP = 32;

export type QuadName = 'i8' | 'q8_0' | 'q4_0' | 'q4_k' | 'q5_k' | 'q6_k';

export interface QuadPanel {
  readonly bits: 4 | 5 | 6 | 8;
  readonly zero: number;
  /** Groups of a unit. */
  readonly groups: 1 | 2 | 8;
  /** Bytes of a unit before its first group, and of a group before its codes. */
  readonly head: 0 | 64 | 128;
  readonly scales: 0 | 64;
  /** Quads that share a scale; 0 for whole rows, whose scale is not in the panel. */
  readonly scaleQuads: 0 | 4 | 8;
  readonly hasMinimum: boolean;
}

const plain = { groups: 1, head: 64, scales: 0, scaleQuads: 8, hasMinimum: false } as const;
const sub = { zero: 0, groups: 8, head: 128, scales: 64, scaleQuads: 8, hasMinimum: true } as const;

export const QUADS: Readonly<Record<QuadName, QuadPanel>> = {
  i8: { ...plain, bits: 8, zero: 128, groups: 2, head: 0, scaleQuads: 0 },
  q8_0: { ...plain, bits: 8, zero: 128 },
  q4_0: { ...plain, bits: 4, zero: 8 },
  q4_k: { ...sub, bits: 4 },
  q5_k: { ...sub, bits: 5 },
  q6_k: { ...sub, bits: 6, zero: 32, head: 64, scaleQuads: 4, hasMinimum: false },
};

/** Bytes of the codes of a group. */
export const codeBytes = ({ bits }: QuadPanel): number => bits * 128;
export const groupBytes = (panel: QuadPanel): number => panel.scales + codeBytes(panel);
export const unitBytes = (panel: QuadPanel): number => panel.head + panel.groups * groupBytes(panel);
/** Neighbours along k of a unit. */
export const unitDepth = ({ groups }: QuadPanel): number => GROUP * groups;
/** Bytes of a panel over `k`. */
export const quadPanelBytes = (panel: QuadPanel, k: number): number =>
  Math.ceil(k / unitDepth(panel)) * unitBytes(panel);
/** Most of k whose products of bytes, 255 · 127, have a sum of 32 bits. */
export const MAX_WHOLE_ROW = 66_000;

export const isQuads = (format: string): format is QuadName => Object.hasOwn(QUADS, format);
