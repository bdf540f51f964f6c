/** What the fake driver reads of PTX: the parameters of a kernel, integers first. */
export function entryText(
  symbol: string,
  pointers: number,
  maps: number,
  ints: readonly string[] = ['T', 'R'],
): string {
  const parameters = [
    ...ints.map((name) => `.param .u32 ${name}`),
    ...Array.from({ length: pointers }, (_, i) => `.param .u64 p${i}`),
    ...Array.from({ length: maps }, (_, i) => `.param .align 64 .b8 m${i}[128]`),
  ];
  return `.version 8.0\n.target sm_90a\n.visible .entry ${symbol}(${parameters.join(', ')})\n`;
}
