/**
 * Register tiles of dot products of bytes: unsigned codes of weights (ir/quads.ts) by signed codes of rows. Sums of
 * integers are exact, and those of floats are added in order of k, so that every tile and instruction set has the same
 * bits: total = fma(sum of products, scale of columns · scale of row, total) for each scale; then, of formats with
 * minima, total = fma(−minimum, scale of row · sum of the row's codes, total). Of whole rows, tiles leave the sums of
 * integers as they are, of unsigned codes where those are. Tiles of many rows: quadMany.ts.
 */
import type { CpuIsa } from '../../ir/plan.js';
import { groupBytes, QUAD_COLUMNS, type QuadName, type QuadPanel, QUADS, unitBytes } from '../../ir/quads.js';
import type { Helper } from './micro.js';
import { QUAD_ISAS, type QuadIsa, type QuadVectors, vectorsOf } from './quadIsas.js';
import { render } from './templates.js';

/** Rows in codes: bytes from one to the next, groups of a row, and its codes, padded to whole groups. */
export interface QuadRows {
  readonly pitch: number;
  readonly groups: number;
  readonly depth: number;
  /** Neighbours along k whose columns are widened together. */
  readonly chunk: number;
  /**
   * Where bounded codes begin, and behind them lists of what was taken off: of each chunk the number of quads, and then
   * their places in it and four codes (quadRound). Only for tiles of bytes with AVX2.
   */
  readonly bounded?: number;
  readonly lists?: number;
}

export interface QuadTile {
  readonly isa: QuadIsa;
  readonly format: QuadName;
  readonly rows: QuadRows;
  readonly ldc: number;
}

/** Rows of a work item up to which tiles read packed codes. */
export const FEW_ROWS = 8;

/** Neighbours along k whose columns are widened together: whole units of every format. */
export const QUAD_CHUNK = 256;

/** The same for bounded rows of bytes: 16 KB of a tile's columns. Longer lists cost fewer mispredicted ends. */
export const BOUNDED_CHUNK = 1024;

/** Bytes of a list of quads of such a chunk: their number, which takes the place of one, all of them, and an end. */
export const LIST_BYTES = 16 + 8 * (BOUNDED_CHUNK / 4);

/** How far ahead a stream of weights is fetched into the first-level cache. */
const BYTES_AHEAD = 6144;

export const range = (count: number): readonly number[] => Array.from({ length: count }, (_, i) => i);

/** Groups of weights and sums of a scale: all 8 quads, or twice 4. */
export const partsOf = ({ scaleQuads }: QuadPanel): readonly (readonly number[])[] =>
  scaleQuads === 4 ? [[0], [4]] : [[0, 4]];

/** Statements that make `w`N, the codes of quads `first` … `first + 3` of a vector whose lines start at `at`. */
export function codesOf(panel: QuadPanel, own: QuadVectors, first: number, at: number): readonly string[] {
  const line = (n: number): string => `${own.load}(p + ${panel.scales + 128 * n + at})`;
  const quads = range(4).map((i) => first + i);
  const define = (name: string, value: string): string => `const ${own.codes} ${name} = ${value};`;
  if (panel.bits === 8) return quads.map((quad) => define(`w${quad}`, line(quad)));
  const lower = (quad: number): string => `${own.take}(l${quad >> 1}, ${quad & 1 ? 4 : 0}, 15)`;
  const lines = [first >> 1, (first >> 1) + 1].map((n) => define(`l${n}`, line(n)));
  if (panel.bits === 4) return [...lines, ...quads.map((quad) => define(`w${quad}`, lower(quad)))];
  lines.push(define('rest', line(panel.bits === 5 ? 4 : 4 + (first >> 2))));
  const upper = (quad: number): string =>
    panel.bits === 5 ? `${own.take}(rest, ${quad - 4}, 16)` : `${own.take}(rest, ${2 * (quad & 3) - 4}, 48)`;
  return [...lines, ...quads.map((quad) => define(`w${quad}`, `${own.or}(${lower(quad)}, ${upper(quad)})`))];
}

/** The scales of a part of a vector of columns from `column` on: of units at `d` and of groups at `s`. */
export function scaleOf(panel: QuadPanel, own: QuadVectors, part: number, column: number): string {
  const d = `${own.halves}(d + ${2 * column})`;
  if (panel.scales === 0) return d;
  const each = panel.hasMinimum ? `${own.bytes}(s + ${column})` : `${own.signed}(s + ${32 * part + column})`;
  return `${own.multiply}(${d}, ${each})`;
}

