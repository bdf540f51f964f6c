/** Makes the text of a wgmma kernel fit for fibres: test/support/cudaWarp/hopper.h replaces its inline assembly. */
import { readFileSync } from 'node:fs';
import { DTYPE_BYTES } from '../../../ir/types.js';
import type { CudaKernelText, TensorMapDecl } from '../../../ir/cuda.js';

const HOPPER = new URL('../../support/cudaWarp/hopper.h', import.meta.url);

/** Inserted after the prelude. */
export const hopperSupport = (): string => readFileSync(HOPPER, 'utf8');

export const isHopper = ({ tensorMaps }: Pick<CudaKernelText, 'tensorMaps'>): boolean => tensorMaps.length > 0;

/** Instructions that are replaced by what they do. All others order memory or give hints, which fibres do not need. */
const INSTRUCTIONS: readonly (readonly [RegExp, string])[] = [
  [/asm volatile\("mov\.u32 %0, %%nctaid\.x;" : "=r"\((\w+)\)\);/g, '$1 = (int)gridDim.x;'],
  [/asm volatile\("mov\.u32 %0, %%tid\.x;" : "=r"\((\w+)\)\);/g, '$1 = (int)threadIdx.x;'],
  [/asm(?: volatile)?\("mov\.u32 %0, %%cluster_ctarank;" : "=r"\((\w+)\)\);/g, '$1 = tw_rank;'],
  [/asm volatile\("bar\.(sync|arrive) %0, (\d+);" :: "r"\((.*?)\) : "memory"\);/g, 'tw_named_$1((unsigned)($3), $2);'],
  [/asm volatile\("wgmma\.commit_group\.sync\.aligned;" ::: "memory"\);/g, 'tw_product_commit();'],
  [/asm volatile\("wgmma\.wait_group\.sync\.aligned (\d+);" ::: "memory"\);/g, 'tw_product_wait($1);'],
  [/asm(?: volatile)?\((?:\s*"(?:[^"\\]|\\.)*")+[^;]*;/g, ';'],
];

/** `text` without the prelude. Throws if the kernel contains what fibres cannot do. */
export function hopperText(text: string, kernel: Pick<CudaKernelText, 'symbol'>): string {
  const from = text.indexOf('/* Hopper contraction');
  const to = text.indexOf('/* Lane t of a quad');
  const type = /\.f32\.(bf16|f16|e4m3)\./.exec(text)?.[1];
  if (from < 0 || to < from || type === undefined)
    throw new Error(`${kernel.symbol} is not the text of a wgmma contraction`);
  // Kernels of few rows multiply 64 and use those that they have.
  const rows = /Rows past (\d+) are whatever lies/.exec(text)?.[1] ?? '64';
  const own = [
    'static unsigned tw_shared(const void *p) { return (unsigned)((const unsigned char *)p - ::tw_shared); }',
    '#define tw_raw ::tw_shared',
    'template <int N> static void tw_wgmma(float (&d)[N], unsigned long long a, unsigned long ' +
      `long b, int isAdded) { tw_product<${rows}>(d, a, b, isAdded, tw_from_${type}); }`,
    'template <int N> static void tw_wgmma_narrow(float (&d)[N], unsigned long long a, ' +
      `unsigned long long b, int isAdded) { tw_product<${rows}>(d, a, b, isAdded, tw_from_${type}); }`,
    '',
  ].join('\n');
  return INSTRUCTIONS.reduce(
    (all, [pattern, by]) => all.replaceAll(pattern, by),
    text.slice(0, from) + own + text.slice(to),
  );
}

/**
 * C expressions of a kernel's tensor maps, as arguments. Rows past the extent exist up to `rowPad` and hold garbage.
 */
export const mapArguments = (
  maps: readonly TensorMapDecl[],
  rowPad: number,
  extentOf: (name: string) => string,
): string[] =>
  maps.map(({ parameter, dtype, rows, columns, stride, boxRows, boxColumns, swizzle }) => {
    const extent =
      typeof rows === 'number' ? String(rows) : `(${extentOf(rows)} + ${rowPad - 1}) / ${rowPad} * ${rowPad}`;
    return (
      `tw_map_of({ (const unsigned char *)p[${parameter}], ${extent}, ${columns}, ${stride}, ` +
      `${boxRows}, ${boxColumns}, ${DTYPE_BYTES[dtype]}, ${swizzle} })`
    );
  });
