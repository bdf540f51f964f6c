/** How many tokens both begin with. */
export function commonLength(a: readonly number[], b: readonly number[]): number {
  const most = Math.min(a.length, b.length);
  let length = 0;
  while (length < most && a[length] === b[length]) length++;
  return length;
}