export const minimumOf = (own: QuadVectors, column: number): string =>
  `${own.multiply}(${own.halves}(d + ${64 + 2 * column}), ${own.bytes}(s + ${32 + column}))`;

/** What the products of unsigned codes have too much, negative: of row `r` and a part. None of whole rows yet. */
export function correction(panel: QuadPanel, own: QuadVectors, r: number, part: number): string {
  if (panel.scaleQuads === 0) return own.zero;
  const sum = panel.scaleQuads !== 4 ? `(g${r}->low + g${r}->high)` : part === 0 ? `g${r}->low` : `g${r}->high`;
  return panel.zero === 0 ? own.zero : `${own.setInt}(-${panel.zero} * ${sum})`;
}

/** Statements that add the sums of a part to the totals at `c`; minima with the last part. */
export function addTotal(panel: QuadPanel, own: QuadVectors, r: number, sum: string, at: string): string {
  const scale = `${own.multiply}(scale, ${own.set}(g${r}->scale))`;
  const total = own.fma(own.toFloat(sum), scale, `${own.loadFloat}(${at})`);
  const all = panel.hasMinimum ? own.fnma('minimum', `${own.set}(g${r}->sum)`, total) : total;
  return `${own.storeFloat}(${at}, ${all});`;
}

/** A function's text for each of the ways to multiply, under one name that chooses. `print` gets name and attribute. */
export function versions(own: QuadVectors, name: string, print: (name: string, target: string) => string): Helper {
  const { feature, needs } = own;
  const text =
    feature === undefined
      ? print(name, needs === undefined ? '' : `, target("${needs}")`)
      : '#define TW_DOT TW_DOT_PLAIN\n' +
        print(`${name}_plain`, '') +
        '#undef TW_DOT\n#define TW_DOT TW_DOT_FEATURE\n' +
        print(`${name}_${feature}`, `, target("${feature}")`) +
        `#undef TW_DOT\n#define ${name} (TW_SUPPORTS("${feature}") ? ${name}_${feature} : ${name}_plain)\n`;
  return { name, source: `#ifndef TW_HAS_${name}\n#define TW_HAS_${name}\n${text}#endif\n` };
}

/** c[mr][32] (+)= rows·panel for few rows, straight from packed codes. */
export function fewQuads({ isa, format, rows, ldc }: QuadTile, mr: number): Helper {
  const panel = QUADS[format];
  const own = vectorsOf(isa, format);
  const isWhole = panel.scaleQuads === 0;
  const body: string[] = isWhole
    ? []
    : range(mr).map((r) => `const tw_group *g${r} = groups + ${r * rows.groups} + n;`);
  const vectors = range(QUAD_COLUMNS / own.lanes);
  const finish = (j: number, part: number, sum: (r: number) => string): readonly string[] => {
    const place = (r: number): string => `c + ${r * ldc + j * own.lanes}`;
    if (isWhole) return range(mr).map((r) => own.addTo(`(int32_t *)(${place(r)})`, sum(r)));
    return [
      `const ${own.float} scale = ${scaleOf(panel, own, part, j * own.lanes)};`,
      ...(panel.hasMinimum ? [`const ${own.float} minimum = ${minimumOf(own, j * own.lanes)};`] : []),
      ...range(mr).map((r) => addTotal(panel, own, r, sum(r), place(r))),
    ];
  };
  if (own.across !== undefined && panel.bits === 8 && mr * vectors.length <= own.across.sums) {
    // All vectors of columns side by side, so that a row's codes are loaded once.
    const at = (quad: number, j: number): string => `p + ${panel.scales + 128 * quad + 4 * j * own.lanes}`;
    for (const r of range(mr))
      for (const j of vectors) body.push(`${own.int} c${r}_${j} = ${correction(panel, own, r, 0)};`);
    for (const quad of range(8)) {
      const codes = range(mr).map((r) => `a + ${r * rows.pitch}`);
      body.push(
        '{',
        ...own.across.dot(
          quad,
          vectors.map((j) => at(quad, j)),
          codes,
          rows.depth,
        ),
        '}',
      );
    }
    for (const j of vectors) body.push('{', ...finish(j, 0, (r) => `c${r}_${j}`), '}');
  } else
    for (const j of vectors)
      partsOf(panel).forEach((firsts, part) => {
        body.push('{', ...range(mr).map((r) => `${own.int} c${r} = ${correction(panel, own, r, part)};`));
        for (const first of firsts) {
          body.push('{', ...codesOf(panel, own, first, 4 * j * own.lanes));
          for (const r of range(mr))
            body.push(...own.dot(`c${r}`, 'w', first, panel.bits, `a + ${r * rows.pitch}`, rows.depth));
          body.push('}');
        }
        body.push(...finish(j, part, (r) => `c${r}`), '}');
      });
  return versions(own, `tw_few_${isa}_${format}_${mr}_p${rows.pitch}_${rows.groups}_c${ldc}`, (name, target) =>
    render('quadFew', {
      name,
      target,
      mr,
      format,
      ahead: BYTES_AHEAD,
      clear: range(mr).map((r) => r * ldc),
      ...unitValues(panel),
      lines: range(Math.ceil(unitBytes(panel) / panel.groups / 64)).map((i) => i * 64 + BYTES_AHEAD),
      body,
    }),
  );
}

export const unitValues = (panel: QuadPanel): object => ({
  unitBytes: unitBytes(panel),
  unitGroups: panel.groups,
  head: panel.head,
  groupBytes: groupBytes(panel),
});

// Register tiles of dot products of bytes for many rows: they share columns that are widened once.

/** Columns of the tiles of many rows. */
export const manyColumns = (isa: QuadIsa | CpuIsa): 16 | 32 => (isa === 'avx2' || isa === 'avxvnni' ? 16 : 32);

/** Makes `manyColumns` columns of a panel ready for tiles of many rows: codes, scales and minima of some units. */
export function widenQuads(isa: QuadIsa, format: QuadName): Helper {
  const panel = QUADS[format];
  const own = vectorsOf(isa, format);
  const nr = manyColumns(isa);
  const body: string[] = [];
  for (const j of range(nr / own.lanes)) {
    const column = j * own.lanes;
    for (const first of [0, 4]) {
      body.push('{', ...codesOf(panel, own, first, 4 * column));
      for (const quad of range(4).map((i) => first + i)) body.push(...own.widen(`w${quad}`, quad, j, panel.zero));
      body.push('}');
    }
  }
  const parts = partsOf(panel).length;
  if (panel.scaleQuads !== 0) {
    for (const part of range(parts))
      for (const j of range(nr / own.lanes))
        body.push(
          `${own.storeFloat}(scales + ${part * nr + j * own.lanes}, ${scaleOf(panel, own, part, j * own.lanes)});`,
        );
    body.push(`scales += ${parts * nr};`);
  }
  if (panel.hasMinimum) {
    for (const j of range(nr / own.lanes))
      body.push(`${own.storeFloat}(minima + ${j * own.lanes}, ${minimumOf(own, j * own.lanes)});`);
    body.push(`minima += ${nr};`);
  }
  const name = `tw_widen_${isa}_${format}`;
  const target = own.needs === undefined ? '' : `, target("${own.needs}")`;
  const text = render('quadWiden', { name, target, nr, format, ...unitValues(panel), body, wide: 8 * own.quadBytes });
  return { name, source: `#ifndef TW_HAS_${name}\n#define TW_HAS_${name}\n${text}#endif\n` };
}

/** Whether tiles of whole rows take bounded codes. */
export const isBounded = (isa: QuadIsa): boolean => isa === 'avx2';

/**
 * Statements that multiply what was taken off the bounded codes of `mr` rows, side by side: behind its end a list has
 * zeros, so that all rows go as far as the longest one, and only one end is mispredicted.
 */
const restOf = (own: QuadVectors, mr: number, pitch: number): readonly string[] => [
  'int32_t most = 0;',
  ...range(mr).map((r) => `if (${quadAt(r * pitch)} > most) most = ${quadAt(r * pitch)};`),
  'for (; most > 0; most--, lists += 8) {',
  ...range(mr).flatMap((r) => [
    `  { const uint8_t *const from = codes + 64 * ${quadAt(r * pitch + 8)};`,
    `  TW_Q256_BYTES(c${r}_0, c${r}_1, ${own.load}(from), ${own.load}(from + 32), ${quadAt(r * pitch + 12)});`,
    '  }',
  ]),
  '}',
];

const quadAt = (offset: number): string => `*(const tw_quad *)(lists + ${offset})`;

/** c[mr][manyColumns] (+)= rows·columns, from codes that widenQuads left. */
export function manyQuads({ isa, format, rows, ldc }: QuadTile, mr: number): Helper {
  const panel = QUADS[format];
  const own = vectorsOf(isa, format);
  const nr = manyColumns(isa);
  const isWhole = panel.scaleQuads === 0;
  const cells = range(mr).flatMap((r) =>
    range(nr / own.lanes).map((j) => ({ r, j, sum: `c${r}_${j}`, at: `c + ${r * ldc + j * own.lanes}` })),
  );
  const groups = isWhole ? [] : range(mr).map((r) => `const tw_group *g${r} = groups + ${r * rows.groups} + n;`);
  const zero = (r: number, part: number): string => (own.widenedZero ? correction(panel, own, r, part) : own.zero);
  const parts = partsOf(panel);
  const narrow = panel.bits === 4 ? own.narrow : undefined;
  const products = (firsts: readonly number[]): readonly string[] =>
    firsts.flatMap((first) => range(4).flatMap((i) => (narrow ?? own).many(first + i, mr, nr / own.lanes, rows)));
  const body = parts.flatMap((firsts, part) => [
    '{',
    ...(isWhole
      ? products(firsts)
      : [
          ...range(mr).map((r) => `const ${own.int} z${r} = ${zero(r, part)};`),
          ...cells.map(({ r, sum }) => `${own.int} ${sum} = ${narrow === undefined ? `z${r}` : own.zero};`),
          ...products(firsts),
          ...(narrow === undefined ? [] : cells.map(({ r, sum }) => `${sum} = ${narrow.widened(sum, `z${r}`)};`)),
        ]),
    ...(isWhole
      ? []
      : range(nr / own.lanes).flatMap((j) => [
          '{',
          `const ${own.float} scale = ${own.loadFloat}(scales + ${part * nr + j * own.lanes});`,
          ...(panel.hasMinimum ? [`const ${own.float} minimum = ${own.loadFloat}(minima + ${j * own.lanes});`] : []),
          ...cells.filter((cell) => cell.j === j).map(({ r, sum, at }) => addTotal(panel, own, r, sum, at)),
          '}',
        ])),
    '}',
  ]);
  const hasLists = isWhole && isBounded(isa);
  return versions(own, `tw_many_${isa}_${format}_${mr}_p${rows.pitch}_${rows.groups}_c${ldc}`, (name, target) =>
    render('quadMany', {
      name,
      target,
      mr,
      nr,
      format,
      hasLists,
      rest: hasLists ? restOf(own, mr, rows.pitch) : [],
      start: isWhole
        ? cells.map(({ sum, at }) => `${own.int} ${sum} = first ? ${own.zero} : ${own.loadInt(at)};`)
        : [`if (first) for (int r = 0; r < ${mr}; r++) memset(c + r * ${ldc}, 0, ${4 * nr});`],
      body: [...groups, ...body],
      wide: 8 * own.quadBytes,
      advance: { scales: isWhole ? 0 : parts.length * nr, minima: panel.hasMinimum ? nr : 0 },
      end: isWhole ? cells.map(({ sum, at }) => own.storeInt(at, sum)) : [],
    }),
  );
}

/**
 * Statements that make a vector of results at `at` of sums of integers there: without what products of unsigned codes
 * have too much, `excess`, times the row's scale.
 */
export const wholeResult = (isa: QuadIsa, at: string): string => {
  const { storeFloat, multiply, toFloat, subtract, loadInt } = QUAD_ISAS[isa];
  return `${storeFloat}(${at}, ${multiply}(${toFloat(`${subtract}(${loadInt(at)}, excess)`)}, scale));`;
};

/** Bytes that widened columns of `depth` along k take: codes, scales and minima. */
export function widenedBytes(
  isa: QuadIsa,
  format: QuadName,
  depth: number,
): { codes: number; scales: number; minima: number } {
  const groups = depth / 32;
  return {
    codes: groups * 8 * vectorsOf(isa, format).quadBytes,
    scales: groups * 2 * manyColumns(isa) * 4,
    minima: groups * manyColumns(isa) * 4,
  };
}
